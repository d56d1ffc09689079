// The answers as cards: everything said here comes from the server's JSON.

import { bars, h, table } from "./dom.js";
import * as format from "./format.js";

const LETTERS = ["A", "B"];

const facts = (rows) => h("dl", {}, rows.filter(([, value]) => value != null).flatMap(([word, value, kind]) =>
  [h("dt", {}, word), h("dd", { class: kind }, value)]));

const list = (title, lines) => lines.length
  ? h("details", {}, h("summary", {}, `${title} (${lines.length})`), h("ul", {}, lines.map((line) => h("li", {}, line))))
  : null;

const timed = (parts) => bars(Object.entries(parts).filter(([, value]) => value)
  .map(([name, value]) => [name, value, format.time(value)]));

export function card(i, title, ...children) {
  return h("article", { class: i ? "card b" : "card", "aria-label": `cluster ${LETTERS[i]}` },
    h("h2", {}, `${LETTERS[i]}: ${title}`), ...children);
}

export const failed = (i, message) => card(i, "cannot be answered", h("p", { class: "error", role: "alert" }, message));

const machines = (c) => `${c.name}, ${c.nodes} ${c.nodes === 1 ? "node" : "nodes"}, ${c.n_ranks} × ${c.gpu}`;

// The answer in one line, which screen readers read out.
export function verdict(answer, what) {
  const each = answer.sides.map((side, i) => `${LETTERS[i]} ${side.error ? "cannot be answered"
    : format.time((side.at ?? side.step).duration_s)}`).join(", ");
  return `${what}: ${each}${answer.ratio == null ? "" : `; A takes ${answer.ratio.toPrecision(3)} × B's time`}`;
}

export function collective(side, i) {
  const at = side.at, moving = at.operation !== "barrier";
  return card(i, machines(side.cluster),
    facts([
      ["time", format.time(at.duration_s), "main"],
      ["80 %", `${format.time(at.interval_s[0])} to ${format.time(at.interval_s[1])}`],
      ["bus bandwidth", moving ? format.rate(at.bus_bandwidth_bytes_per_s) : null],
      ["algorithm bandwidth", moving ? format.rate(at.algorithm_bandwidth_bytes_per_s) : null],
      ["choice", [at.algorithm, at.protocol, `${at.channels} ${at.channels === 1 ? "channel" : "channels"}`].filter(Boolean).join(", ")],
      ["bottleneck", at.bottleneck, "bind"],
      ["library", at.library],
      ["node", side.cluster.node],
      ["fabric", side.cluster.fabric],
    ]),
    h("h3", {}, "where the time goes"), timed(at.breakdown_s),
    side.stages.length ? h("h3", {}, "from link rate to bus bandwidth") : null,
    side.stages.length ? bars(side.stages.map((stage) =>
      [stage.name, stage.bandwidth_bytes_per_s, format.rate(stage.bandwidth_bytes_per_s), stage.reason])) : null,
    side.traffic.length ? h("h3", {}, "bytes of the busiest links") : null,
    side.traffic.length ? table([
      ["link", (t) => t.link], ["bytes", (t) => format.size(t.bytes), true],
      ["rate", (t) => (t.rate_bytes_per_s ? format.rate(t.rate_bytes_per_s) : "not known"), true],
      ["alone they take", (t) => (t.rate_bytes_per_s ? format.time(t.at_full_rate_s) : "–"), true],
    ], side.traffic) : null,
    h("h3", {}, "candidates"),
    table([
      ["algorithm", (c) => c.algorithm], ["protocol", (c) => c.protocol], ["channels", (c) => c.channels, true],
      ["time", (c) => format.time(c.duration_s), true], ["library's estimate", (c) => format.time(c.estimate_s), true],
    ], at.alternatives.filter((c) => c.available), (c) => c.algorithm === at.algorithm && c.protocol === at.protocol),
    list("ruled out", at.alternatives.filter((c) => !c.available)
      .map((c) => `${[c.algorithm, c.protocol].filter(Boolean).join("/")}: ${c.reason}`)),
    list("choice by size", side.regions.map((r) => `from ${format.size(r.low_bytes)}: ${r.choice}`)),
    list("why this choice", at.reasons), list("notes", at.notes));
}

// A row a size, both clusters beside each other.
export function sizes(answer) {
  const shown = answer.sides.map((side, i) => [LETTERS[i], side]).filter(([, side]) => side.sweep);
  if (!shown.length) return null;
  const columns = [["size", (k) => format.size(shown[0][1].sweep[k].size_bytes), true]];
  for (const [letter, side] of shown) {
    columns.push([`${letter} time`, (k) => format.time(side.sweep[k].duration_s), true],
      [`${letter} bus`, (k) => format.rate(side.sweep[k].bus_bandwidth_bytes_per_s), true],
      [`${letter} choice`, (k) => [side.sweep[k].algorithm, side.sweep[k].protocol].filter(Boolean).join("/")],
      [`${letter} bottleneck`, (k) => side.sweep[k].bottleneck]);
  }
  if (answer.ratios) columns.splice(1, 0, ["A / B", (k) => answer.ratios[k].toPrecision(3), true]);
  return h("details", {}, h("summary", {}, "Every size as a table"), table(columns, shown[0][1].sweep.map((_, k) => k)));
}

export function step(side, i) {
  const found = side.step, memory = found.memory;
  const held = memory.stages.find((stage) => stage.rank === memory.worst_rank) ?? memory.stages[0];
  const exposed = Object.entries(found.exposed_s).filter(([, value]) => value)
    .map(([name, value]) => `${name} ${format.time(value)}`).join(", ");
  const x = found.layout;
  return card(i, machines(side.cluster),
    facts([
      ["step", format.time(found.duration_s), "main"],
      ["80 %", `${format.time(found.interval_s[0])} to ${format.time(found.interval_s[1])}`],
      ["throughput", `${format.number(found.tokens_per_s_per_gpu)} tokens/s/GPU`],
      ["MFU", format.percent(found.mfu)],
      ["exposed", exposed || "no messages"],
      ["bubble", format.time(found.bubble_s)],
      ["memory", `${format.size(memory.peak_bytes)} of ${format.size(memory.capacity_bytes)} on rank ${memory.worst_rank}: ${memory.fits ? "fits" : "does NOT fit"}`, "bind"],
      ["layout", `${x.framework}, tp ${x.tp}, pp ${x.pp}, dp ${x.dp}, cp ${x.cp}, ep ${x.ep}, batch ${x.global_batch}`],
    ]),
    h("h3", {}, "where the step goes"), timed(found.breakdown_s),
    h("h3", {}, "communication of one rank"),
    table([
      ["along", (m) => m.along], ["operation", (m) => m.operation], ["ranks", (m) => m.n_ranks, true],
      ["size", (m) => format.size(m.size_bytes), true], ["algorithm", (m) => m.algorithm],
      ["times", (m) => format.number(m.count), true], ["each", (m) => format.time(m.each_s), true],
      ["exposed of each", (m) => format.time(m.exposed_each_s), true],
    ], found.messages),
    h("h3", {}, "memory of the heaviest stage's ranks"),
    bars(Object.entries(held).filter(([key, value]) => key.endsWith("_bytes") && value >= 1)
      .map(([key, value]) => [key.replace(/_bytes$/, "").replaceAll("_", " "), value, format.size(value)])),
    list("notes", found.notes));
}
