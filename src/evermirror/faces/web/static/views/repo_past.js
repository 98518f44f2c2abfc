// What happened to a repository: pushes that were seen, and syncs.
import { columns } from "../lib/chart.js";
import { h } from "../lib/dom.js";
import { day, moment, span } from "../lib/format.js";
import { bar, empty, section, status, table, when } from "../lib/parts.js";
import { many, number, word, wordOr } from "../lib/words.js";
import { phase } from "./repo_state.js";

export function pushes({ data }) {
  if (data === null) return null;
  const all = data.days.reduce((sum, one) => sum + one.pushes, 0);
  return section("pushes", word("rp_pushes"),
    all > 0
      ? columns({ key: "days", title: word("rp_pushes_title"), format: (value) => number(value, 1), items: data.days.map(column) })
      : empty(word("rp_no_pushes")),
    data.since && h("p", { key: "since", class: "quiet small" }, word("rp_pushes_since", moment(data.since))));
}

const column = (one) => ({
  label: day(`${one.day}T12:00:00`), value: one.pushes,  // noon: the same day in every zone
  text: `${many("rp_push", one.pushes)}, ${many("rp_commit", one.commits)}`,
});

export function tasks({ data }, running) {
  if (data === null) return null;
  return section("tasks", word("rp_tasks"), data.items.length
    ? table({ key: "table", caption: word("rp_tasks"), rows: data.items, keyOf: (task) => task.task_id, columns: [
      { id: "when", label: word("rp_when"), cell: (task) => when(task.started_at ?? task.created_at) },
      { id: "trigger", label: word("rp_trigger"), cell: (task) => wordOr(`rp_tr_${task.trigger}`, task.trigger) },
      { id: "status", label: word("rp_outcome"), cell: (task) => [state(task.status), outcome(task, running)] },
      { id: "took", label: word("rp_took"), number: true, cell: (task) => took(task) },
    ] })
    : empty(word("rp_no_tasks")));
}

const state = (name) => h("span", { class: `status st-${name}` }, wordOr(`t_${name}`, name));

function took({ result }) {
  if (result?.duration_s === undefined || result.duration_s === null) return "–";
  return result.duration_s < 10 ? word("span_s", number(result.duration_s, 2)) : span(result.duration_s);
}

function outcome(task, running) {
  if (task.status === "running") return progress(task, running);
  const result = task.result;
  if (!result) return null;
  if (task.status === "failure") return h("div", { class: "small" },
    h("div", { class: "bad key" }, h("bdi", null, result.error_message)), result.hint && h("div", { class: "quiet" }, result.hint));
  if (result.ref) return h("div", { class: "small key" }, h("bdi", null, result.ref));
  if (!task.has_changes) return null;
  const parts = [many("rp_ref", result.changes_total ?? 0), many("rp_commit", task.new_commits)];
  return h("div", { class: "quiet small" }, [result.first && word("rp_first"), ...parts].filter(Boolean).join(", "));
}

function progress(task, running) {
  const told = task.progress === null ? null : Number.parseFloat(task.progress);
  return h("div", { class: "small" }, h("bdi", null, phase(running?.phase ?? task.phase)), bar(running?.percent ?? told, word("rp_syncing")));
}
