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

// Bytes that the page holds as compressed text.
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

if (typeof DecompressionStream === "undefined") {
  document.getElementById("too-old").hidden = false;
  return;
}

const textIn = async (text) => new TextDecoder().decode(await unpacked(text));
data.outputs = JSON.parse(await textIn(data.charts));
