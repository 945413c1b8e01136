// ---- two classes: what follows from a threshold -----------------------------------------------------------------

const CELLS = ["true_second", "false_second", "false_first", "true_first"];
const slider = document.getElementById("threshold");

// The slider goes from one threshold to the next: between two nothing changes.
function decided() {
  const i = Number(slider.value);
  return Object.fromEntries(CELLS.map((name) => [name, data.decisions[name][i]]).concat([["index", i]]));
}

function rates(i) {
  const [tp, fp, fn, tn] = CELLS.map((name) => data.decisions[name][i]), total = tp + fp + fn + tn;
  const precision = tp + fp > 0 ? tp / (tp + fp) : 1;
  return { recall: tp / (tp + fn), alarms: fp / (fp + tn), precision: precision, said: (tp + fp) / total, lift: precision / ((tp + fn) / total) };
}

function showDecision() {
  const now = decided(), r = rates(now.index), percent = (v) => (100 * v).toFixed(1) + " %";
  $("[data-cell]").forEach((cell) => { cell.textContent = Math.round(now[cell.dataset.cell]).toLocaleString("en"); });
  const said = data.decisions.threshold[now.index].toFixed(3);
  document.getElementById("threshold-says").textContent = said;
  slider.setAttribute("aria-valuetext", said);
  document.getElementById("decision").textContent = "Found: " + percent(r.recall) + " of those that are. True: " + percent(r.precision) +
    " of those said. False alarms: " + percent(r.alarms) + " of the others. Said of " + percent(r.said) + " of the rows, " + r.lift.toFixed(1) + " times as often right as at random.";
  ["roc", "precision", "lift"].forEach((kind) => $('[data-chart="' + kind + '"]').forEach((node) => { if (drawn.has(node)) drawn.get(node)(); }));
}

function ofDecisions(node, kind) {
  const all = data.decisions.threshold.map((_, i) => rates(i)), here = rates(decided().index), title = escaped(short(data.classes[1], 24));
  const axes = {
    roc: ["alarms", "recall", "false alarms", "found", [[0, 1], [0, 1]]],
    precision: ["recall", "precision", "found", "true of those said " + title, null],
    lift: ["said", "lift", "share of the rows said " + title, "lift", [[0, 1], [1, 1]]],
  }[kind];
  const [x, y, xName, yName, line] = axes, kept = all.filter((r) => kind === "roc" || r.said > 0);
  const traces = line ? [{ x: line[0], y: line[1], mode: "lines", line: { dash: "dot", color: css("--soft") }, hoverinfo: "skip" }] : [];
  traces.push({ x: kept.map((r) => r[x]), y: kept.map((r) => r[y]), mode: "lines", line: { color: css("--mean"), width: 2.5 }, hovertemplate: xName + " %{x:.3f}, " + yName + " %{y:.3f}<extra></extra>" });
  traces.push({ x: [here[x]], y: [here[y]], mode: "markers", marker: { size: 11, color: css("--minus") }, hovertemplate: "this threshold<extra></extra>" });
  plot(node, traces, {
    xaxis: { title: { text: xName }, range: [-0.02, 1.02] },
    yaxis: { title: { text: yName }, rangemode: "tozero", ...(kind === "lift" ? {} : { range: [-0.02, 1.02] }) },
  });
}

if (slider) {
  slider.addEventListener("input", showDecision);
}
