// Pictures in SVG: curves over sizes, the regions of the choice, a cluster's devices and links.

import { s } from "./dom.js";
import * as format from "./format.js";

const LETTERS = ["a", "b"];
const LEFT = 62, RIGHT = 22, TOP = 12, BOTTOM = 34;

export const METRICS = {
  bus: {
    name: "bus bandwidth", value: (row) => row.bus_bandwidth_bytes_per_s,
    interval: (row) => row.bus_bandwidth_interval_bytes_per_s, text: format.rate, log: false,
  },
  time: {
    name: "time", value: (row) => row.duration_s, interval: (row) => row.interval_s,
    text: format.time, log: true,
  },
};

// Round numbers from low to high: 1, 2, 5 times powers of ten, or powers of ten alone.
function ticks(low, high, log) {
  if (log) {
    const found = [];
    for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k += 1) found.push(10 ** k);
    return found;
  }
  const rough = high / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((each) => each >= rough);
  return Array.from({ length: Math.ceil(high / step) + 1 }, (_, k) => k * step);
}

// sides: answers, or null; at: bytes looked at. pick(bytes) on a click; tell(index) under the pointer.
export function curves(sides, metric, at, width, pick, tell) {
  const height = Math.max(220, Math.min(340, width * 0.45));
  const shown = sides.map((side, i) => [LETTERS[i], side]).filter(([, side]) => side?.sweep?.length > 1);
  const svg = s("svg", { width, height, role: "img", "aria-label": `${metric.name} over sizes` });
  if (!shown.length) return svg;
  const sizes = shown[0][1].sweep.map((row) => row.size_bytes);
  const ends = shown.flatMap(([, side]) => side.sweep.flatMap((row) => metric.interval(row)));
  const marks = ticks(Math.min(...ends), Math.max(...ends), metric.log);
  const [from, to] = [Math.log2(sizes[0]), Math.log2(sizes.at(-1))];
  const x = (bytes) => LEFT + (width - LEFT - RIGHT) * (Math.log2(bytes) - from) / (to - from);
  const scale = metric.log ? Math.log10 : (value) => value;
  const [bottom, top] = [scale(marks[0]), scale(marks.at(-1))];
  const y = (value) => height - BOTTOM - (height - TOP - BOTTOM) * (scale(value) - bottom) / (top - bottom);
  for (const mark of marks) {
    svg.append(s("line", { class: "grid-line", x1: LEFT, x2: width - RIGHT, y1: y(mark), y2: y(mark) }),
      s("text", { class: "soft", x: LEFT - 6, y: y(mark) + 4, "text-anchor": "end" },
        mark === 0 ? "0" : metric.text(mark)));
  }
  const apart = Math.max(1, Math.ceil(sizes.length * 58 / (width - LEFT)));
  sizes.forEach((bytes, k) => {
    if (k % apart) return;
    svg.append(s("line", { class: "grid-line", x1: x(bytes), x2: x(bytes), y1: height - BOTTOM, y2: height - BOTTOM + 5 }),
      s("text", { class: "soft", x: x(bytes), y: height - BOTTOM + 20, "text-anchor": "middle" }, format.size(bytes)));
  });
  for (const [letter, side] of shown) {
    const path = (rows, value) => rows.map((row) => `${x(row.size_bytes).toFixed(1)},${y(value(row)).toFixed(1)}`);
    const low = path(side.sweep, (row) => metric.interval(row)[0]);
    const high = path(side.sweep, (row) => metric.interval(row)[1]).reverse();
    svg.append(s("polygon", { class: `band ${letter}`, points: [...low, ...high].join(" ") }),
      s("polyline", { class: `line ${letter}`, points: path(side.sweep, metric.value).join(" ") }));
  }
  const closest = (event) => {
    const bounds = svg.getBoundingClientRect();
    const across = (event.clientX - bounds.left - LEFT) / (width - LEFT - RIGHT);
    return Math.min(sizes.length - 1, Math.max(0, Math.round(across * (sizes.length - 1))));
  };
  if (at >= sizes[0] && at <= sizes.at(-1)) {
    svg.append(s("line", { class: "at", x1: x(at), x2: x(at), y1: TOP, y2: height - BOTTOM }));
    for (const [letter, side] of shown) svg.append(point(letter, x(at), y(metric.value(side.at))));
  }
  svg.addEventListener("click", (event) => pick(sizes[closest(event)]));
  svg.addEventListener("pointermove", (event) => tell(closest(event)));
  svg.addEventListener("pointerleave", () => tell(null));
  return svg;
}

function point(letter, x, y) {
  return letter === "a" ? s("circle", { class: "mark a", cx: x, cy: y, r: 5 })
    : s("rect", { class: "mark b", x: x - 5, y: y - 5, width: 10, height: 10 });
}

// What is chosen from which size on, over the curves' own axis.
export function regions(sides, width) {
  const shown = sides.map((side, i) => ["AB"[i], side]).filter(([, side]) => side?.regions?.length);
  const svg = s("svg", { width, height: 30 * shown.length, role: "img", "aria-label":
    shown.map(([letter, side]) => `${letter}: ${side.regions.map((r) => `${r.choice} from ${format.size(r.low_bytes)}`).join(", ")}`).join("; ") });
  shown.forEach(([letter, side], row) => {
    const [from, to] = [Math.log2(side.regions[0].low_bytes), Math.log2(side.regions.at(-1).high_bytes)];
    const x = (bytes) => LEFT + (width - LEFT - RIGHT) * (Math.log2(bytes) - from) / (to - from);
    svg.append(s("text", { x: LEFT - 6, y: row * 30 + 18, "text-anchor": "end" }, `${letter} takes`));
    side.regions.forEach((region, k) => {
      const [left, right] = [x(region.low_bytes), x(region.high_bytes)];
      const text = `${region.choice} from ${format.size(region.low_bytes)}`;
      svg.append(s("rect", { class: k % 2 ? "part odd" : "part", x: left, y: row * 30 + 2, width: right - left, height: 24 },
        s("title", {}, text)));
      if (right - left > 7 * region.choice.length) {
        svg.append(s("text", { x: (left + right) / 2, y: row * 30 + 18, "text-anchor": "middle" }, region.choice));
      }
    });
  });
  return svg;
}

// A mark of half-width r for each kind of device; switches are diamonds.
const SHAPES = {
  gpu: (x, y, r) => s("rect", { class: "dot", x: x - r, y: y - r, width: 2 * r, height: 2 * r }),
  nic: (x, y, r) => s("path", { class: "dot", d: `M${x} ${y - r}L${x + r} ${y + r}H${x - r}Z` }),
  cpu: (x, y, r) => s("rect", { class: "dot", x: x - 1.5 * r, y: y - r, width: 3 * r, height: 2 * r, rx: r / 2 }),
  card: (x, y, r) => s("circle", { class: "dot", cx: x, cy: y, r: 0.6 * r }),
};
const DIAMOND = (x, y, r) => s("path", { class: "dot", d: `M${x} ${y - 1.3 * r}L${x + 1.3 * r} ${y}L${x} ${y + 1.3 * r}L${x - 1.3 * r} ${y}Z` });
const CLOSE = 11, NAMED = 34; // pixels from one GPU to the next: the fewest, and from which on names fit

// A cluster as the library placed it, `room` pixels wide where it fits; a link is as wide as it is fast.
// binds: the part whose links the bottleneck means; they lie on top.
export function topology(drawn, room, binds) {
  const xs = drawn.dots.map((dot) => dot.x), ys = drawn.dots.map((dot) => dot.y);
  const [left, right, high] = [Math.min(...xs), Math.max(...xs), Math.max(...ys)];
  const apart = Math.max(CLOSE, (room - 60) / Math.max(1, right - left)), r = Math.min(7, 0.42 * apart);
  const across = right > left ? apart * (right - left) + 60 : room, height = 56 * (high - Math.min(...ys)) + 60;
  const x = (value) => 30 + (across - 60) * (right > left ? (value - left) / (right - left) : 0.5);
  const y = (value) => 26 + 56 * (high - value);
  const place = new Map(drawn.dots.map((dot) => [dot.name, dot]));
  const fastest = Math.max(...drawn.wires.map((wire) => wire.bandwidth_bytes_per_s ?? 0), 1);
  const binding = (wire) => Boolean(binds) && wire.part === binds, bound = drawn.wires.filter(binding);
  const svg = s("svg", { width: across, height, class: bound.length ? "bound" : null, role: "img", "aria-label":
    `${drawn.name}: ${drawn.nodes_drawn} of ${drawn.nodes} nodes, ${drawn.dots.length} devices, ${drawn.wires.length} links, ${bound.length} of them bind` });
  for (const wire of [...drawn.wires.filter((each) => !binding(each)), ...bound]) {
    const [a, b] = [place.get(wire.source), place.get(wire.target)];
    const wide = 0.6 + 4.4 * Math.sqrt((wire.bandwidth_bytes_per_s ?? 0) / fastest) + (binding(wire) ? 1.5 : 0);
    svg.append(s("line", { class: `wire ${wire.kind}${binding(wire) ? " binds" : ""}`, x1: x(a.x), y1: y(a.y), x2: x(b.x), y2: y(b.y), "stroke-width": wide },
      s("title", {}, `${wire.name}: ${wire.kind}, ${format.rate(wire.bandwidth_bytes_per_s)} per direction${binding(wire) ? "; binds" : ""}`)));
  }
  const named = apart >= NAMED;
  for (const dot of drawn.dots) {
    const mark = (SHAPES[dot.kind] ?? DIAMOND)(x(dot.x), y(dot.y), r);
    mark.append(s("title", {}, `${dot.name} (${dot.kind})`));
    svg.append(mark);
    if (named) {
      svg.append(s("text", { class: "soft", x: x(dot.x), y: y(dot.y) - 10, "text-anchor": "middle", "font-size": 9 },
        dot.name.replace(/^.*\//, "")));
    }
  }
  return svg;
}
