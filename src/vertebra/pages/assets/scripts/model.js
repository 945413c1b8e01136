// ---- the model in the browser: a sum of products of tabulated functions --------------------------------------------

const numbers = async (text, Kind) => new Kind(await unpacked(text));

const model = data.model;
const inputs = await Promise.all(model.inputs.map(async (input) => {
  if (!input.acts) return input;
  const [table, steps, special, nodes] = await Promise.all([
    numbers(input.table, Int16Array), numbers(input.steps, Float32Array), numbers(input.special, Float32Array),
    input.nodes ? numbers(input.nodes, Float32Array) : null,
  ]);
  for (let j = steps.length; j < table.length; j++) table[j] += table[j - steps.length];
  return { ...input, table, steps, special, nodes };
}));
const outputs = await Promise.all(model.outputs.map(async (output) => {
  const [mean, root, scale] = await Promise.all([
    numbers(output.mean, Float64Array), numbers(output.root, Int16Array), numbers(output.scale, Float32Array),
  ]);
  return { ...output, mean, root, scale };
}));
const MISSING = "\u0000missing", UNSEEN = "\u0000unseen";

// u = (x − centre)/scale, drawn in beyond the tail, as the table's reader does
function standard(input, x) {
  const u = (x - input.centre) / input.scale;
  return input.tail > 0 && Math.abs(u) > input.tail ? Math.sign(u) * (input.tail + Math.asinh(Math.abs(u) - input.tail)) : u;
}

function original(input, u) {
  const v = input.tail > 0 && Math.abs(u) > input.tail ? Math.sign(u) * (input.tail + Math.sinh(Math.abs(u) - input.tail)) : u;
  return input.centre + input.scale * v;
}

// All functions of an input at a value: of a number between two nodes, of a level its own row.
function functions(input, value) {
  const k = input.k;
  if (value === MISSING) return input.special.subarray(0, k);
  if (value === UNSEEN) return input.special.subarray(k, 2 * k);
  const width = input.steps.length;
  const result = new Float64Array(k);
  if (input.levels) {
    for (let j = 0; j < width; j++) result[j] = input.steps[j] * input.table[value * width + j];
    return result;
  }
  const u = standard(input, value), nodes = input.nodes;
  let low = 0, high = nodes.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (nodes[middle] <= u) low = middle; else high = middle;
  }
  const share = high > low ? Math.min(1, Math.max(0, (u - nodes[low]) / (nodes[high] - nodes[low]))) : 0;
  for (let j = 0; j < width; j++) result[j] = input.steps[j] * ((1 - share) * input.table[low * width + j] + share * input.table[high * width + j]);
  return result;
}

// f of every latent function with its variance, and what each term adds.
function latent(values) {
  const own = inputs.map((input, i) => (input.acts ? functions(input, values[i]) : null));
  return outputs.map((output) => {
    const r = output.n_columns, total = new Float64Array(r), terms = [];
    for (let c = 0; c < r; c++) total[c] = output.root[c] * output.scale[0];
    let mean = output.mean[0], place = 1;
    const constant = { mean: mean, sd: Math.sqrt(total.reduce((s, v) => s + v * v, 0)) };
    for (const term of model.terms) {
      const part = new Float64Array(r);
      let sum = 0;
      for (const index of term.index) {
        let product = 1;
        for (let axis = 0; axis < index.length; axis++) product *= own[term.inputs[axis]][index[axis]];
        if (product !== 0) {
          sum += product * output.mean[place];
          const size = product * output.scale[place];
          for (let c = 0; c < r; c++) part[c] += size * output.root[place * r + c];
        }
        place += 1;
      }
      let square = 0;
      for (let c = 0; c < r; c++) {
        square += part[c] * part[c];
        total[c] += part[c];
      }
      mean += sum;
      terms.push({ inputs: term.inputs, mean: sum, sd: Math.sqrt(square) });
    }
    return { mean: mean, variance: total.reduce((s, v) => s + v * v, output.rest), constant: constant, terms: terms };
  });
}

// ---- distributions --------------------------------------------------------------------------------------------

function logGamma(x) {
  const c = [76.18009172947146, -86.50532032941677, 24.01409824083091, -1.231739572450155, 0.1208650973866179e-2, -0.5395239384953e-5];
  let y = x, sum = 1.000000000190015;
  const t = x + 5.5 - (x + 0.5) * Math.log(x + 5.5);
  for (const each of c) sum += each / ++y;
  return -t + Math.log((2.5066282746310005 * sum) / x);
}

// The regularised incomplete beta function, by its continued fraction.
function beta(x, a, b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - beta(1 - x, b, a);
  const front = Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log(1 - x)) / a;
  let c = 1, d = 1 / (1 - ((a + b) * x) / (a + 1)), h = d;
  for (let m = 1; m < 300; m++) {
    let k = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / (1 + k * d); c = 1 + k / c; h *= d * c;
    k = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / (1 + k * d); c = 1 + k / c;
    const step = d * c;
    h *= step;
    if (Math.abs(step - 1) < 1e-12) break;
  }
  return front * h;
}

const student = (t, nu) => { const tail = 0.5 * beta(nu / (nu + t * t), 0.5 * nu, 0.5); return t > 0 ? 1 - tail : tail; };

// Φ(z), by a rational bound of the error function: off by less than 1.2e-7
function normal(z) {
  const x = Math.abs(z) / Math.SQRT2, t = 1 / (1 + 0.5 * x);
  const powers = [-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277];
  const tail = 0.5 * t * Math.exp(-x * x + powers.reduceRight((sum, c) => sum * t + c, 0));
  return z > 0 ? 1 - tail : tail;
}

function poisson(y, rate) {
  if (y < 0) return 0;
  let sum = 0;
  const last = Math.floor(y);
  if (last > 3000) return normal((last + 0.5 - rate) / Math.sqrt(rate));
  let term = -rate;
  for (let k = 0; k <= last; k++) {
    if (k) term += Math.log(rate / k);
    sum += Math.exp(term);
  }
  return Math.min(1, sum);
}

// P(Y ≤ y) of counts of variance rate + spread · rate².
const negativeBinomial = (y, rate, spread) => (y < 0 ? 0 : beta(1 / (1 + spread * rate), 1 / spread, Math.floor(y) + 1));

// y of one target at the current row: mean, sd, limits.
function ofNumber(f, target, place) {
  const how = model.likelihood, per = how.per_target, first = f[target * per];
  const unit = how.y_scale[target], origin = how.y_mean[target], points = how.points;
  const draw = (k) => points.map((p) => f[target * per + k].mean + Math.sqrt(f[target * per + k].variance) * p[target * per + k]);
  let mean = first.mean, noise = 0, below = null, epistemic = first.variance, normals = null;
  const average = (values) => values.reduce((s, v) => s + v, 0) / values.length;
  if (how.name === "Gaussian") {
    noise = how.scale[target] ** 2;
  } else if (how.name === "StudentT") {
    const s = how.scale[target], nu = how.degrees, at = draw(0);
    noise = (s * s * nu) / (nu - 2);
    below = (y) => average(at.map((v) => student((y - v) / s, nu)));
  } else if (how.name === "HeteroscedasticGaussian") {
    const at = draw(0), s = draw(1).map((v) => how.scale[target] * Math.exp(2 * Math.tanh(0.25 * v)));
    noise = average(s.map((v) => v * v));
    below = (y) => average(at.map((v, i) => normal((y - v) / s[i])));
    normals = at.map((v, i) => [v, s[i]]);
  } else {
    const rates = draw(0).map(Math.exp);
    mean = Math.exp(first.mean + 0.5 * first.variance);
    noise = average(rates);
    epistemic = average(rates.map((v) => v * v)) - noise * noise;
    below = (y) => average(rates.map((rate) => poisson(y, rate)));
    if (how.name === "NegativeBinomial") {
      const spread = how.dispersion[target];
      noise += spread * average(rates.map((v) => v * v));
      below = (y) => average(rates.map((rate) => negativeBinomial(y, rate, spread)));
    }
  }
  const sd = Math.sqrt(epistemic + noise), level = model.levels[place];
  let limits;
  if (model.conformal) {
    const factor = model.conformal[place][target];
    limits = factor === null ? [-Infinity, Infinity] : [mean - factor * sd, mean + factor * sd];
    if (how.is_discrete) limits = [Math.max(0, Math.ceil(limits[0])), Math.floor(limits[1])];
  } else if (below === null) {
    limits = [mean - how.normal[place] * sd, mean + how.normal[place] * sd];
  } else {
    limits = [0.5 - 0.5 * level, 0.5 + 0.5 * level].map((q) => quantile(below, q, mean, sd, how.is_discrete));
  }
  const out = (v) => origin + unit * v;
  if (how.power === null) return { mean: out(mean), sd: unit * sd, lower: out(limits[0]), upper: out(limits[1]) };
  // another scale was fitted: means over normal noise, and limits as they are, since g rises
  const back = (v) => (how.power === 0 ? Math.exp(out(v)) : Math.pow(Math.max(1 + how.power * out(v), 0), 1 / how.power));
  const moment = (k) => average((normals || [[mean, sd]]).map(([m, s]) => how.nodes.reduce((sum, node, i) => sum + how.shares[i] * back(m + s * node) ** k, 0)));
  const found = moment(1);
  return { mean: found, sd: Math.sqrt(Math.max(moment(2) - found * found, 0)), lower: back(limits[0]), upper: back(limits[1]) };
}

// Where a distribution function crosses a level, by halving; Cantelli's inequality says how far to look.
function quantile(below, level, mean, sd, discrete) {
  const reach = 1.01 * Math.sqrt(1 / Math.min(level, 1 - level)) * sd + 1;
  let low = mean - reach, high = mean + reach;
  if (discrete) { low = Math.max(Math.floor(low), 0) - 1; high = Math.ceil(high); }
  for (let i = 0; i < 60 && !(discrete && high - low <= 1); i++) {
    const middle = discrete ? Math.floor(0.5 * (low + high)) : 0.5 * (low + high);
    if (below(middle) < level) low = middle; else high = middle;
  }
  return high;
}

function ofClasses(f) {
  const points = model.likelihood.points, n = model.likelihood.classes.length, total = new Array(n).fill(0);
  for (const point of points) {
    let at = f.map((own, k) => own.mean + Math.sqrt(own.variance) * point[k]);
    if (at.length === 1) at = [0, at[0]];
    const top = Math.max(...at), each = at.map((v) => Math.exp(v - top)), sum = each.reduce((s, v) => s + v, 0);
    each.forEach((v, k) => { total[k] += v / sum / points.length; });
  }
  return total;
}

// Standard Gaussian numbers, the same on every page: a small generator (mulberry32), and Box and Muller's rule.
function gaussians(n) {
  let seed = 1;
  const uniform = () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), seed | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (((t ^ (t >>> 14)) >>> 0) + 0.5) / 4294967296;
  };
  return Float64Array.from({ length: n }, () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform()));
}

const N_DRAWS = 1000;
let draws = null; // made once, when they are needed

// Lower and upper limits of the probability of every class: what f may be, given the rows of the fit.
function limitsOfClasses(f, place) {
  const level = model.levels[place], sd = f.map((own) => Math.sqrt(own.variance));
  if (f.length === 1) {
    const z = model.likelihood.normal[place], [low, high] = [-z, z].map((side) => 1 / (1 + Math.exp(-(f[0].mean + side * sd[0]))));
    return [[1 - high, low], [1 - low, high]];
  }
  draws = draws || gaussians(N_DRAWS * f.length);
  const found = f.map(() => new Float64Array(N_DRAWS));
  for (let d = 0; d < N_DRAWS; d++) {
    const at = f.map((own, k) => own.mean + sd[k] * draws[d * f.length + k]), top = Math.max(...at);
    const each = at.map((v) => Math.exp(v - top)), sum = each.reduce((s, v) => s + v, 0);
    each.forEach((v, k) => { found[k][d] = v / sum; });
  }
  found.forEach((own) => own.sort());
  return [0.5 - 0.5 * level, 0.5 + 0.5 * level].map((q) => found.map((own) => own[Math.round(q * (N_DRAWS - 1))]));
}
