// The state of the page is its form's fields; the query string holds those that are not as at first.

const SIDE = ["preset", "gpu", "nodes", "nics", "nic_rate", "library", "text"];
const LAYOUT = ["tp", "pp", "dp", "cp", "ep", "micro_batch", "global_batch", "seq_len", "interleave", "zero_stage"];
const WORDS = ["schedule", "recompute", "framework"];
const CHECKS = ["sequence_parallel", "overlap_grad_reduce", "overlap_param_gather", "tp_comm_overlap"];
export const LONGEST = 30000; // characters of an address that servers and mail programs still take

const fields = (form) => [...form.elements].filter((field) => field.name && field.type !== "file");

function get(field) {
  if (field.type === "checkbox") return field.checked ? "1" : "0";
  if (field.type === "radio") return field.checked ? field.value : null;
  return field.value;
}

function set(field, value) {
  if (field.type === "checkbox") field.checked = value === "1";
  else if (field.type === "radio") field.checked = field.value === value;
  else field.value = value;
}

export function values(form) {
  const found = {};
  for (const field of fields(form)) {
    const value = get(field);
    if (value !== null) found[field.name] = value;
  }
  return found;
}

export function write(form, wanted) {
  for (const field of fields(form)) if (field.name in wanted) set(field, wanted[field.name]);
}

export function toQuery(form, first) {
  const changed = Object.entries(values(form)).filter(([name, value]) => value !== first[name]);
  return new URLSearchParams(changed).toString();
}

const whole = (text) => (text.trim() === "" ? null : Number(text));
const given = (pairs) => Object.fromEntries(pairs.filter(([, value]) => value !== null && value !== ""));

export function sides(now) {
  return (now.two === "1" ? ["a", "b"] : ["a"]).map((letter) => given(SIDE.map((name) => {
    const text = now[`${letter}_${name}`] ?? "";
    return [name, name === "nodes" || name === "nics" ? whole(text) : text.trim()];
  })));
}

export function question(now) {
  if (now.tab === "collective") {
    return { sides: sides(now), operation: now.op, dtype: now.dtype, size: now.size, low: now.low, high: now.high };
  }
  const layout = given([
    ...LAYOUT.map((name) => [name, whole(now[name])]),
    ...WORDS.map((name) => [name, now[name]]),
    ...CHECKS.map((name) => [name, now[name] === "1"]),
    ["dtype", now.step_dtype],
  ]);
  return { sides: sides(now), ...given([["model", now.model], ["config", now.config.trim()]]), layout };
}
