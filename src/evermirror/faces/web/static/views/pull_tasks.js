// Every pull, newest first, each with all that is known of it.
import { query } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { moment, size } from "../lib/format.js";
import { empty, facts, repoLink, section, when } from "../lib/parts.js";
import { many, number, word, wordOr } from "../lib/words.js";
import { waitWords } from "./pull_progress.js";

const AT = "/api/pull/tasks";
const STEP = 25;
const MOST = 1000;  // of one answer
const STATUSES = ["running", "pending", "failed", "success", "skipped"];
const KINDS = { success: "success", failed: "failing", running: "active" };

export function tasksOf(ctx) {
  let told = null, status = "", shown = STEP;
  const opened = new Map();  // by id: the pull in full, null while it is asked for
  const may = ctx.session.may("reader");

  const look = () => {
    if (!may) return;
    const [mine, limit] = [status, shown];
    ctx.load(`${AT}${query({ status, limit })}`, (answer) => { if (mine === status && limit === shown) told = answer; });
    for (const [id, full] of opened) if (!full || !full.completed_at) lookAtOne(id);
  };
  const lookAtOne = (id) => ctx.load(`${AT}/${id}`, (answer) => opened.has(id) && opened.set(id, answer));

  function turnedOpen(id, open) {
    if (!open) {
      opened.delete(id);
      ctx.forget(`${AT}/${id}`);
    } else if (!opened.has(id)) {
      opened.set(id, null);
      lookAtOne(id);
    }
  }

  function choose(next) {
    [status, shown, told] = [next, STEP, null];
    look();
    ctx.draw();
  }

  const one = (task) => h("li", { key: task.task_id },
    h("details", { class: "pu-task", on: { toggle: (event) => turnedOpen(task.task_id, event.target.open) } },
      h("summary", null,
        h("span", { class: `status st-${KINDS[task.status] ?? "pending"}` }, wordOr(`pu_t_${task.status}`, task.status)), " ",
        h("bdi", { class: "key" }, task.project_key), " ",
        h("span", { class: "quiet small" }, [
          wordOr(`pu_by_${task.trigger_type}`, task.trigger_type), " · ", when(task.completed_at ?? task.started_at ?? task.scheduled_at),
          task.duration_seconds !== null && ` · ${word("pu_took", number(task.duration_seconds, 2))}`,
          task.changes_count > 0 && ` · ${many("pu_commits", task.changes_count)}`,
        ]),
        task.error_message && h("span", { class: "pu-error" }, wordOr(`k_${task.error_type}`, task.error_type), ": ", task.error_message)),
      details(opened.get(task.task_id))));

  function render() {
    if (!may) return section("tasks", word("pu_tasks"), empty(word("pu_tasks_reader")));
    return section("tasks", word("pu_tasks"),
      h("label", { class: "pu-tools" }, h("span", null, word("pu_tasks_status")),
        h("select", { value: status, on: { change: (event) => choose(event.target.value) } },
          ["", ...STATUSES].map((value) => h("option", { key: value, value }, value ? word(`pu_t_${value}`) : word("pu_tasks_all"))))),
      !told ? empty(word("loading")) : told.items.length ? h("ul", { class: "plain" }, told.items.map(one)) : empty(word("pu_no_tasks")),
      told && told.next_before !== null && shown < MOST && h("p", null, h("button", {
        type: "button", on: { click: () => { shown = Math.min(MOST, shown + STEP); look(); } },
      }, word("pu_older"))));
  }

  return { look, render };
}

function details(task) {
  if (task === undefined) return null;
  if (task === null) return empty(word("loading"));
  const error = task.error;
  return [
    facts([
      [word("pu_project"), repoLink(task.project_key)],
      [word("pu_task"), `#${task.task_id}`],
      [word("pu_progress"), task.waiting ? waitWords(task.waiting) : task.status === "running" ? task.progress : null],
      [word("pu_scheduled"), at(task.scheduled_at)],
      [word("pu_started"), at(task.started_at)],
      [word("pu_completed"), at(task.completed_at)],
      [word("pu_trigger_type"), wordOr(`pu_by_${task.trigger_type}`, task.trigger_type)],
      [word("pu_user"), task.trigger_user],
      [word("pu_commits"), task.has_changes ? number(task.changes_count) : null],
      [word("pu_received"), task.received_bytes === null ? null : size(task.received_bytes)],
      [word("pu_source_commit"), task.source_commit_sha && h("code", { class: "key" }, task.source_commit_sha)],
      [word("pu_target_commit"), task.target_commit_sha && h("code", { class: "key" }, task.target_commit_sha)],
      [word("pu_retry"), task.retry_count > 0 ? number(task.retry_count) : null],
      [word("pu_repeated"), task.repeated > 0 ? number(task.repeated) : null],
    ]),
    error && errorPart(error),
    task.pushes.length > 0 && pushes(task.pushes),
  ];
}

const at = (iso) => iso && moment(iso);

function errorPart(error) {
  const said = (label, text) => text && [h("h3", null, label), h("pre", { class: "words", tabindex: 0 }, text)];
  return h("div", { key: "error" },
    h("h3", null, word("pu_error")),
    facts([
      [word("pu_kind"), wordOr(`k_${error.error_type}`, error.error_type)],
      [word("pu_error"), error.error_message],
      [word("pu_hint"), error.hint],
      [word("pu_source"), error.source_url && h("bdi", null, error.source_url)],
      [word("pu_target"), error.target_url && h("bdi", null, error.target_url)],
      [word("pu_command"), error.git_command && h("code", null, error.git_command)],
      [word("pu_versions"), error.versions && Object.entries(error.versions).map(([name, version]) => `${name} ${version}`).join(", ")],
    ]),
    said(word("pu_stderr"), error.stderr), said(word("pu_stdout"), error.stdout), said(word("pu_traceback"), error.traceback));
}

function pushes(list) {
  return h("div", { key: "pushes" }, h("h3", null, word("pu_pushes")),
    h("ul", { class: "plain" }, list.map((push, i) => h("li", { key: i },
      h("bdi", { class: "key" }, push.target_url ?? word("pu_gone_target")),
      h("div", { class: "small" }, word("pu_push_line", number(push.put_total ?? 0), number(push.deleted_total ?? 0), number(push.waiting_total ?? 0))),
      push.failure && h("div", { class: "bad small key" }, push.failure.message),
      push.warning && h("div", { class: "warn small key" }, push.warning),
      h("ul", { class: "small" }, (push.refs ?? []).filter((ref) => ref.reason).slice(0, 20).map((ref) => h("li", { key: ref.ref },
        h("bdi", { class: "key" }, ref.ref), ": ", ref.reason)))))));
}
