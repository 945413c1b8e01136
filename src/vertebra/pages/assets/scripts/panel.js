// ---- the panel -------------------------------------------------------------------------------------------------

// A slider has no more places than pixels in a wide window.
const MOST_STEPS = 2000;

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

  // What a box says while nothing stands in it.
  function cleared(row, box, value) {
    const note = make("span", { class: "gap", role: "status" });
    row.append(note);
    box.addEventListener("input", () => { note.textContent = box.value === "" ? "Empty: " + value() + " stays." : ""; });
    box.addEventListener("change", () => { note.textContent = ""; });
  }

  function number(row, id, i) {
    if (inputs[i].values) return fewValues(row, id, i);
    const input = inputs[i], low = standard(input, input.low), high = standard(input, input.high);
    // whole numbers go one by one, unless they are too many for a slider
    const whole = input.is_whole, byOne = whole && input.high - input.low <= MOST_STEPS, steps = byOne ? input.high - input.low : 400;
    const slider = make("input", { type: "range", id: id, min: 0, max: steps, step: 1 });
    const box = make("input", { type: "number", step: whole ? 1 : "any", min: input.low, max: input.high, "aria-label": input.name + ", as a number" });
    const place = (value) => (byOne ? Math.round(value - input.low) : Math.round((steps * (standard(input, value) - low)) / (high - low || 1)));
    const write = (value) => {
      state[i] = Math.min(input.high, Math.max(input.low, value));
      slider.value = place(state[i]);
      slider.setAttribute("aria-valuetext", plain(state[i]));
    };
    slider.addEventListener("input", () => {
      const t = Number(slider.value) / steps;
      const value = byOne ? input.low + Number(slider.value) : t <= 0 ? input.low : t >= 1 ? input.high : original(input, low + (high - low) * t);
      state[i] = whole ? Math.round(value) : value;
      slider.setAttribute("aria-valuetext", plain(state[i]));
      box.value = plain(state[i]);
      update();
    });
    box.addEventListener("input", () => { if (box.value !== "" && isFinite(Number(box.value))) { write(Number(box.value)); update(); } });
    box.addEventListener("change", () => { box.value = plain(state[i]); });
    write(input.middle);
    box.value = plain(state[i]);
    row.append(slider, box);
    cleared(row, box, () => plain(state[i]));
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
    cleared(row, box, () => String(state[i]));
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
    // where no hour was ever told, days are enough
    const hasHours = places.some((j) => inputs[j].part === "hour"), length = hasHours ? 16 : 10;
    const box = make("input", { type: hasHours ? "datetime-local" : "date", id: id });
    const write = () => {
      if (!box.value) return;
      const when = new Date(box.value + (hasHours ? "Z" : "T00:00Z"));
      places.forEach((j) => {
        const part = inputs[j].part;
        state[j] = part === "time" ? when.getTime() / 864e5 : part === "month" ? when.getUTCMonth() : part === "weekday" ? (when.getUTCDay() + 6) % 7 : when.getUTCHours();
      });
      update();
    };
    const time = places.find((j) => inputs[j].part === "time");
    const days = time === undefined ? 10957 : inputs[time].middle;
    box.value = new Date(days * 864e5).toISOString().slice(0, length);
    let last = box.value;
    box.addEventListener("input", () => { if (box.value) last = box.value; write(); });
    box.addEventListener("change", () => { box.value = last; });
    row.append(box);
    cleared(row, box, () => last.replace("T", " "));
    write();
    return (value) => { box.value = String(value).slice(0, length); box.dispatchEvent(new Event("input")); };
  }

  function show() {
    const f = latent(state), place = Number(document.getElementById("level").value);
    const says = document.getElementById("says"), range = document.getElementById("range");
    const chosen = output ? Number(output.value) : 0;
    let own = f[0], unit = 1, origin = 0;
    if (data.is_classifier) {
      const p = ofClasses(f), best = p.indexOf(Math.max(...p));
      // of two classes the second is what is asked about, whether it is likely or not
      const about = p.length === 2 ? 1 : best, percent = (v) => (100 * v).toFixed(1) + " %";
      const limits = limitsOfClasses(f, place), [lower, upper] = limits.map((each) => percent(each[about]));
      says.textContent = model.likelihood.classes[about] + ": " + percent(p[about]);
      says.dataset.value = JSON.stringify(p);
      const others = p.map((v, k) => model.likelihood.classes[k] + ": " + percent(v) + (p.length === 2 ? "" : " (" + percent(limits[0][k]) + " to " + percent(limits[1][k]) + ")"));
      others.splice(about, 1);
      range.textContent = "from " + lower + " to " + upper + " with " + Math.round(100 * model.levels[place]) + " %; " + others.join(" · ");
      range.dataset.limits = JSON.stringify(limits.map((each) => each[about]));
      range.dataset.all = JSON.stringify(limits);
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
    if (terms.length > most) rows.push({ label: terms.length === most + 1 ? "1 other term" : terms.length - most + " other terms", mean: rest, sd: 0 });
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
      xaxis: { title: { text: escaped(short(data.unit, 40)) }, zeroline: false, nticks: node.clientWidth > 480 ? 6 : 4, tickangle: 0 },
      yaxis: { autorange: "reversed", type: "category" },
      shapes: [start, at].map((x) => ({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color: css("--soft"), dash: "dot", width: 1 } })),
    });
    drawn.set(node, () => waterfall(node, own, unit, origin));
  }
  // What was asked for and waits for the next frame is worked out at once.
  function current(id) {
    if (asked) show();
    return document.getElementById(id).dataset;
  }

  // For other programs: set inputs by name, read the answer.
  window.vertebra = {
    set(row) { Object.entries(row).forEach(([name, value]) => { if (setters[name]) setters[name](value); }); show(); },
    says() { return JSON.parse(current("says").value); },
    terms() { return JSON.parse(current("waterfall").terms); },
  };
  show();
}
