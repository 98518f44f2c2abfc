// Small charts, drawn as SVG. Each is a figure: the drawing for the eyes, and the same numbers as a table.
import { fold, h } from "./dom.js";
import { word } from "./words.js";

// In the drawing's own units; it is shown as wide as there is room, and its texts must stay readable.
const NARROW = 380, WIDE = 620;
const little = matchMedia("(max-width: 40rem)");
const widthOf = (small) => (small || narrow() ? NARROW : WIDE);
const LEFT = 54, RIGHT = 8, TOP = 8, BOTTOM = 22;

/** Whether there is little room: charts are then drawn otherwise. */
export const narrow = () => little.matches;

/** Lines over time.
 * series: [{id, name, points: [[ms, value|null]]}]: `id` gives its colour (class `s-<id>`);
 * format: a value as text; xFormat: ms as text; min, max: of the axis, else by the values. */
export function lines({ key, title, series, format, xFormat, min = 0, max = null, height = 180, small = false }) {
  const all = series.flatMap((s) => s.points);
  const values = all.map(([, v]) => v).filter((v) => v !== null);
  if (!values.length) return h("p", { key, class: "quiet" }, word("no_data_yet"));
  const times = all.map(([t]) => t);
  const across = [Math.min(...times), Math.max(...times)], up = [min, max ?? (Math.max(...values) * 1.05 || 1)];
  const scale = scales(across, up, widthOf(small), height);
  const drawing = h(
    "svg",
    { viewBox: `0 0 ${scale.width} ${height}`, class: "chart", role: "img", "aria-label": title },
    axis(scale, format, xFormat, height),
    series.map((s) => path(s, scale)),
    series.length > 1 && series.map((s) => lastDot(s, scale)),
  );
  return figure({ key, title, drawing, legend: series.length > 1 ? series : [], table: () => timeTable(series, format, xFormat) });
}

/** Columns, one for each item: {label, value, parts?: [{id, value}], text}. */
export function columns({ key, title, items, format, height = 120, labels = 6, small = false }) {
  if (!items.length) return h("p", { key, class: "quiet" }, word("no_data_yet"));
  const scale = scales([0, items.length], [0, Math.max(...items.map((i) => i.value)) || 1], widthOf(small), height);
  const every = Math.max(1, Math.ceil(items.length / labels));
  const wide = (scale.width - LEFT - RIGHT) / items.length;
  const drawing = h(
    "svg",
    { viewBox: `0 0 ${scale.width} ${height}`, class: "chart", role: "img", "aria-label": title },
    yAxis(scale, format),
    items.map((item, i) => bar(item, scale.x(i), wide, scale, height)),
    items.map((item, i) => i % every === 0 && label(scale.x(i) + wide / 2, height - 6, item.label, "middle")),
  );
  const table = () => ({ head: [word("when"), title], rows: items.map((i) => [i.label, i.text ?? format(i.value)]) });
  return figure({ key, title, drawing, legend: [], table });
}

/** Marks on one line of time: marks: [{id, ms, text}], spans: [{id, from, to, text}]. */
export function timeline({ key, title, marks, spans = [], xFormat }) {
  const times = [...marks.map((m) => m.ms), ...spans.flatMap((s) => [s.from, s.to])];
  const from = Math.min(...times), to = Math.max(...times, from + 1000);
  const width = widthOf(false), height = 74, y = 40;
  const x = (ms) => LEFT + ((ms - from) / (to - from)) * (width - 2 * LEFT);
  const drawing = h(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": title },
    h("line", { class: "axis", x1: LEFT, x2: width - LEFT, y1: y, y2: y }),
    spans.map((s) => h("rect", { class: `fill s-${s.id}`, x: x(s.from), y: y - 4, width: Math.max(1, x(s.to) - x(s.from)), height: 8, rx: 4 },
      h("title", null, s.text))),
    spread(marks.map((m) => ({ ...m, x: x(m.ms) }))).map((m) => [
      h("circle", { class: `dot s-${m.id}`, cx: m.x, cy: y, r: 6 }, h("title", null, m.text)),
      label(m.at, m.above ? 20 : 64, m.text, m.at < 140 ? "start" : m.at > width - 140 ? "end" : "middle"),
    ]),
  );
  const rows = () => [...marks].sort((a, b) => a.ms - b.ms).map((m) => [xFormat(m.ms), m.text]);
  return figure({ key, title, drawing, legend: [], table: () => ({ head: [word("when"), word("what")], rows: rows() }) });
}

/** Neighbours write above and below the line by turns. */
function spread(marks) {
  return [...marks].sort((a, b) => a.ms - b.ms).map((m, i) => ({ ...m, at: m.x, above: i % 2 === 0 }));
}

function figure({ key, title, drawing, legend, table }) {
  return h(
    "figure",
    { key, class: "figure" },
    h("figcaption", null, title,
      legend.length > 0 && h("span", { class: "legend" }, legend.map((s) => h("span", { class: `s-${s.id}` }, s.name)))),
    drawing,
    fold({ class: "as-table" }, h("summary", null, word("as_table")), () => inNumbers(title, table())),
  );
}

function inNumbers(title, { head, rows }) {
  return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": title }, h("table", null,
    h("thead", null, h("tr", null, head.map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", null, rows.map((row, i) => h("tr", { key: i }, row.map((t) => h("td", null, t)))))));
}

function timeTable(series, format, xFormat) {
  const times = [...new Set(series.flatMap((s) => s.points.map(([t]) => t)))].sort((a, b) => b - a);
  const by = series.map((s) => new Map(s.points));
  const rows = times.map((t) => [xFormat(t), ...by.map((m) => (m.get(t) === null || m.get(t) === undefined ? "–" : format(m.get(t))))]);
  return { head: [word("when"), ...series.map((s) => s.name)], rows };
}

function scales([x0, x1], [y0, y1], width, height) {
  return {
    width,
    x: (v) => LEFT + ((v - x0) / (x1 - x0 || 1)) * (width - LEFT - RIGHT),
    y: (v) => height - BOTTOM - ((Math.min(v, y1) - y0) / (y1 - y0 || 1)) * (height - TOP - BOTTOM),
    x0, x1, y0, y1,
  };
}

/** A gap in what is known is a gap in the line; a point alone is a dot. */
function path(s, scale) {
  let text = "", open = false;
  const alone = [];
  s.points.forEach(([t, v], i) => {
    if (v === null) { open = false; return; }
    const after = s.points[i + 1]?.[1] ?? null;
    if (!open && after === null) alone.push([t, v]);
    text += `${open ? "L" : "M"}${scale.x(t).toFixed(1)} ${scale.y(v).toFixed(1)}`;
    open = true;
  });
  return [
    h("path", { class: `line s-${s.id}`, d: text || "M0 0" }),
    alone.map(([t, v]) => h("circle", { class: `dot s-${s.id}`, cx: scale.x(t), cy: scale.y(v), r: 2.5 })),
  ];
}

function lastDot(s, scale) {
  const last = [...s.points].reverse().find(([, v]) => v !== null);
  return last && h("circle", { class: `dot s-${s.id}`, cx: scale.x(last[0]), cy: scale.y(last[1]), r: 3.5 });
}

function bar(item, x, wide, scale, height) {
  const gap = Math.min(3, wide * 0.2), foot = height - BOTTOM;
  let top = foot;
  const parts = item.parts ?? [{ id: "main", value: item.value }];
  return h("g", null,
    h("title", null, `${item.label}: ${item.text ?? item.value}`),
    h("rect", { class: "hit", x, y: TOP, width: wide, height: foot - TOP }),
    parts.map((part) => {
      const tall = part.value ? Math.max(1, foot - scale.y(part.value)) : 0;
      top -= tall;
      return h("rect", { class: `fill s-${part.id}`, x: x + gap / 2, y: top, width: Math.max(1, wide - gap), height: tall });
    }));
}

function axis(scale, format, xFormat, height) {
  const steps = scale.x1 > scale.x0 ? 4 : 0;  // a single point has a single time
  return [
    yAxis(scale, format),
    Array.from({ length: steps + 1 }, (_, i) => {
      const t = scale.x0 + ((scale.x1 - scale.x0) * i) / (steps || 1);
      return label(scale.x(t), height - 6, xFormat(t), i === 0 ? "start" : i === steps ? "end" : "middle");
    }),
  ];
}

function yAxis(scale, format) {
  return [0, 0.5, 1].map((share) => {
    const v = scale.y0 + (scale.y1 - scale.y0) * share;
    return [
      h("line", { class: "grid", x1: LEFT, x2: scale.width - RIGHT, y1: scale.y(v), y2: scale.y(v) }),
      label(LEFT - 6, scale.y(v) + 4, format(v), "end"),
    ];
  });
}

const label = (x, y, text, anchor) => h("text", { x, y, "text-anchor": anchor }, text);
