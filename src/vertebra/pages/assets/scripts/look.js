// ---- the look --------------------------------------------------------------------------------------------------

$("select.output").forEach((select) => select.addEventListener("change", () => {
  $(".output-part").forEach((part) => { part.hidden = part.dataset.output !== select.value; });
  $("select.output").forEach((other) => { other.value = select.value; });
  redraw();
}));
function theme(name) {
  root.dataset.theme = name;
  redraw();
}
document.getElementById("theme").addEventListener("click", () => theme(root.dataset.theme === "dark" ? "light" : "dark"));
if (window.matchMedia) matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => theme(event.matches ? "dark" : "light"));
root.dataset.panel = "true";
requestAnimationFrame(() => setTimeout(startPlotly, 0));
