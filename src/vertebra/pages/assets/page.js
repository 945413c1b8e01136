"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const $ = (selector, within) => Array.from((within || document).querySelectorAll(selector));
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // ---- numbers as text -------------------------------------------------------------------------------------------

  // As many digits as a step of `unit` needs; very large and very small numbers as powers of ten.
  function shown(value, unit) {
    if (value === null || !isFinite(value)) return value > 0 ? "∞" : value < 0 ? "−∞" : "—";
    const size = Math.max(Math.abs(value), unit || 0);
    if (size >= 1e7 || (size > 0 && size < 1e-4)) return value.toExponential(3).replace("-", "−");
    const places = unit > 0 ? Math.max(0, Math.min(6, 2 - Math.floor(Math.log10(unit)))) : 3;
    return value.toFixed(places).replace("-", "−");
  }

  function plain(value) {
    return String(Number(Number(value).toPrecision(6)));
  }

  function make(tag, attributes, children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "text") node.textContent = value;
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
    }
    (children || []).forEach((child) => node.append(child));
    return node;
  }

  // Plotly reads a little HTML in labels: a name stays a name.
  const escaped = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\$/g, "$\u200b").replace(/%{/g, "%\u200b{");
  const short = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

  // ---- charts ----------------------------------------------------------------------------------------------------

  const drawn = new Map(); // each chart on the page, and how to draw it again

  function layout(more) {
    const axis = { gridcolor: css("--line"), zerolinecolor: css("--soft"), linecolor: css("--line"), automargin: true, fixedrange: true };
    const base = {
      font: { color: css("--ink"), family: "system-ui, sans-serif", size: 13 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 56, r: 16, t: 12, b: 44 },
      showlegend: false,
      hovermode: "closest",
      hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink") } },
    };
    const result = Object.assign(base, more);
    for (const name of Object.keys(result)) {
      if (/^[xy]axis/.test(name)) result[name] = Object.assign({}, axis, result[name]);
    }
    return result;
  }

  // Text and numbers come first: Plotly is started once they stand, and then draws what was asked for.
  function plot(node, traces, more) {
    if (window.Plotly) Plotly.react(node, traces, layout(more), { displayModeBar: false, responsive: true });
  }

  function startPlotly() {
    const script = document.createElement("script");
    script.textContent = document.getElementById("plotly").textContent;
    document.head.append(script);
    redraw();
    root.dataset.ready = "true";
  }

  const on = (name) => $('[data-toggle="' + name + '"]').every((box) => box.checked);

  function curve(node, effect, unit) {
    const band = (upper, lower, fill, name) => [
      { x: effect.x, y: lower, mode: "lines", line: { width: 0 }, hoverinfo: "skip" },
      { x: effect.x, y: upper, mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: fill, hoverinfo: "skip", name: name },
    ];
    const traces = [];
    if (on("simultaneous")) traces.push(...band(effect.outer_upper, effect.outer_lower, css("--outer"), "whole curve"));
    if (on("pointwise")) traces.push(...band(effect.upper, effect.lower, css("--band"), "each point"));
    traces.push({
      x: effect.x, y: effect.mean, mode: "lines", line: { color: css("--mean"), width: 2.5 },
      customdata: effect.lower.map((low, i) => [low, effect.upper[i]]),
      hovertemplate: escaped(effect.names[0]) + " %{x}<br>%{y:.4g}, 95 % from %{customdata[0]:.4g} to %{customdata[1]:.4g}<extra></extra>",
    });
    framedNumber(node, effect, unit, traces, bins(effect));
  }

  const bins = (effect) => ({
    x: effect.bins.map((b) => b[0]).concat(effect.bins[effect.bins.length - 1][1]), y: effect.bins.map((b) => b[2]).concat(0),
    mode: "lines", line: { shape: "hv", width: 0.5, color: css("--soft") }, fill: "tozeroy", fillcolor: css("--bars"), yaxis: "y2",
    hovertemplate: "from %{x}: %{y:.1%} of the rows<extra></extra>",
  });

  // Of few values that lie apart, each has a tick.
  function ticks(effect) {
    const x = effect.x, apart = x.slice(1).map((v, i) => v - x[i]);
    const each = effect.kind === "points" && x.length <= 8 && Math.min(...apart) > 0.1 * (x[x.length - 1] - x[0]);
    return each ? { tickmode: "array", tickvals: x, ticktext: x.map(String) } : {};
  }

  // What is drawn of a number, with the missing values at the right, and beneath how the data are spread.
  function framedNumber(node, effect, unit, traces, spread) {
    if (effect.missing) {
      traces.push({
        x: ["missing"], y: [effect.missing.mean], xaxis: "x3", mode: "markers", marker: { color: css("--minus"), size: 9, symbol: "diamond" },
        error_y: { type: "data", symmetric: false, array: [effect.missing.upper - effect.missing.mean], arrayminus: [effect.missing.mean - effect.missing.lower], color: css("--minus") },
        hovertemplate: "missing: %{y:.4g}<extra></extra>",
      });
    }
    if (on("data")) traces.push(spread);
    const right = effect.missing ? 0.86 : 1;
    plot(node, traces, {
      xaxis: { ...ticks(effect), title: { text: escaped(short(effect.names[0], 40)) }, domain: [0, right], anchor: on("data") ? "y2" : "y", type: effect.log ? "log" : typeof effect.x[0] === "string" ? "date" : "linear" },
      xaxis3: { domain: [0.9, 1], anchor: on("data") ? "y2" : "y", showgrid: false },
      yaxis: { title: { text: escaped(unit) }, domain: on("data") ? [0.2, 1] : [0, 1], zeroline: true },
      yaxis2: { domain: [0, 0.14], showticklabels: false, showgrid: false, zeroline: false, rangemode: "tozero" },
    });
  }

  // A number of few values has a point and a bar at each; the faint line joins them for the eye alone.
  function points(node, effect, unit) {
    const bars = (upper, lower, colour, thickness) => ({
      type: "data", symmetric: false, width: 0, thickness: thickness, color: colour,
      array: upper.map((v, i) => v - effect.mean[i]), arrayminus: lower.map((v, i) => effect.mean[i] - v),
    });
    const traces = [];
    if (on("simultaneous")) {
      traces.push({ x: effect.x, y: effect.mean, mode: "markers", marker: { size: 1, color: css("--soft") }, error_y: bars(effect.outer_upper, effect.outer_lower, css("--soft"), 1), hoverinfo: "skip" });
    }
    traces.push({
      x: effect.x, y: effect.mean, mode: "lines+markers", line: { color: css("--line"), width: 1 }, marker: { color: css("--mean"), size: 8 },
      error_y: on("pointwise") ? bars(effect.upper, effect.lower, css("--mean"), 2.5) : undefined,
      customdata: effect.lower.map((low, i) => [low, effect.upper[i]]),
      hovertemplate: escaped(effect.names[0]) + " %{x}<br>%{y:.4g}, 95 % from %{customdata[0]:.4g} to %{customdata[1]:.4g}<extra></extra>",
    });
    const spread = effect.shares && {
      type: "bar", x: effect.x, y: effect.shares, marker: { color: css("--bars") }, yaxis: "y2",
      hovertemplate: "%{x}: %{y:.1%} of the rows<extra></extra>",
    };
    framedNumber(node, effect, unit, traces, spread || bins(effect));
  }

  function levels(node, effect, unit) {
    const labels = effect.labels.map((label, i) => escaped(short(label, 28)) + "\u200b".repeat(i));
    const bars = (upper, lower) => ({
      type: "data", symmetric: false, thickness: 1.5, color: css("--mean"),
      array: upper.map((v, i) => v - effect.mean[i]), arrayminus: lower.map((v, i) => effect.mean[i] - v),
    });
    const traces = [];
    if (on("simultaneous")) {
      const outer = bars(effect.outer_upper, effect.outer_lower);
      outer.color = css("--soft");
      outer.width = 0;
      traces.push({ x: effect.mean, y: labels, mode: "markers", marker: { size: 1, color: css("--soft") }, error_x: outer, hoverinfo: "skip" });
    }
    traces.push({
      x: effect.mean, y: labels, mode: "markers", marker: { color: css("--mean"), size: 9 },
      error_x: on("pointwise") ? bars(effect.upper, effect.lower) : undefined,
      customdata: effect.labels.map((label, i) => [escaped(label), effect.lower[i], effect.upper[i], effect.shares[i]]),
      hovertemplate: "%{customdata[0]}: %{x:.4g}<br>95 % from %{customdata[1]:.4g} to %{customdata[2]:.4g}<br>%{customdata[3]:.1%} of the rows<extra></extra>",
    });
    node.style.height = Math.max(12, 1.5 * labels.length + 5) + "rem";
    plot(node, traces, { xaxis: { title: { text: escaped(unit) }, zeroline: true }, yaxis: { autorange: "reversed", type: "category" } });
  }

  const DIVERGING = [[0, "#2166ac"], [0.25, "#92c5de"], [0.5, "#f7f7f7"], [0.75, "#f4a582"], [1, "#b2182b"]];

  function map(node, effect, unit) {
    const limit = Math.max(1e-12, ...effect.mean.flat().map(Math.abs));
    const names = effect.names.map((name) => escaped(short(name, 40)));
    const heat = (z, more) => Object.assign({
      type: "heatmap", x: effect.x.map(escapedLevel), y: effect.y.map(escapedLevel), z: z,
      colorbar: { thickness: 12, len: 0.9, outlinewidth: 0 },
      hovertemplate: names[0] + " %{x}<br>" + names[1] + " %{y}<br>%{z:.4g}<extra></extra>",
    }, more);
    const sure = effect.mean.map((row, j) => row.map((v, i) => (effect.zero[j][i] ? null : v)));
    const wide = node.clientWidth > 560;
    const first = heat(on("sure") ? sure : effect.mean, { colorscale: DIVERGING, zmin: -limit, zmax: limit });
    const second = heat(effect.sd, { colorscale: "Viridis", zmin: 0, xaxis: "x2", yaxis: "y2" });
    first.colorbar.x = wide ? 0.43 : 1;
    if (!wide) Object.assign(first.colorbar, { y: 0.8, len: 0.42 }), Object.assign(second.colorbar, { y: 0.2, len: 0.42 });
    node.style.height = wide ? "22rem" : "36rem";
    const titles = [["mean, in " + unit, wide ? 0.21 : 0.4, 1], ["standard deviation", wide ? 0.79 : 0.4, wide ? 1 : 0.4]];
    plot(node, [first, second], {
      margin: { l: 60, r: 20, t: 30, b: 48 },
      xaxis: { title: { text: names[0] }, domain: wide ? [0, 0.42] : [0, 1], anchor: "y", type: kindOf(effect.x) },
      yaxis: { title: { text: names[1], standoff: 12 }, domain: wide ? [0, 1] : [0.6, 1], anchor: "x", type: kindOf(effect.y) },
      xaxis2: { title: { text: names[0] }, domain: wide ? [0.58, 1] : [0, 1], anchor: "y2", type: kindOf(effect.x) },
      yaxis2: { domain: wide ? [0, 1] : [0, 0.4], anchor: "x2", type: kindOf(effect.y), showticklabels: !wide || typeof effect.y[0] === "number" },
      annotations: titles.map(([text, x, y]) => ({ text: escaped(text), x: x, y: y, xref: "paper", yref: "paper", yanchor: "bottom", showarrow: false })),
    });
  }

  // Levels that begin alike stay apart by spaces of no width; and "10" is a name, not a number.
  const escapedLevel = (value, i) => (typeof value === "string" ? escaped(short(value, 24)) + "\u200b".repeat(i) : value);
  const kindOf = (values) => (typeof values[0] === "string" ? "category" : "-");

  function slices(node, effect, unit) {
    const limit = Math.max(1e-12, ...effect.slices.map((s) => s.mean.flat().map(Math.abs)).flat());
    const n = effect.slices.length, columns = node.clientWidth > 560 ? Math.min(4, n) : 2, rows = Math.ceil(n / columns);
    const more = { margin: { l: 50, r: 20, t: 40, b: 44 }, annotations: [] };
    const traces = effect.slices.map((slice, k) => {
      const own = k ? String(k + 1) : "", c = k % columns, r = Math.floor(k / columns);
      const left = c / columns, top = 1 - r / rows;
      const zero = slice.mean.map((row, j) => row.map((v, i) => (on("sure") && slice.zero[j][i] ? null : v)));
      more["xaxis" + own] = { domain: [left + 0.02, left + 0.85 / columns], anchor: "y" + own, type: kindOf(effect.x), showticklabels: r === rows - 1 };
      more["yaxis" + own] = { domain: [top - 0.78 / rows, top], anchor: "x" + own, type: kindOf(effect.y), showticklabels: c === 0 };
      const text = escaped(short(effect.names[2], 16)) + " = " + escaped(typeof slice.at === "number" ? Number(slice.at.toPrecision(3)) : slice.at);
      more.annotations.push({ text: text, x: left + 0.42 / columns, y: top, xref: "paper", yref: "paper", yanchor: "bottom", showarrow: false });
      return {
        type: "heatmap", x: effect.x.map(escapedLevel), y: effect.y.map(escapedLevel), z: zero, zmin: -limit, zmax: limit,
        colorscale: DIVERGING, showscale: k === 0, colorbar: { thickness: 12, title: { text: escaped(unit) } },
        xaxis: "x" + own, yaxis: "y" + own, hovertemplate: "%{x}, %{y}: %{z:.4g}<extra></extra>",
      };
    });
    node.style.height = 12 * rows + 4 + "rem";
    plot(node, traces, more);
  }

  function calibration(node) {
    const c = data.calibration;
    const traces = [
      { x: [0, 1], y: [0, 1], mode: "lines", line: { dash: "dot", color: css("--soft") }, hoverinfo: "skip" },
      {
        x: c.expected, y: c.observed, mode: "markers+lines", marker: { color: css("--mean"), size: 8 }, line: { color: css("--mean"), width: 1 },
        error_y: { type: "data", symmetric: false, array: c.upper.map((v, i) => v - c.observed[i]), arrayminus: c.lower.map((v, i) => c.observed[i] - v), color: css("--mean") },
        hovertemplate: "said %{x:.3f}, seen %{y:.3f}<extra></extra>",
      },
    ];
    plot(node, traces, {
      xaxis: { title: { text: data.is_classifier ? "probability said" : "level said" }, range: [-0.03, 1.03] },
      yaxis: { title: { text: data.is_classifier ? "share seen" : "share inside" }, range: [-0.03, 1.03] },
    });
  }

  function strengths(node) {
    const rows = data.outputs[Number(node.dataset.output)].strengths.slice().reverse();
    const labels = rows.map((row, i) => escaped(short(row.label, 36)) + "\u200b".repeat(i));
    const symbols = ["circle", "square", "triangle-up", "diamond"];
    node.style.height = Math.max(10, 1.45 * rows.length + 5) + "rem";
    plot(node, [{
      x: rows.map((r) => r.strength), y: labels, mode: "markers",
      marker: { size: 9, color: rows.map((r) => (r.probability < 0.5 ? css("--soft") : css("--mean"))), symbol: rows.map((r) => symbols[Math.min(r.order, 4) - 1]) },
      error_x: { type: "data", symmetric: false, array: rows.map((r) => r.upper - r.strength), arrayminus: rows.map((r) => r.strength - r.lower), color: css("--mean"), thickness: 1.5 },
      customdata: rows.map((r) => [escaped(r.label), r.lower, r.upper, r.probability, r.sobol]),
      hovertemplate: "%{customdata[0]}<br>strength %{x:.4g}, 95 % from %{customdata[1]:.4g} to %{customdata[2]:.4g}<br>%{customdata[4]:.1%} of the variance<br>real with probability %{customdata[3]:.3f}<extra></extra>",
    }], { xaxis: { title: { text: "strength, in " + escaped(data.unit) }, rangemode: "tozero" }, yaxis: { type: "category" } });
  }

  function draw(node) {
    const kind = node.dataset.chart;
    if (kind === "calibration") return calibration(node);
    if (kind === "strengths") return strengths(node);
    const effect = data.outputs[Number(node.dataset.output)].effects[Number(node.dataset.term)];
    return { curve, points, levels, map, slices }[effect.kind](node, effect, data.unit);
  }

  const watch = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (entry.isIntersecting && !drawn.has(entry.target)) {
      drawn.set(entry.target, () => draw(entry.target));
      draw(entry.target);
    }
  }), { rootMargin: "300px" });
  $("[data-chart]").forEach((node) => watch.observe(node));
  const redraw = () => drawn.forEach((again) => again());
  $("[data-toggle]").forEach((box) => box.addEventListener("change", redraw));

  // ---- the model in the browser: a sum of products of tabulated functions --------------------------------------------

  function unpack(text, Kind) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return new Kind(bytes.buffer);
  }

  const model = data.model;
  const inputs = model.inputs.map((input) => (input.acts
    ? Object.assign({}, input, { table: unpack(input.table, Float32Array), special: unpack(input.special, Float32Array) })
    : input));
  const outputs = model.outputs.map((output) => ({
    mean: unpack(output.mean, Float64Array), root: unpack(output.root, Int16Array), scale: output.scale, rest: output.rest,
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
    const width = input.table.length / (input.levels ? input.levels.length : input.nodes.length);
    const result = new Float64Array(k);
    if (input.levels) {
      for (let j = 0; j < width; j++) result[j] = input.table[value * width + j];
      return result;
    }
    const u = standard(input, value), nodes = input.nodes;
    let low = 0, high = nodes.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (nodes[middle] <= u) low = middle; else high = middle;
    }
    const share = high > low ? Math.min(1, Math.max(0, (u - nodes[low]) / (nodes[high] - nodes[low]))) : 0;
    for (let j = 0; j < width; j++) result[j] = (1 - share) * input.table[low * width + j] + share * input.table[high * width + j];
    return result;
  }

  // f of every latent function with its variance, and what each term adds.
  function latent(values) {
    const own = inputs.map((input, i) => (input.acts ? functions(input, values[i]) : null));
    return outputs.map((output) => {
      const r = output.scale.length, total = new Float64Array(r), terms = [];
      for (let c = 0; c < r; c++) total[c] = output.root[c] * output.scale[c];
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
            for (let c = 0; c < r; c++) part[c] += product * output.root[place * r + c];
          }
          place += 1;
        }
        let square = 0;
        for (let c = 0; c < r; c++) {
          part[c] *= output.scale[c];
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

  // y of one target at the current row: mean, sd, limits.
  function ofNumber(f, target, place) {
    const how = model.likelihood, per = how.per_target, first = f[target * per];
    const unit = how.y_scale[target], origin = how.y_mean[target], points = how.points;
    const draw = (k) => points.map((p) => f[target * per + k].mean + Math.sqrt(f[target * per + k].variance) * p[target * per + k]);
    let mean = first.mean, noise = 0, below = null, epistemic = first.variance;
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
    } else {
      const rates = draw(0).map(Math.exp);
      mean = Math.exp(first.mean + 0.5 * first.variance);
      noise = average(rates);
      epistemic = average(rates.map((v) => v * v)) - noise * noise;
      below = (y) => average(rates.map((rate) => poisson(y, rate)));
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
    return { mean: out(mean), sd: unit * sd, lower: out(limits[0]), upper: out(limits[1]) };
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

  // ---- the panel -------------------------------------------------------------------------------------------------

  const panel = document.getElementById("what-if");
  if (panel) build();

  function build() {
    const state = inputs.map((input) => input.middle);
    const setters = Object.create(null), defaults = Object.create(null);
    let asked = false;
    const controls = document.getElementById("controls");
    const sources = [...new Set(inputs.filter((input) => input.acts).map((input) => input.source))];
    sources.forEach((source, s) => {
      const places = inputs.map((input, i) => i).filter((i) => inputs[i].source === source);
      const isDate = inputs[places[0]].part;
      const id = "control-" + s, input = inputs[places[0]], i = places[0];
      const box = make("div", { class: "control" });
      const row = make("div", { class: "row" });
      box.append(make("label", { class: "name", for: id, text: source }), row);
      let gap = null;
      setters[source] = isDate ? date(row, id, places) : input.levels ? choice(row, id, i) : number(row, id, i);
      defaults[source] = isDate ? row.firstChild.value : input.levels ? input.levels[input.middle] : input.middle;
      if (places.some((j) => inputs[j].has_missing) && (isDate || !input.levels)) {
        gap = make("input", { type: "checkbox", id: id + "-gap" });
        row.append(make("label", { class: "gap", for: id + "-gap" }, [gap, "missing"]));
        const set = setters[source], before = places.map((j) => state[j]);
        gap.addEventListener("change", () => {
          if (gap.checked) places.forEach((j, k) => { before[k] = state[j]; state[j] = MISSING; });
          else places.forEach((j, k) => { state[j] = before[k]; });
          $("input:not([type=checkbox])", row).forEach((node) => { node.disabled = gap.checked; });
          update();
        });
        setters[source] = (value) => {
          const wanted = value === null;
          if (gap.checked !== wanted) { gap.checked = wanted; gap.dispatchEvent(new Event("change")); }
          if (!wanted) set(value);
        };
      }
      controls.append(box);
    });
    const idle = [...new Set(inputs.filter((input) => !input.acts).map((input) => input.source))].filter((name) => !sources.includes(name));
    if (idle.length) {
      const names = short(idle.join(", "), 400);
      controls.append(make("p", { class: "soft", text: "Not used by the model: " + names + "." }));
    }
    if (!sources.length) controls.append(make("p", { text: "No input was found to act: every prediction is the same." }));
    const level = document.getElementById("level"), output = document.getElementById("what-if-output");
    model.levels.forEach((v, k) => level.append(make("option", { value: k, text: Math.round(100 * v) + " %", selected: v === 0.95 })));
    level.addEventListener("change", update);
    if (output) output.addEventListener("change", update);
    document.getElementById("reset").addEventListener("click", () => sources.forEach((name) => setters[name](defaults[name])));

    function update() {
      if (asked) return;
      asked = true;
      requestAnimationFrame(() => { asked = false; show(); });
    }

    function number(row, id, i) {
      if (inputs[i].values) return fewValues(row, id, i);
      const input = inputs[i], steps = 400, low = standard(input, input.low), high = standard(input, input.high);
      const slider = make("input", { type: "range", id: id, min: 0, max: steps, step: 1 });
      const box = make("input", { type: "number", step: "any", min: input.low, max: input.high, "aria-label": input.name + ", as a number" });
      const place = (value) => Math.round((steps * (standard(input, value) - low)) / (high - low || 1));
      const write = (value) => {
        state[i] = Math.min(input.high, Math.max(input.low, value));
        slider.value = place(state[i]);
        slider.setAttribute("aria-valuetext", plain(state[i]));
      };
      slider.addEventListener("input", () => {
        const t = Number(slider.value) / steps;
        const value = t <= 0 ? input.low : t >= 1 ? input.high : original(input, low + (high - low) * t);
        state[i] = value;
        slider.setAttribute("aria-valuetext", plain(value));
        box.value = plain(value);
        update();
      });
      box.addEventListener("input", () => { if (box.value !== "" && isFinite(Number(box.value))) { write(Number(box.value)); update(); } });
      box.addEventListener("change", () => { box.value = plain(state[i]); });
      write(input.middle);
      box.value = plain(state[i]);
      row.append(slider, box);
      return (value) => { write(Number(value)); box.value = String(value); update(); };
    }

    // The slider goes from value to value, and what is typed becomes the nearest of them.
    function fewValues(row, id, i) {
      const input = inputs[i], values = input.values;
      const slider = make("input", { type: "range", id: id, min: 0, max: values.length - 1, step: 1 });
      const box = make("input", { type: "number", step: "any", min: values[0], max: values[values.length - 1], "aria-label": input.name + ", as a number" });
      const nearest = (x) => values.reduce((best, v, k) => (Math.abs(v - x) < Math.abs(values[best] - x) ? k : best), 0);
      const write = (k) => {
        state[i] = values[k];
        slider.value = k;
        slider.setAttribute("aria-valuetext", String(values[k]));
      };
      const show = () => { box.value = String(state[i]); };
      slider.addEventListener("input", () => { write(Number(slider.value)); show(); update(); });
      box.addEventListener("input", () => { if (box.value !== "" && isFinite(Number(box.value))) { write(nearest(Number(box.value))); update(); } });
      box.addEventListener("change", show);
      write(nearest(input.middle));
      show();
      row.append(slider, box);
      return (value) => { write(nearest(Number(value))); show(); update(); };
    }

    function choice(row, id, i) {
      const input = inputs[i], select = make("select", { id: id });
      input.levels.forEach((label, code) => select.append(make("option", { value: code, text: label })));
      if (input.has_missing) select.append(make("option", { value: "missing", text: "(missing)" }));
      select.append(make("option", { value: "unseen", text: "(a level never seen)" }));
      select.value = input.middle;
      select.addEventListener("change", () => {
        state[i] = select.value === "missing" ? MISSING : select.value === "unseen" ? UNSEEN : Number(select.value);
        update();
      });
      row.append(select);
      if (input.n_levels > input.levels.length) row.append(make("span", { class: "gap", text: "the " + input.levels.length + " most frequent of " + input.n_levels + " levels" }));
      return (value) => {
        const code = input.levels.indexOf(String(value));
        select.value = value === null ? "missing" : code < 0 ? "unseen" : code;
        select.dispatchEvent(new Event("change"));
      };
    }

    function date(row, id, places) {
      const box = make("input", { type: "datetime-local", id: id });
      const write = () => {
        if (!box.value) return;
        const when = new Date(box.value + "Z");
        places.forEach((j) => {
          const part = inputs[j].part;
          state[j] = part === "time" ? when.getTime() / 864e5 : part === "month" ? when.getUTCMonth() : part === "weekday" ? (when.getUTCDay() + 6) % 7 : when.getUTCHours();
        });
        update();
      };
      const time = places.find((j) => inputs[j].part === "time");
      const days = time === undefined ? 10957 : inputs[time].middle;
      box.value = new Date(days * 864e5).toISOString().slice(0, 16);
      box.addEventListener("input", write);
      row.append(box);
      write();
      return (value) => { box.value = value; box.dispatchEvent(new Event("input")); };
    }

    function show() {
      const f = latent(state), place = Number(document.getElementById("level").value);
      const says = document.getElementById("says"), range = document.getElementById("range");
      const chosen = output ? Number(output.value) : 0;
      let own = f[0], unit = 1, origin = 0;
      if (data.is_classifier) {
        const p = ofClasses(f), best = p.indexOf(Math.max(...p));
        says.textContent = model.likelihood.classes[best] + ": " + (100 * p[best]).toFixed(1) + " %";
        says.dataset.value = JSON.stringify(p);
        range.textContent = p.map((v, k) => model.likelihood.classes[k] + " " + (100 * v).toFixed(1) + " %").join(" · ");
        own = f[f.length === 1 ? 0 : chosen];
      } else {
        const y = ofNumber(f, chosen, place);
        unit = model.likelihood.y_scale[chosen];
        origin = model.likelihood.y_mean[chosen];
        own = f[chosen * model.likelihood.per_target];
        says.textContent = shown(y.mean, y.sd);
        says.dataset.value = JSON.stringify(y);
        range.textContent = "from " + shown(y.lower, y.sd) + " to " + shown(y.upper, y.sd) + " with " + Math.round(100 * model.levels[place]) + " %" + (model.conformal ? ", calibrated" : "");
      }
      waterfall(document.getElementById("waterfall"), own, unit, origin);
    }

    // What each term adds, largest first, from the constant to f.
    function waterfall(node, own, unit, origin) {
      const most = 12;
      const terms = own.terms.map((t) => ({
        label: t.inputs.map((i) => inputs[i].name).join(" × "), mean: unit * t.mean, sd: unit * t.sd,
      })).sort((a, b) => Math.abs(b.mean) - Math.abs(a.mean));
      const rows = terms.slice(0, most), rest = terms.slice(most).reduce((s, t) => s + t.mean, 0);
      if (terms.length > most) rows.push({ label: terms.length - most + " other terms", mean: rest, sd: 0 });
      const start = origin + unit * own.constant.mean;
      let at = start;
      const bases = rows.map((row) => { const base = at; at += row.mean; return base; });
      const names = rows.map((row, k) => escaped(short(row.label, node.clientWidth > 480 ? 32 : 16)) + "\u200b".repeat(k));
      const sum = "From the average, " + shown(start, Math.abs(unit) / 100) + ", to " + shown(at, Math.abs(unit) / 100) + ".";
      document.getElementById("sum").textContent = sum;
      node.dataset.terms = JSON.stringify(own.terms.map((t) => ({ inputs: t.inputs, mean: unit * t.mean, sd: unit * t.sd })));
      node.style.height = Math.max(9, 1.7 * rows.length + 6) + "rem";
      plot(node, [{
        type: "bar", orientation: "h", base: bases, x: rows.map((row) => row.mean), y: names,
        marker: { color: rows.map((row) => (row.mean < 0 ? css("--minus") : css("--plus"))), pattern: { shape: rows.map((row) => (row.mean < 0 ? "/" : "")), fgcolor: css("--paper"), solidity: 0.25 } },
        error_x: { type: "data", array: rows.map((row) => 1.96 * row.sd), color: css("--soft"), thickness: 1.5 },
        text: rows.map((row) => (row.mean < 0 ? "" : "+") + shown(row.mean, Math.max(row.sd, 1e-9))), textposition: "none",
        customdata: rows.map((row) => [escaped(row.label), row.mean, row.mean - 1.96 * row.sd, row.mean + 1.96 * row.sd]),
        hovertemplate: "%{customdata[0]}: %{customdata[1]:+.4g}<br>95 % from %{customdata[2]:.4g} to %{customdata[3]:.4g}<extra></extra>",
      }], {
        xaxis: { title: { text: escaped(short(data.unit, 40)) }, zeroline: false, nticks: 6, tickangle: 0 },
        yaxis: { autorange: "reversed", type: "category" },
        shapes: [start, at].map((x) => ({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color: css("--soft"), dash: "dot", width: 1 } })),
      });
      drawn.set(node, () => waterfall(node, own, unit, origin));
    }
    // For other programs: set inputs by name, read the answer of the next frame.
    window.vertebra = {
      set(row) { Object.entries(row).forEach(([name, value]) => { if (setters[name]) setters[name](value); }); show(); },
      says() { return JSON.parse(document.getElementById("says").dataset.value); },
      terms() { return JSON.parse(document.getElementById("waterfall").dataset.terms); },
    };
    show();
  }

  // ---- the look --------------------------------------------------------------------------------------------------

  $("select.output").forEach((select) => select.addEventListener("change", () => {
    $(".output-part").forEach((part) => { part.hidden = part.dataset.output !== select.value; });
    $("select.output").forEach((other) => { other.value = select.value; });
  }));
  function theme(name) {
    root.dataset.theme = name;
    redraw();
  }
  document.getElementById("theme").addEventListener("click", () => theme(root.dataset.theme === "dark" ? "light" : "dark"));
  if (window.matchMedia) matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => theme(event.matches ? "dark" : "light"));
  root.dataset.panel = "true";
  requestAnimationFrame(() => setTimeout(startPlotly, 0));
})();
