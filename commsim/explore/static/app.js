// The page: fields change, the address follows, the server is asked, the answer is drawn.

import * as charts from "./charts.js";
import { h } from "./dom.js";
import * as files from "./files.js";
import * as format from "./format.js";
import * as state from "./state.js";
import * as views from "./views.js";

const form = document.getElementById("controls"), results = document.getElementById("results");
const status = document.getElementById("status"), slider = document.getElementById("slider");
const LARGEST = 131072;
let first = {}, shown = null, drawn = null, drawnFor = "", wanted = 0, running = false, timer = 0;

async function ask(kind, question) {
  const reply = await fetch(`/api/${kind}`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question),
  }).catch(() => null);
  if (!reply) return { error: "no answer: is commsim explore still running?" };
  return reply.json();
}

const say = (text) => { status.textContent = text; };

function buildSides() {
  const template = document.getElementById("side");
  for (const letter of ["a", "b"]) {
    const copy = template.content.cloneNode(true), box = copy.querySelector("fieldset");
    box.querySelector("legend").textContent = `Cluster ${letter.toUpperCase()}`;
    if (letter === "a") box.querySelector("[data-second]").remove();
    for (const field of box.querySelectorAll("[name]")) if (field.name !== "two") field.name = `${letter}_${field.name}`;
    for (const chooser of box.querySelectorAll("[data-into]")) chooser.dataset.into = `${letter}_${chooser.dataset.into}`;
    for (const button of box.querySelectorAll("[data-do]")) button.dataset.side = letter;
    document.getElementById("sides").append(copy);
  }
}

function fill(name, choices, chosen) {
  const field = form.elements[name];
  field.replaceChildren(...choices.map((each) => h("option", { value: each }, each)));
  field.value = chosen ?? field.dataset.default;
}

function arrange(now) {
  document.getElementById("collective-fields").hidden = now.tab !== "collective";
  document.getElementById("step-fields").hidden = now.tab !== "step";
  for (const letter of ["a", "b"]) form.elements[`${letter}_preset`].disabled = now[`${letter}_text`].trim() !== "";
  for (const field of form.elements) if (field.name?.startsWith("b_")) field.closest("label").hidden = now.two !== "1";
  form.querySelector('[data-into="b_text"]').closest("details").hidden = now.two !== "1";
  form.elements.model.disabled = now.config.trim() !== "";
}

function remember() {
  const query = state.toQuery(form, first);
  if (query.length > state.LONGEST) return false;
  history.replaceState(null, "", query ? `?${query}` : location.pathname);
  return true;
}

function changed(delay = 0) {
  const now = state.values(form);
  arrange(now);
  remember();
  wanted += 1;
  clearTimeout(timer);
  timer = setTimeout(refresh, delay);
}

// One question at a time; what changed in the meantime is asked as soon as the answer is there.
async function refresh() {
  if (running) return;
  running = true;
  let done = 0;
  while (done !== wanted) {
    done = wanted;
    results.classList.add("busy");
    const now = state.values(form);
    const answer = await ask(now.tab, state.question(now));
    if (done !== wanted) continue;
    show(now, answer);
    results.dataset.done = String(done);
    const key = JSON.stringify(state.sides(now));
    if (now.tab === "collective" && !answer.error && key !== drawnFor) {
      const pictures = await ask("topology", { sides: state.sides(now) });
      if (done !== wanted) continue;
      [drawn, drawnFor] = [pictures, key];
      draw();
    }
  }
  results.classList.remove("busy");
  running = false;
}

function show(now, answer) {
  shown = answer;
  if (answer.error) {
    results.replaceChildren(h("p", { class: "error", role: "alert" }, answer.error));
    say("");
    return;
  }
  document.getElementById("version").textContent = answer.commsim;
  (now.tab === "collective" ? showCollective : showStep)(now, answer);
}

function showCollective(now, answer) {
  const at = answer.sides.find((side) => side.at)?.at;
  const what = at && at.operation !== "barrier" ? `${at.operation} of ${format.size(at.size_bytes)}` : now.op;
  const sweep = answer.sides.find((side) => side.sweep)?.sweep ?? [];
  slider.dataset.low = sweep[0]?.size_bytes ?? 8;
  slider.max = Math.max(0, sweep.length - 1);
  const closest = sweep.findLastIndex((row) => row.size_bytes <= (at?.size_bytes ?? 0));
  if (document.activeElement !== slider) slider.value = Math.max(0, closest);
  slider.setAttribute("aria-valuetext", at ? format.size(at.size_bytes) : "");
  say(views.verdict(answer, what));
  results.replaceChildren(...[
    h("figure", { id: "curves" }),
    h("div", { class: "grid" }, answer.sides.map((side, i) => (side.error ? views.failed(i, side.error) : views.collective(side, i)))),
    h("div", { class: "grid", id: "topologies" }),
    views.sizes(answer),
  ].filter(Boolean));
  draw();
}

function showStep(now, answer) {
  say(views.verdict(answer, `one step of ${answer.sides.find((side) => side.step)?.step.model ?? "the model"}`));
  results.replaceChildren(h("div", { class: "grid" }, answer.sides.map((side, i) =>
    (side.error ? views.failed(i, side.error) : views.step(side, i)))));
}

// The pictures, as wide as the page has room for.
function draw() {
  const box = document.getElementById("curves");
  if (!box || !shown?.sides) return;
  const metric = charts.METRICS[form.elements.curve.value], at = shown.sides.find((side) => side.at)?.at;
  const width = box.clientWidth || 320;
  const caption = h("figcaption", { id: "reading" });
  const rest = () => {
    caption.textContent = `${metric.name} over sizes; band: 80 %. A: solid line, circle; B: dashed, square. Click a size to look at it.`;
  };
  const tell = (k) => {
    if (k === null) return rest();
    const rows = shown.sides.map((side, i) => ["AB"[i], side.sweep?.[k]]).filter(([, row]) => row);
    caption.textContent = `${format.size(rows[0][1].size_bytes)}: ${rows.map(([letter, row]) =>
      `${letter} ${format.time(row.duration_s)}, ${format.rate(row.bus_bandwidth_bytes_per_s)}, ${[row.algorithm, row.protocol].filter(Boolean).join("/")}`).join("; ")}`;
  };
  rest();
  if (at && at.operation !== "barrier") {
    box.replaceChildren(charts.curves(shown.sides, metric, at.size_bytes, width, pick, tell), charts.regions(shown.sides, width), caption);
  }
  const pictures = document.getElementById("topologies");
  if (!pictures || !drawn?.sides || drawnFor !== JSON.stringify(state.sides(state.values(form)))) return;
  const columns = Math.min(drawn.sides.length, getComputedStyle(pictures).gridTemplateColumns.split(" ").length);
  const room = Math.max(260, pictures.clientWidth / columns - 48);
  pictures.replaceChildren(...drawn.sides.map((side, i) => (side.error ? null : h("figure", { class: i ? "card b" : "card" },
    h("h3", {}, `${"AB"[i]}: topology`),
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `topology of ${side.name}` }, charts.topology(side, room, shown.sides[i]?.binds)),
    h("figcaption", {}, legend(side, shown.sides[i]))))).filter(Boolean));
}

function legend(side, answer) {
  const kinds = new Map();
  for (const wire of side.wires) {
    const rates = kinds.get(wire.kind) ?? new Set();
    kinds.set(wire.kind, rates.add(format.rate(wire.bandwidth_bytes_per_s)));
  }
  const links = [...kinds].map(([kind, rates]) => `${kind} ${[...rates].join(", ")}`).join("; ");
  const part = side.nodes_drawn < side.nodes ? `The first ${side.nodes_drawn} of ${side.nodes} nodes. ` : "";
  const built = side.nodes_built < side.nodes ? `The fabric as for ${side.nodes_built} nodes. ` : "";
  const binds = !answer?.at ? "" : answer.binds ? `In bold the links that bind: ${answer.at.bottleneck}. `
    : `No link binds: ${answer.at.bottleneck}. `;
  return `${binds}${part}${built}Links as wide as they are fast, per direction: ${links}. Square: GPU, triangle: NIC, diamond: switch.`;
}

function pick(bytes) {
  form.elements.size.value = format.exactSize(bytes);
  changed();
}

async function upload(chooser) {
  const [file] = chooser.files;
  if (!file) return;
  if (file.size > LARGEST) {
    say(`${file.name}: ${file.size} bytes; a file may have ${LARGEST} at most`);
  } else {
    form.elements[chooser.dataset.into].value = await file.text();
    changed();
  }
  chooser.value = "";
}

async function act(button) {
  const letter = button.dataset.side, text = form.elements[`${letter}_text`], preset = form.elements[`${letter}_preset`];
  const side = state.sides({ ...state.values(form), two: "1" })["ab".indexOf(letter)];
  if (button.dataset.do === "clear") {
    text.value = "";
    changed();
    return;
  }
  const found = await ask(button.dataset.do === "copy" ? "preset" : "toml", button.dataset.do === "copy" ? { preset: preset.value } : { side });
  if (found.error) say(found.error);
  else if (button.dataset.do === "save") files.save(`${found.name}.toml`, "application/toml", found.toml);
  else { text.value = found.toml; changed(); }
}

async function share() {
  if (!remember()) return say("too much text for a link: download the TOML and send that");
  try {
    await navigator.clipboard.writeText(location.href);
    say("link copied; it opens wherever commsim explore runs on this port");
  } catch {
    say(`the link is this page's address: ${location.href}`);
  }
}

function take(kind) {
  if (!shown?.sides) return say("nothing to download yet");
  if (kind === "json") files.save("commsim.json", "application/json", JSON.stringify(shown, null, 2));
  else files.save("commsim.csv", "text/csv", files.csv(shown));
}

function listen() {
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => {
    if (event.target === slider) return pick(Number(slider.dataset.low) * 2 ** Number(slider.value));
    if (event.target.name === "curve") { remember(); return draw(); }
    if (event.target.dataset.into) return upload(event.target);
    const typed = ["text", "number", "textarea"].includes(event.target.type);
    return changed(typed ? 50 : 0);
  });
  form.addEventListener("click", (event) => { if (event.target.dataset.do) act(event.target); });
  document.getElementById("share").addEventListener("click", share);
  document.getElementById("json").addEventListener("click", () => take("json"));
  document.getElementById("csv").addEventListener("click", () => take("csv"));
  document.getElementById("reset").addEventListener("click", () => { state.write(form, first); changed(); });
  new ResizeObserver(draw).observe(results);
}

async function begin() {
  buildSides();
  const options = await ask("options", {});
  if (options.error) return show({}, options);
  fill("a_preset", options.presets, "dgx-h100");
  fill("b_preset", options.presets, "dgx-a100");
  for (const letter of ["a", "b"]) {
    fill(`${letter}_gpu`, ["", ...options.gpus], "");
    form.elements[`${letter}_gpu`].options[0].textContent = "as it has";
  }
  for (const letter of ["a", "b"]) form.elements[`${letter}_nodes`].value = "4";
  fill("op", options.operations);
  fill("dtype", options.dtypes);
  fill("model", options.models);
  fill("schedule", options.schedules);
  fill("recompute", options.recompute);
  fill("step_dtype", options.dtype);
  fill("framework", options.framework);
  first = state.values(form);
  state.write(form, Object.fromEntries(new URLSearchParams(location.search)));
  listen();
  changed();
}

begin();
