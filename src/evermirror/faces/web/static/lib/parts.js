// What several views are made of.
import { h } from "./dom.js";
import { ago, moment, percent } from "./format.js";
import { href } from "./route.js";
import { word, wordOr } from "./words.js";

/** A part of a view, with its heading; `side` stands at the right of it. */
export function section(id, title, ...children) {
  return h("section", { key: id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), children);
}

/** Figures with their names: [[name, value, class]]. */
export const figures = (items) =>
  h("dl", { class: "figures" }, items.map(([name, value, kind]) =>
    h("div", { key: name }, h("dt", null, name), h("dd", { class: kind ?? "" }, value))));

/** Facts as a list of names and values: [[name, ...nodes]]; those without a value are left out. */
export const facts = (items) =>
  h("dl", { class: "facts" }, items.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, ...value]) => h("div", { key: name }, h("dt", null, name), h("dd", null, value))));

/** A time as "5 min ago", with the whole of it for who asks. */
export const when = (iso) => (iso ? h("time", { datetime: iso, title: moment(iso) }, ago(iso)) : "–");

export const status = (name) => h("span", { class: `status st-${name}` }, wordOr(`s_${name}`, name));

export const repoLink = (key) => h("a", { class: "key", href: href("repo", key) }, h("bdi", null, key));

/** How far something is; null: nobody knows. */
export function bar(percentage, label) {
  const known = percentage !== null && percentage !== undefined;
  return h("progress", known
    ? { max: 100, value: Math.round(percentage), "aria-label": label }
    : { max: 100, "aria-label": label });
}

/** A share of something that should not be full. */
export function meter(used, total, label) {
  const share = total ? used / total : 0;
  const kind = share >= 0.95 ? "bad" : share >= 0.85 ? "warn" : "";
  return h("span", { class: "meter" }, h("meter", { min: 0, max: 1, high: 0.85, optimum: 0, value: share.toFixed(3), "aria-label": label }),
    h("span", { class: kind }, percent(share)));
}

export const empty = (text = word("nothing")) => h("p", { class: "quiet" }, text);

/** A table in a box that scrolls sideways where there is no room.
 * columns: [{id, label, cell: (row) => node(s), sort?: name, number?: bool}];
 * sort: "name" or "-name", onSort(name); selected: Set, onSelect(key, on), onSelectAll(on). */
export function table({ key, caption, columns, rows, keyOf, sort, onSort, selected, onSelect, onSelectAll }) {
  const all = selected && rows.length > 0 && rows.every((row) => selected.has(keyOf(row)));
  const some = selected && rows.some((row) => selected.has(keyOf(row)));
  return h("div", { key, class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", null,
      h("caption", { class: "unseen" }, caption),
      h("thead", null, h("tr", null,
        selected && h("th", { scope: "col", class: "pick" }, h("input", {
          type: "checkbox", checked: all, indeterminate: some && !all, "aria-label": word("select_all"),
          on: { change: (event) => onSelectAll(event.target.checked) },
        })),
        columns.map((column) => heading(column, sort, onSort)))),
      h("tbody", null, rows.map((row) => h("tr", { key: keyOf(row), class: selected?.has(keyOf(row)) ? "picked" : "" },
        selected && h("td", { class: "pick" }, h("input", {
          type: "checkbox", checked: selected.has(keyOf(row)), "aria-label": word("select_one", keyOf(row)),
          on: { change: (event) => onSelect(keyOf(row), event.target.checked) },
        })),
        columns.map((column) => h("td", { class: column.number ? "number" : "", "data-label": column.label }, column.cell(row))))))));
}

function heading(column, sort, onSort) {
  if (!column.sort) return h("th", { scope: "col", class: column.number ? "number" : "" }, column.label);
  const turned = sort === column.sort ? "ascending" : sort === `-${column.sort}` ? "descending" : null;
  const next = turned === "ascending" ? `-${column.sort}` : column.sort;
  const arrow = { ascending: " ▲", descending: " ▼" }[turned] ?? "";
  return h("th", { scope: "col", class: column.number ? "number" : "", "aria-sort": turned },
    h("button", { type: "button", class: "plain", on: { click: () => onSort(next) } }, column.label, h("span", { "aria-hidden": "true" }, arrow)));
}
