// How the last day went, as charts.
import { columns, lines } from "../lib/chart.js";
import { h } from "../lib/dom.js";
import { percent, shortClock, size, span } from "../lib/format.js";
import { compact, number, word } from "../lib/words.js";

const PRIORITIES = ["critical", "high", "normal", "low"];

export function courseCharts({ items }) {
  const at = items.map((item) => Date.parse(item.at));
  const present = PRIORITIES.filter((p) => items.some((item) => (item.by_priority[p]?.live ?? 0) > 0));
  const by = (p, value) => items.map((item, i) => [at[i], item.by_priority[p]?.live ? value(item.by_priority[p]) : null]);
  const share = present.map((p) => ({ id: p, name: word(`p_${p}`), points: by(p, (one) => one.fresh / one.live) }));
  const lag = present.map((p) => ({ id: p, name: word(`p_${p}`), points: by(p, (one) => one.worst_lag_s) }));
  return [h("div", { key: "lines", class: "charts" },
    lines({ key: "share", title: word("course_fresh"), series: share, format: percent, xFormat: shortClock, min: floor(share), max: 1 }),
    lines({ key: "lag", title: word("course_lag"), series: lag, format: span, xFormat: shortClock, height: 180 })),
  h("div", { key: "columns", class: "charts three" }, activity(items, at))];
}

/** The axis begins at 0 %, 50 % or 90 %, so that small troubles are seen. */
function floor(series) {
  const least = Math.min(...series.flatMap((s) => s.points.map(([, v]) => v ?? 1)), 1);
  return least > 0.905 ? 0.9 : least > 0.55 ? 0.5 : 0;
}

function activity(items, at) {
  const of = (key, title, field, format, axis = format) => columns({
    key, title, format: axis, height: 110, labels: 4, small: true,
    items: items.map((item, i) => ({ label: shortClock(at[i]), value: item[field] ?? 0, text: item[field] === null ? "–" : format(item[field]) })),
  });
  return [
    of("polls", word("course_polls"), "polls", number, compact),
    of("changes", word("course_changes"), "changes", number, compact),
    of("bytes", word("course_bytes"), "received_bytes", size),
  ];
}
