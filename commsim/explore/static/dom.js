// Elements, made in one call: h("p", { class: "soft" }, "text", child).

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

export const h = (name, attributes, ...children) =>
  filled(document.createElement(name), attributes, children);

export const s = (name, attributes, ...children) =>
  filled(document.createElementNS(SVG, name), attributes, children);

// columns: [title, row => cell, isNumber]
export function table(columns, rows, chosen = () => false) {
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "table" },
    h("table", {},
      h("thead", {}, h("tr", {}, columns.map(([title, , n]) =>
        h("th", { scope: "col", class: n ? "n" : null }, title)))),
      h("tbody", {}, rows.map((row) => h("tr", { class: chosen(row) ? "chosen" : null },
        columns.map(([, cell, n]) => h("td", { class: n ? "n" : null }, cell(row))))))));
}

// rows: [name, value, text, title]; a bar's length is the value's share of the largest.
export function bars(rows) {
  const most = Math.max(...rows.map(([, value]) => value), Number.MIN_VALUE);
  return h("table", { class: "bars" }, h("tbody", {}, rows.map(([name, value, text, title]) => {
    const bar = h("div", { class: "bar" });
    bar.style.width = `${100 * Math.max(0, value) / most}%`;
    return h("tr", { title }, h("td", {}, name), h("td", { class: "n" }, text), h("td", {}, bar));
  })));
}
