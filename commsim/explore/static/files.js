// What can be taken away: the answer as JSON and CSV, a cluster as TOML.

export function save(name, kind, text) {
  const address = URL.createObjectURL(new Blob([text], { type: kind }));
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

const cell = (value) => {
  const text = value == null ? "" : String(value);
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

// A list [low, high] becomes two columns, a table one column a key.
function flat(value, name = "") {
  if (Array.isArray(value) && value.length === 2 && value.every((each) => typeof each === "number")) {
    return [[`${name}_low`, value[0]], [`${name}_high`, value[1]]];
  }
  if (Array.isArray(value)) return [];
  if (value !== null && typeof value === "object") {
    return Object.entries(value).flatMap(([key, each]) => flat(each, name ? `${name}.${key}` : key));
  }
  return [[name, value]];
}

export function csv(answer) {
  const rows = answer.sides.flatMap((side, i) => {
    if (side.error) return [];
    const own = [["side", "AB"[i]], ["cluster", side.cluster.name], ["nodes", side.cluster.nodes]];
    return (side.sweep ?? [side.step]).map((row) => new Map([...own, ...flat(row)]));
  });
  const columns = [...new Set(rows.flatMap((row) => [...row.keys()]))];
  return [columns, ...rows.map((row) => columns.map((name) => row.get(name)))]
    .map((row) => row.map(cell).join(",")).join("\n") + "\n";
}
