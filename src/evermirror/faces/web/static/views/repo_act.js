// What may be done to one repository, and what became of it.
import { Denied, ask, keyPath } from "../lib/api.js";
import { complain, confirm, notice } from "../lib/dialog.js";
import { h } from "../lib/dom.js";
import { number, word, wordOr } from "../lib/words.js";
import { PRIORITIES } from "./repos_order.js";

const LOOK_MS = 2000;  // at a task that has not ended; its end is told live too
const NO_MORE = [401, 403, 404];  // what ended it is not to be learnt here any more
const ORDER_MS = 300, ORDER_LOOKS = 40;

/** `repo()` is the repository as told; `touch(...parts)` and `look()` have it asked for again. */
export default function actions(ctx, { repo, key, touch, look }) {
  let task = null;  // that was asked for here, until its end was told
  let busy = "", timer = 0;
  ctx.signal.addEventListener("abort", () => clearTimeout(timer));
  ctx.on("task.ended", ({ data }) => data.task_id === task?.task_id && check());

  const path = () => `/api/repos/${keyPath(key())}`;
  const put = (info) => ctx.act("/api/git_urls", { body: { git_url: repo().git_url, additional_info: info } });

  /** One thing at a time. Buttons that wait are not disabled, which would take the focus from them. */
  const doing = (name, work) => async () => {
    if (busy) return;
    busy = name;
    ctx.draw();
    try {
      await work();
    } catch (error) {
      complain(error);
    }
    busy = "";
    touch();
    ctx.draw();
  };

  // Tasks

  function follow(made) {
    if (!made) return;
    task = made;
    clearTimeout(timer);
    timer = setTimeout(check, LOOK_MS);
    touch();
  }

  async function check() {
    clearTimeout(timer);
    if (!task) return;
    const mine = task;
    const followed = () => task?.task_id === mine.task_id;  // two may ask at once, and each tells something newer
    let told = null;
    try {
      told = await ask(`/api/tasks/${encodeURIComponent(mine.task_id)}`, { signal: ctx.signal });
    } catch (error) {
      if (error instanceof Denied) ctx.session.learn().catch(() => {});
      if (ctx.signal.aborted) return;
      if (NO_MORE.includes(error.status) && followed()) task = null;
    }
    if (ctx.signal.aborted) return;
    if (!followed()) return ctx.draw();
    if (told && !["pending", "running"].includes(told.status)) {
      task = null;
      notice(...ending(told));
      touch("refs", "pushes", "kept", "targets");
    } else {
      task = { ...task, ...told };
      clearTimeout(timer);
      timer = setTimeout(check, LOOK_MS);
    }
    ctx.draw();
  }

  // Orders

  const sync = async () => follow(await ctx.act("/api/tasks", { body: { git_url: repo().git_url } }));

  const pause = async () => {
    const on = !repo().enabled;
    if (await put({ enabled: on })) notice(word(on ? "rp_resumed" : "rp_paused"));
  };

  async function priority() {
    const told = await confirm({
      title: word("rp_priority_ask"), action: word("rp_priority_do"),
      fields: [{ name: "priority", label: word("rp_priority"), type: "select", value: repo().priority, options: PRIORITIES.map((p) => [p, word(`p_${p}`)]) }],
    });
    if (told && await put({ priority: told.priority })) notice(word("rp_priority_set", word(`p_${told.priority}`)));
  }

  /** The same as for many: an order for one. */
  async function reset() {
    let order = await ctx.act("/api/bulk", { body: { action: "reset", keys: [key()], expected: 1 } });
    for (let i = 0; order?.status === "running" && i < ORDER_LOOKS; i += 1) {
      await new Promise((later) => setTimeout(later, ORDER_MS));
      order = await ask(`/api/bulk/${order.id}`, { signal: ctx.signal });
    }
    if (!order) return;
    if (order.status === "running") notice(word("rp_order_waits"));
    else if (order.failed || order.status === "failed") notice(order.first_error ?? word("rp_order_failed"), "bad");
    else notice(word(order.unchanged ? "rp_reset_nothing" : "rp_reset_done"));
  }

  async function remove() {
    const sure = await confirm({
      title: word("rp_remove_ask"), lines: [h("bdi", { class: "key" }, key()), word("rp_remove_what")], action: word("rp_remove"), danger: true,
    });
    if (sure && await ctx.act(`/api/git_urls/${keyPath(key())}`, { method: "DELETE" })) {
      notice(word("rp_removed"));
      await look();
    }
  }

  async function undelete() {
    if (!await ctx.act(`${path()}/-/undelete`)) return;
    notice(word("rp_undeleted"));
    await look();
  }

  async function confirmHeld() {
    const sure = await confirm({
      title: word("rp_confirm_ask"), lines: [h("bdi", { class: "key" }, key()), word("rp_confirm_what")], action: word("rp_confirm"), danger: true,
    });
    if (sure) follow(await ctx.act(`${path()}/-/confirm`));
  }

  async function restore(tip) {
    const told = await confirm({
      title: word("rp_restore_ask"), lines: [h("bdi", { class: "key" }, `${tip.ref} · ${tip.old}`), word("rp_restore_what")],
      action: word("rp_restore"), fields: [{ name: "as", label: word("rp_restore_as") }],
    });
    if (told === null) return;
    const as = told.as.trim();
    follow(await ctx.act(`${path()}/-/restore`, { body: { ref: tip.kept, ...(as ? { as } : {}) } }));
  }

  // Showing

  const button = (name, text, work, kind = "") =>
    h("button", { key: name, type: "button", class: kind, "aria-disabled": busy ? "true" : null, on: { click: doing(name, work) } }, text);

  return {
    buttons(now) {
      const operator = ctx.session.may("operator");
      if (!ctx.session.may("reader")) return null;
      return h("p", { key: "acts", class: "buttons acts" },
        now.enabled && button("sync", word("rp_sync"), sync, "primary"),
        operator && [
          button("pause", word(now.enabled ? "rp_pause" : "rp_resume"), pause),
          button("priority", word("rp_priority_button"), priority),
          (now.consecutive_failures > 0 || now.last_error) && button("reset", word("rp_reset"), reset),
          now.source === "api" && button("remove", word("rp_remove"), remove, "danger"),
        ]);
    },
    confirmHeld: () => ctx.session.may("operator") && h("p", null, button("confirm", word("rp_confirm"), confirmHeld, "danger")),
    restore: (tip) => button(`restore ${tip.kept}`, word("rp_restore"), () => restore(tip)),
    /** What was asked for here and has not ended. */
    outcome: () => task && h("p", { key: "asked", role: "status" }, word("rp_asked"), " ", wordOr(`t_${task.status}`, task.status)),
    removed: () => ctx.session.may("operator") && h("div", { key: "removed", class: "box" },
      h("p", null, word("rp_undelete_what")), h("p", null, button("undelete", word("rp_undelete"), undelete))),
  };
}

/** What became of a task, in words, and whether that is good. */
export function ending(task) {
  const result = task.result ?? {};
  if (task.status === "failure") return [[word("rp_sync_failed"), result.error_message, result.hint].filter(Boolean).join(" "), "bad"];
  if (result.ref) return [word("rp_restored", result.ref), "good"];
  if (task.status === "skipped") return [word("rp_sync_nothing"), "good"];
  return [word("rp_sync_done", number(result.changes_total ?? 0), number(result.commits ?? 0)), "good"];
}
