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

async function startPlotly() {
  const script = document.createElement("script");
  script.textContent = await textIn(document.getElementById("plotly").textContent);
  document.head.append(script);
  redraw();
  root.dataset.ready = "true";
}

const on = (name) => $('[data-toggle="' + name + '"]').every((box) => box.checked);

// The places of a number's values between two limits, and one `more` at either side, so that lines reach the edge.
function between(values, span, more = 1) {
  const all = values.map((_, i) => i);
  if (!span || on("all")) return all;
  const inside = all.filter((i) => values[i] >= span[0] && values[i] <= span[1]);
  if (!inside.length) return all;
  return all.filter((i) => i >= inside[0] - more && i <= inside[inside.length - 1] + more);
}

const at = (values, places) => places.map((i) => values[i]);

// An axis of numbers runs over most of the rows, unless all values are asked for.
function axisOf(kind, span, more) {
  const type = { levels: "category", date: "date", log: "log" }[kind] || "linear";
  const range = span && !on("all") ? { range: kind === "log" ? span.map(Math.log10) : span } : {};
  return { type, ...range, ...more };
}

function curve(node, whole, unit) {
  const kept = between(whole.x, whole.span), effect = { ...whole };
  for (const name of ["x", "mean", "lower", "upper", "outer_lower", "outer_upper"]) effect[name] = at(whole[name], kept);
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

// Beside a low chart a long title stands in two lines.
function stacked(text) {
  if (text.length <= 18) return escaped(text);
  const cut = text.lastIndexOf(" ", Math.max(text.indexOf(" "), 18));
  return escaped(short(text.slice(0, cut), 20)) + "<br>" + escaped(short(text.slice(cut + 1), 20));
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
    xaxis: axisOf(effect.log ? "log" : typeof effect.x[0] === "string" ? "date" : "number", effect.span, {
      ...ticks(effect), zeroline: false, title: { text: escaped(short(effect.names[0], 40)) }, domain: [0, right], anchor: on("data") ? "y2" : "y",
    }),
    xaxis3: { domain: [0.9, 1], anchor: on("data") ? "y2" : "y", showgrid: false },
    yaxis: { title: { text: stacked(unit) }, domain: on("data") ? [0.2, 1] : [0, 1], zeroline: true },
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
  // many levels with short names, as hours have, stand side by side: the chart is as low as others
  const upright = labels.length > 12 && effect.labels.every((label) => label.length <= 4);
  node.style.height = upright ? "" : Math.max(12, 1.5 * labels.length + 5) + "rem";
  const value = { title: { text: upright ? stacked(unit) : escaped(unit) }, zeroline: true };
  if (upright) plot(node, traces.map(turned), { xaxis: { type: "category", tickangle: 0, nticks: 9, title: { text: escaped(short(effect.names[0], 40)) } }, yaxis: value });
  else plot(node, traces, { xaxis: value, yaxis: { autorange: "reversed", type: "category" } });
}

const turned = ({ x, y, error_x, hovertemplate, ...trace }) => ({
  ...trace, x: y, y: x, error_y: error_x, hovertemplate: hovertemplate && hovertemplate.replace("%{x", "%{y"),
});

const DIVERGING = [[0, "#2166ac"], [0.25, "#92c5de"], [0.5, "#f7f7f7"], [0.75, "#f4a582"], [1, "#b2182b"]];

// The part of a map that is shown, by the places of its values along x and y.
function part(effect) {
  const places = (more) => [between(effect.x, effect.spans[0], more), between(effect.y, effect.spans[1], more)];
  const of = ([x, y]) => (grid) => at(grid, y).map((row) => at(row, x)), [x, y] = places(1);
  // colours are for what lies inside: cells at the edge, which are seen in part, may be far larger
  return { x: at(effect.x, x).map(escapedLevel), y: at(effect.y, y).map(escapedLevel), of: of([x, y]), inside: of(places(0)) };
}

const largest = (grids) => grids.flat(Infinity).reduce((most, v) => Math.max(most, Math.abs(v || 0)), 1e-12);

function map(node, effect, unit) {
  const shown = part(effect), empty = shown.of(effect.empty), zero = shown.of(effect.zero);
  // where there are no rows nothing is drawn, unless data are not to be shown
  const where = (z, none) => (on("data") ? z.map((row, j) => row.map((v, i) => (none[j][i] === "1" ? null : v))) : z);
  const there = (z) => where(z, empty);
  const mean = there(shown.of(effect.mean)), limit = largest(where(shown.inside(effect.mean), shown.inside(effect.empty)));
  const names = effect.names.map((name) => escaped(short(name, 40)));
  const heat = (z, more) => Object.assign({
    type: "heatmap", x: shown.x, y: shown.y, z: z,
    colorbar: { thickness: 12, len: 0.9, outlinewidth: 0 },
    hovertemplate: names[0] + " %{x}<br>" + names[1] + " %{y}<br>%{z:.4g}<extra></extra>",
  }, more);
  const wide = node.clientWidth > 560;
  const first = heat(on("sure") ? mean.map((row, j) => row.map((v, i) => (zero[j][i] === "1" ? null : v))) : mean, { colorscale: DIVERGING, zmin: -limit, zmax: limit });
  const second = heat(there(shown.of(effect.sd)), { colorscale: "Viridis", zmin: 0, xaxis: "x2", yaxis: "y2" });
  first.colorbar.x = wide ? 0.43 : 1;
  if (!wide) Object.assign(first.colorbar, { y: 0.8, len: 0.42 }), Object.assign(second.colorbar, { y: 0.2, len: 0.42 });
  node.style.height = wide ? "22rem" : "36rem";
  const titles = [["mean, in " + unit, wide ? 0.21 : 0.5, 1], ["standard deviation", wide ? 0.79 : 0.5, wide ? 1 : 0.4]];
  const x = (more) => axisOf(effect.kinds[0], effect.spans[0], { title: { text: names[0] }, domain: [0, 1], nticks: 6, ...more });
  const y = (more) => axisOf(effect.kinds[1], effect.spans[1], more);
  plot(node, [first, second], {
    margin: { l: 60, r: 20, t: 30, b: 48 },
    xaxis: x(wide ? { domain: [0, 0.42], anchor: "y" } : { anchor: "y" }),
    yaxis: y({ title: { text: names[1], standoff: 12 }, domain: wide ? [0, 1] : [0.6, 1], anchor: "x" }),
    xaxis2: x(wide ? { domain: [0.58, 1], anchor: "y2" } : { anchor: "y2" }),
    yaxis2: y({ domain: wide ? [0, 1] : [0, 0.4], anchor: "x2", showticklabels: !wide || effect.kinds[1] !== "levels" }),
    annotations: titles.map(([text, x, y]) => ({ text: escaped(text), x: x, y: y, xref: "paper", yref: "paper", xanchor: "center", yanchor: "bottom", showarrow: false })),
  });
}

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const MARKS = ["circle", "square", "diamond", "triangle-up", "cross", "x"];
const faded = (colour, share) => colour + Math.round(255 * share).toString(16).padStart(2, "0");

// Two inputs, one of few values: a line with its band for each of these, or beside levels points with bars.
function lines(node, effect, unit) {
  const kept = between(effect.x, effect.spans[0]), n = effect.lines.length, isLevels = effect.kinds[0] === "levels";
  const by = escaped(short(effect.names[1], 24)), labels = effect.x.map(escapedLevel);
  const traces = effect.lines.flatMap((line, k) => {
    const colour = css("--line-" + (k + 1)), name = by + " = " + escaped(short(line.at, 24));
    // where there are no rows nothing is drawn, unless data are not to be shown
    const places = kept.filter((i) => !(on("data") && line.empty[i] === "1"));
    const whole = kept.map((i) => (on("data") && line.empty[i] === "1" ? null : line.mean[i]));
    const x = isLevels ? places.map((i) => i + 0.14 * (k - (n - 1) / 2)) : at(effect.x, kept);
    const lower = at(line.lower, isLevels ? places : kept), upper = at(line.upper, isLevels ? places : kept);
    const mean = isLevels ? at(line.mean, places) : whole;
    const own = {
      x: x, y: mean, name: name, legendgroup: name, mode: isLevels ? "markers" : effect.is_discrete ? "lines+markers" : "lines",
      line: { color: colour, width: 2.5, dash: DASHES[k] }, marker: { color: colour, size: 7, symbol: MARKS[k] },
      customdata: mean.map((_, i) => [lower[i], upper[i], isLevels ? labels[places[i]] : ""]),
      hovertemplate: (isLevels ? "%{customdata[2]}" : escaped(effect.names[0]) + " %{x}") + ", " + name + "<br>%{y:.4g}, 95 % from %{customdata[0]:.4g} to %{customdata[1]:.4g}<extra></extra>",
    };
    if (!on("pointwise")) return [own];
    if (isLevels) {
      const bars = { type: "data", symmetric: false, thickness: 1.5, width: 0, color: colour, array: upper.map((v, i) => v - mean[i]), arrayminus: lower.map((v, i) => mean[i] - v) };
      return [{ ...own, error_y: bars }];
    }
    const stretches = runs(whole.map((v) => v !== null)).map(([from, to]) => ({
      x: [...x.slice(from, to), ...x.slice(from, to).reverse()], y: [...lower.slice(from, to), ...upper.slice(from, to).reverse()],
      mode: "lines", line: { width: 0 }, fill: "toself", fillcolor: faded(colour, 0.2), hoverinfo: "skip", showlegend: false, legendgroup: name,
    }));
    return [...stretches, own];
  });
  const named = { tickmode: "array", tickvals: labels.map((_, i) => i), ticktext: labels, range: [-0.5, labels.length - 0.5], zeroline: false };
  const few = ticks({ kind: effect.is_discrete ? "points" : "", x: effect.x });
  node.style.height = "20rem";
  plot(node, traces, {
    showlegend: true, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    xaxis: axisOf(isLevels ? "number" : effect.kinds[0], effect.spans[0], { title: { text: escaped(short(effect.names[0], 40)) }, zeroline: false, ...(isLevels ? named : few) }),
    yaxis: { title: { text: escaped(unit) }, zeroline: true },
  });
}

// The stretches of a list that are true: from, and up to.
function runs(flags) {
  const found = [];
  flags.forEach((flag, i) => {
    if (flag && !flags[i - 1]) found.push([i, i]);
    if (flag) found[found.length - 1][1] = i + 1;
  });
  return found;
}

// Levels that begin alike stay apart by spaces of no width; and "10" is a name, not a number.
const escapedLevel = (value, i) => (typeof value === "string" && !/^\d{4}-\d\d-\d\d( \d\d:\d\d)?$/.test(value) ? escaped(short(value, 24)) + "\u200b".repeat(i) : value);

function slices(node, effect, unit) {
  const shown = part(effect), limit = largest(effect.slices.map((slice) => shown.inside(slice.mean)));
  const n = effect.slices.length, columns = node.clientWidth > 560 ? Math.min(4, n) : Math.min(2, n), rows = Math.ceil(n / columns);
  const names = effect.names.map((name) => escaped(short(name, 24)));
  const more = { margin: { l: 60, r: 20, t: 40, b: 52 }, annotations: [] };
  const traces = effect.slices.map((slice, k) => {
    const own = k ? String(k + 1) : "", c = k % columns, r = Math.floor(k / columns);
    const left = c / columns, width = 0.88 / columns, top = 1 - r / rows, mean = shown.of(slice.mean), zero = shown.of(slice.zero);
    const isLowest = k + columns >= n;
    more["xaxis" + own] = axisOf(effect.kinds[0], effect.spans[0], { domain: [left, left + width], anchor: "y" + own, showticklabels: isLowest, nticks: 4, tickangle: 0, ...(isLowest ? { title: { text: names[0] } } : {}) });
    more["yaxis" + own] = axisOf(effect.kinds[1], effect.spans[1], { domain: [top - (rows > 1 ? 0.78 / rows : 1), top], anchor: "x" + own, showticklabels: c === 0, ...(c === 0 ? { title: { text: names[1], standoff: 8 } } : {}) });
    const text = names[2] + " = " + escaped(typeof slice.at === "number" ? Number(slice.at.toPrecision(3)) : slice.at);
    more.annotations.push({ text: text, x: left + width / 2, y: top, xref: "paper", yref: "paper", xanchor: "center", yanchor: "bottom", showarrow: false });
    return {
      type: "heatmap", x: shown.x, y: shown.y, z: mean.map((row, j) => row.map((v, i) => (on("sure") && zero[j][i] === "1" ? null : v))), zmin: -limit, zmax: limit,
      colorscale: DIVERGING, showscale: k === 0, colorbar: { thickness: 12, title: { text: escaped(short(unit, 20)), side: "right" } },
      xaxis: "x" + own, yaxis: "y" + own, hovertemplate: names[0] + " %{x}<br>" + names[1] + " %{y}<br>%{z:.4g}<extra></extra>",
    };
  });
  node.style.height = 11 * rows + 6 + "rem";
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
