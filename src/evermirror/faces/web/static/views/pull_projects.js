// Projects by priority: how each is, and what may be asked of it.
import { ask, query } from "../lib/api.js";
import { complain, confirm, notice } from "../lib/dialog.js";
import { h } from "../lib/dom.js";
import { sinceIso, span } from "../lib/format.js";
import { empty, section, table, when } from "../lib/parts.js";
import { go, href } from "../lib/route.js";
import { lang, number, word } from "../lib/words.js";
import { waitWords, waitingWords } from "./pull_progress.js";

const AT = "/api/pull/projects";
const SIZE = 50;
const TYPING_MS = 250;
const MINUTE_S = 60;
const PRIORITIES = ["critical", "high", "normal", "low"];

/** A key holds slashes; as `%2F` they are always its own. */
const at = (project, part) => `${AT}/${encodeURIComponent(project.key)}/${part}`;

export function projectsOf(ctx) {
  let told = null, which = read(ctx.query), typing = 0, asked = 0;
  ctx.signal.addEventListener("abort", () => clearTimeout(typing));

  const look = () => {
    const mine = asked += 1;
    return ctx.load(`${AT}${query({ ...which, size: SIZE })}`, (answer) => {
      if (mine === asked) told = answer;  // another search may have been answered first
    });
  };
  const turned = (next) => {
    const now = read(next);
    if (JSON.stringify(now) === JSON.stringify(which)) return;
    which = now;
    look();
  };
  const choose = (change) => go("pull", "", shortened({ ...which, page: 1, ...change }), { replace: true });
  const search = (text) => {
    clearTimeout(typing);
    typing = setTimeout(() => choose({ search: text.trim() }), TYPING_MS);
  };

  const toolbar = () => h("div", { class: "pu-tools", role: "search" },
    h("label", null, h("span", { class: "unseen" }, word("pu_search")),
      h("input", { type: "search", value: which.search, placeholder: word("pu_search"), autocomplete: "off", maxlength: 200, on: { input: (event) => search(event.target.value) } })),
    h("label", null, h("span", { class: "unseen" }, word("pu_priority")),
      h("select", { value: which.priority, on: { change: (event) => choose({ priority: event.target.value }) } },
        [["", word("pu_any")], ...PRIORITIES.map((p) => [p, word(`p_${p}`)])].map(([value, text]) => h("option", { key: value, value }, text)))),
    ctx.session.may("operator") && h("button", { type: "button", on: { click: () => batch(ctx, look) } }, word("pu_batch")));

  function render() {
    return section("projects", told ? word("pu_projects_n", number(told.total)) : word("pu_projects"),
      toolbar(),
      !told ? empty(word("loading")) : told.items.length ? projectsTable(ctx, told.items, look)
        : empty(word(which.search || which.priority ? "pu_none_found" : "pu_no_projects")),
      told && told.total > told.size && pages(told, (page) => choose({ page })));
  }

  return { look, turned, render };
}

const read = (q) => ({ search: q.search ?? "", priority: PRIORITIES.includes(q.priority) ? q.priority : "", page: Math.max(1, Number.parseInt(q.page, 10) || 1) });
const shortened = ({ page, ...rest }) => ({ ...rest, page: page > 1 ? page : "" });

function pages({ page, size, total }, turn) {
  const last = Math.ceil(total / size);
  return h("p", { class: "buttons" },
    h("button", { type: "button", "aria-disabled": page <= 1 ? "true" : null, on: { click: () => page > 1 && turn(page - 1) } }, word("pu_before")),
    h("span", { class: "quiet" }, word("pu_page", number(page), number(last))),
    h("button", { type: "button", "aria-disabled": page >= last ? "true" : null, on: { click: () => page < last && turn(page + 1) } }, word("pu_after")));
}

function projectsTable(ctx, items, look) {
  const may = ["submitter", "operator"].some((role) => ctx.session.may(role));
  return table({
    key: "projects-table",
    caption: word("pu_projects"),
    rows: items,
    keyOf: (one) => one.key,
    columns: [
      { id: "name", label: word("pu_project"), cell: (one) => h("a", { class: "key", href: href("repo", one.key) }, h("bdi", null, one.project_key)) },
      { id: "priority", label: word("pu_priority"), cell: priority },
      { id: "state", label: word("pu_state"), cell: state },
      { id: "last", label: word("pu_last"), cell: (one) => (one.last_sync_at ? when(one.last_sync_at) : word("pu_never")) },
      { id: "delay", label: word("pu_delay_now"), number: true, cell: (one) => (one.last_sync_at ? span(sinceIso(one.last_sync_at)) : "–") },
      { id: "interval", label: word("pu_interval"), number: true, cell: (one) => span(one.sync_interval * MINUTE_S) },
      { id: "next", label: word("pu_next"), cell: (one) => (one.enabled ? when(one.next_sync_at) : "–") },
      { id: "failures", label: word("pu_failures"), number: true, cell: (one) => number(one.consecutive_failures) },
      ...(may ? [{ id: "do", label: word("pu_do"), cell: (one) => orders(ctx, one, look) }] : []),
    ],
  });
}

/** Of one that fails also the class that it counts as. */
function priority(one) {
  const own = word(`p_${one.priority}`);
  if (one.effective_priority === one.priority) return own;
  return [own, h("div", { class: "small warn" }, word("pu_counts_as", word(`p_${one.effective_priority}`)))];
}

function state(one) {
  const failing = one.targets.find((target) => target.paused || target.failures > 0);
  const [name, kind, why] = one.running ? ["running", "active", ""]
    : !one.enabled ? ["paused", "held", one.paused]
      : one.consecutive_failures > 0 ? ["failing", "failing", one.last_error?.error_message]
        : one.task_id !== null ? ["waiting", "pending", one.waiting && waitWords(one.waiting)]
          : failing ? ["target", "held", failing.last_error?.error_message]
            : one.last_sync_at ? ["good", "active", ""] : ["new", "pending", ""];
  return [h("span", { class: `status st-${kind}` }, word(`pu_p_${name}`)), why && h("div", { class: "small quiet pu-why" }, why)];
}

function orders(ctx, one, look) {
  const fails = one.consecutive_failures > 0 || one.paused || one.targets.some((target) => target.paused || target.failures > 0);
  const button = (name, act) => h("button", {
    key: name, type: "button", "aria-label": word(`pu_${name}_one`, one.project_key), on: { click: () => act(ctx, one, look) },
  }, word(`pu_${name}`));
  return h("div", { class: "buttons" },
    one.enabled && !one.running && button("trigger", trigger),
    ctx.session.may("operator") && [
      fails && button("reset", reset),
      one.enabled ? button("pause", pause) : button("resume", resume),
    ]);
}

async function trigger(ctx, one, look) {
  const made = await ctx.act(at(one, "trigger"), { body: { force: false } });
  if (made) notice(word("pu_triggered", one.project_key, made.task_id));
  look();
}

async function reset(ctx, one, look) {
  if (await ctx.act(at(one, "reset-failures"))) notice(word("pu_reset_done", one.project_key));
  look();
}

async function pause(ctx, one, look) {
  const sure = await confirm({ title: word("pu_pause_title", one.project_key), lines: [word("pu_pause_line")], action: word("pu_pause_do") });
  if (sure && await ctx.act(at(one, "config"), { method: "PUT", body: { enabled: false } })) notice(word("pu_pause_done", one.project_key));
  look();
}

async function resume(ctx, one, look) {
  if (await ctx.act(at(one, "config"), { method: "PUT", body: { enabled: true } })) notice(word("pu_resume_done", one.project_key));
  look();
}

/** All of a class, once it is known how many those are. */
async function batch(ctx, look) {
  let counts;
  try {
    counts = await Promise.all(PRIORITIES.map(async (priority) => [priority, (await ask(`${AT}${query({ priority, size: 1 })}`, { signal: ctx.signal })).total]));
  } catch (error) {
    complain(error);
    return;
  }
  const some = counts.filter(([, total]) => total > 0);
  if (!some.length) {
    notice(word("pu_batch_none"), "quiet");
    return;
  }
  const option = ([p, total]) => [p, word(total === 1 && lang === "en" ? "pu_batch_option_one" : "pu_batch_option", word(`p_${p}`), number(total))];
  const told = await confirm({
    title: word("pu_batch_title"), lines: [word("pu_batch_line")], action: word("pu_batch_do"),
    fields: [{ name: "priority", label: word("pu_batch_field"), type: "select", value: some[0][0], options: some.map(option) }],
  });
  if (!told) return;
  const done = await ctx.act("/api/pull/trigger/batch", { body: { priority: told.priority } });
  if (done) {
    const counts = [done.created_tasks, done.already_pending, done.skipped_running, done.disabled.length].map((n) => number(n));
    notice([word("pu_batch_done", ...counts), ...done.waiting.map(waitingWords)].join(". "));
  }
  look();
}
