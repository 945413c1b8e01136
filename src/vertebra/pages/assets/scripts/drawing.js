// ---- every chart: drawn when it comes near, again when something changes, and before it is printed -----------------

function strengths(node) {
  const start = Number(node.dataset.start), own = data.outputs[Number(node.dataset.output)].strengths;
  const rows = own.slice(start, start ? undefined : data.n_open).reverse();
  const labels = rows.map((row, i) => escaped(short(row.label, 36)) + "\u200b".repeat(i));
  const symbols = ["circle", "square", "triangle-up", "diamond"];
  node.style.height = Math.max(10, 1.45 * rows.length + 5) + "rem";
  plot(node, [{
    x: rows.map((r) => r.strength), y: labels, mode: "markers",
    marker: { size: 9, color: rows.map((r) => (r.probability < 0.5 ? css("--soft") : css("--mean"))), symbol: rows.map((r) => symbols[Math.min(r.order, 4) - 1]) },
    error_x: { type: "data", symmetric: false, array: rows.map((r) => r.upper - r.strength), arrayminus: rows.map((r) => r.strength - r.lower), color: css("--mean"), thickness: 1.5 },
    customdata: rows.map((r) => [escaped(r.label), r.lower, r.upper, r.probability === null ? "not tested by itself" : "real with probability " + r.probability.toFixed(3), r.share]),
    hovertemplate: "%{customdata[0]}<br>strength %{x:.4g}, 95 % from %{customdata[1]:.4g} to %{customdata[2]:.4g}<br>%{customdata[4]:.1%} of the variance<br>%{customdata[3]}<extra></extra>",
  }], { xaxis: { title: { text: node.clientWidth > 480 ? "strength, in " + escaped(data.unit) : "strength" }, rangemode: "tozero" }, yaxis: { type: "category" } });
}

function draw(node) {
  const kind = node.dataset.chart;
  if (kind === "calibration") return calibration(node);
  if (kind === "strengths") return strengths(node);
  if (["roc", "precision", "lift"].includes(kind)) return ofDecisions(node, kind);
  const effect = data.outputs[Number(node.dataset.output)].effects[Number(node.dataset.term)];
  return { curve, points, levels, lines, map, slices }[effect.kind](node, effect, data.unit);
}

// What is hidden has no width to be drawn in: it waits until it is shown.
const isShown = (node) => node.clientWidth > 0 && !node.closest("details:not([open])");

const watch = new IntersectionObserver((entries) => entries.forEach((entry) => {
  if (entry.isIntersecting && isShown(entry.target) && !drawn.has(entry.target)) {
    drawn.set(entry.target, () => draw(entry.target));
    draw(entry.target);
  }
}), { rootMargin: "300px" });
$("[data-chart]").forEach((node) => watch.observe(node));
const redraw = () => drawn.forEach((again, node) => { if (isShown(node)) again(); });
if (slider) showDecision();
// Paper is white, and shows all that stands open: what was not scrolled to yet is drawn before it is printed.
function drawAll() {
  $("[data-chart]").filter(isShown).forEach((node) => {
    if (!drawn.has(node)) drawn.set(node, () => draw(node));
    draw(node);
  });
}
$("details").forEach((fold) => fold.addEventListener("toggle", redraw));
let themeBefore = null;
window.addEventListener("beforeprint", () => {
  themeBefore = themeBefore || root.dataset.theme;
  root.dataset.theme = "light";
  root.classList.add("paper");
  drawAll();
});
window.addEventListener("afterprint", () => {
  root.classList.remove("paper");
  root.dataset.theme = themeBefore || root.dataset.theme;
  themeBefore = null;
  redraw();
});
$("[data-toggle]").forEach((box) => box.addEventListener("change", redraw));
