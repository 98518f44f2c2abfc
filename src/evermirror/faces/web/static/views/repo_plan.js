// When a repository is looked at next, and why then: a line of time, and the reasoning step by step.
import { timeline } from "../lib/chart.js";
import { h } from "../lib/dom.js";
import { ago, moment, now as current, sinceIso, span } from "../lib/format.js";
import { section, when } from "../lib/parts.js";
import { word, wordOr } from "../lib/words.js";

const APART = 0.14;  // of the line: closer marks would write over each other

export default function plan({ plan: told }) {
  return section("plan", word("rp_plan"), verdict(told), drawn(told), reasoning(told));
}

function verdict(told) {
  if (!told.next_poll_at) return h("p", { key: "next" }, word("rp_plan_none"));
  return h("p", { key: "next" }, word("rp_plan_next"), " ", h("b", null, when(told.next_poll_at)));
}

function drawn(told) {
  if (!told.next_poll_at) return null;
  const next = Date.parse(told.next_poll_at), now = current();
  const last = told.last_poll_at ? Date.parse(told.last_poll_at) : null;
  const ends = [
    ...(last === null ? [] : [{ id: "quiet", ms: last, text: word("rp_mark_last") }]),
    { id: "low", ms: now, text: word("rp_mark_now") },
    { id: "main", ms: next, text: word("rp_mark_next") },
  ];
  const spans = last === null ? [] : [{ id: "quiet", from: Math.min(last, now), to: now, text: word("rp_mark_last") }];
  return timeline({ key: "line", title: word("rp_plan_line"), marks: [...ends, ...between(told, ends)], spans, xFormat: (ms) => moment(new Date(ms).toISOString()) });
}

/** Where steps before the last would have had it looked at, as far as there is room. */
function between(told, ends) {
  const times = ends.map((mark) => mark.ms), range = Math.max(...times) - Math.min(...times) || 1;
  const marks = [];
  for (const step of (told.steps ?? []).filter((one) => one.at && one.code !== "last_poll")) {
    const ms = Date.parse(step.at);
    if ([...ends, ...marks].every((mark) => Math.abs(mark.ms - ms) > APART * range)) marks.push({ id: "warn", ms, text: wordOr(`rp_mark_${step.code}`, step.code) });
  }
  return marks;
}

function reasoning(told) {
  const steps = told.steps ?? [];
  if (!steps.length) return h("p", { key: "reason", class: "quiet" }, told.reason);
  return h("ol", { key: "steps", class: "steps" }, steps.map((step, i) =>
    h("li", { key: `${i} ${step.code}` }, sentence(step), step.at && step.code !== "last_poll" && h("span", { class: "quiet" }, ` → ${sinceIso(step.at) < 0 ? ago(step.at) : word("rp_mark_now")}`))));
}

/** A step that the page has no words for is told in the server's. */
const sentence = (step) => {
  const name = step.code === "budget" && !step.at ? "rp_step_full" : `rp_step_${step.code}`;
  const s = step.s === null || step.s === undefined ? "–" : step.s < 1 ? word("rp_less") : span(step.s);
  return wordOr(name, null) === null ? step.detail || step.code : word(name, s, step.at ? ago(step.at) : "–", step.detail);
};
