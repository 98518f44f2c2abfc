// How far projects are: now, by class, and over the last day.
import { lines } from "../lib/chart.js";
import { h } from "../lib/dom.js";
import { percent, shortClock, span } from "../lib/format.js";
import { empty, figures, section, table } from "../lib/parts.js";
import { href } from "../lib/route.js";
import { number, word } from "../lib/words.js";

const PRIORITIES = ["critical", "high", "normal", "low"];
const MINUTE_S = 60;

export function progressPart(p, classes, strategy) {
  return section("progress", word("pu_now"),
    strategy && notes(strategy),
    p.waiting.map((one) => h("p", { key: `waits-${one.reason}`, class: "warn" }, waitingWords(one))),
    figures([
      [word("pu_total"), number(p.total_projects)],
      [word("pu_synced"), number(p.synced), p.total_projects && p.synced === p.total_projects ? "good" : ""],
      [word("pu_syncing"), number(p.syncing)],
      [word("pu_pending"), number(p.pending)],
      [word("pu_failed"), number(p.failed), p.failed ? "bad" : ""],
      [word("pu_disabled"), number(p.disabled)],
      [word("pu_success"), percent(p.success_rate)],
      [word("pu_delay"), delay(p.average_delay_minutes)],
      ...(strategy ? [[word("pu_limit"), `${number(strategy.running)} / ${number(strategy.current_limit)}`]] : []),
    ]),
    classes && byPriority(classes));
}

/** What a pull waits for. */
export const waitWords = (wait) => word(wait.reason === "peak" && !wait.clock ? "pu_w_peak_always" : `pu_w_${wait.reason}`, wait.clock);

export const waitingWords = (one) => word("pu_waiting_n", number(one.count), waitWords(one));

const delay = (minutes) => span(minutes * MINUTE_S);

function notes(s) {
  return [
    !s.enabled && h("p", { key: "stopped", class: "box warn" }, word("pu_stopped")),
    s.enabled && s.in_peak && h("p", { key: "peak", class: "warn" }, word("pu_in_peak")),
    s.load && s.load.level !== "normal" && h("p", { key: "load", class: s.load.level === "high" ? "warn" : "quiet" }, word(`pu_load_${s.load.level}`, s.load.reason)),
  ];
}

function byPriority(classes) {
  const count = (name, label) => ({ id: name, label: word(label), number: true, cell: (p) => number(classes[p][name]) });
  const day = (name, label) => ({ id: `day-${name}`, label: word(label), number: true, cell: (p) => (classes[p].period ? number(classes[p].period[name]) : "–") });
  return table({
    key: "classes",
    caption: word("pu_by_priority"),
    rows: PRIORITIES.filter((p) => classes[p].total > 0),
    keyOf: (p) => p,
    columns: [
      { id: "priority", label: word("pu_priority"), cell: (p) => h("a", { href: href("pull", "", { priority: p }) }, word(`p_${p}`)) },
      count("total", "pu_total"), count("synced", "pu_synced"), count("syncing", "pu_syncing"), count("pending", "pu_pending"),
      count("failed", "pu_failed"), count("disabled", "pu_disabled"),
      { id: "rate", label: word("pu_success"), number: true, cell: (p) => percent(classes[p].success_rate) },
      { id: "delay", label: word("pu_delay"), number: true, cell: (p) => delay(classes[p].avg_delay_minutes) },
      day("tasks", "pu_day_tasks"), day("failed", "pu_day_failed"), day("changes", "pu_day_changes"),
    ],
  });
}

const STATES = [["synced", "good"], ["pending", "warn"], ["failed", "bad"], ["disabled", "quiet"]];

export function coursePart(course) {
  if (!course) return section("pull-course", word("pu_course"), empty(word("loading")));
  const at = course.map((note) => Date.parse(note.at));
  const points = (value) => course.map((note, i) => [at[i], value(note)]);
  const series = STATES.map(([name, id]) => ({ id, name: word(`pu_${name}`), points: points((note) => note[name]) }));
  return section("pull-course", word("pu_course"), course.length === 0 ? empty(word("no_data_yet")) : [
    lines({ key: "states", title: word("pu_course_projects"), series, format: number, xFormat: shortClock }),
    lines({
      key: "delay", title: word("pu_course_delay"), height: 120, format: span, xFormat: shortClock,
      series: [{ id: "main", name: word("pu_course_delay"), points: points((note) => note.average_delay_minutes * MINUTE_S) }],
    }),
  ]);
}
