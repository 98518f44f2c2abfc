// One action on many repositories: on those picked, or on all that the list finds; and how far orders are.
import { Denied, ask } from "../lib/api.js";
import { notice } from "../lib/dialog.js";
import { h } from "../lib/dom.js";
import { bar, section, when } from "../lib/parts.js";
import { many, number, word, wordOr } from "../lib/words.js";
import { order } from "./repos_order.js";
import { PICKED_MAX, picked } from "./repos_place.js";

const ACTIONS = ["sync", "retry", "reset", "pause", "resume", "priority"];
const FOLLOW_MS = 1000;  // while an order runs
const LATER_MS = 5000;  // where there was no answer
const SHOWN = 10;  // of those that ended

/** `chosen()`: the list's filters; `total()`: how many it finds; `refresh()`: look at it anew. */
export default function bulk(ctx, { chosen, total, refresh }) {
  const may = ctx.session.may("operator");
  let orders = [], scope = "picked", busy = false, timer = 0;
  const running = () => orders.filter((one) => one.status === "running");
  ctx.signal.addEventListener("abort", () => clearTimeout(timer));
  if (may) follow();

  async function follow() {
    clearTimeout(timer);
    const before = running().map((one) => one.id);
    let pause = FOLLOW_MS;
    try {
      orders = (await ask("/api/bulk", { signal: ctx.signal })).items;
    } catch (error) {
      if (error instanceof Denied) ctx.session.learn().catch(() => {});
      if (ctx.signal.aborted || !before.length || [401, 403].includes(error.status)) return;
      pause = LATER_MS;  // there is an end to wait for
    }
    if (ctx.signal.aborted) return;
    const ended = orders.filter((one) => before.includes(one.id) && one.status !== "running");
    ended.forEach(tell);
    if (ended.length) refresh();
    if (running().length) timer = setTimeout(follow, pause);
    ctx.draw();
  }

  // Asking

  async function start(action) {
    if (busy) return;
    busy = true;
    ctx.draw();
    const made = await order(scope === "all" ? { action, filter: chosen() } : { action, keys: [...picked.keys] });
    busy = false;
    if (ctx.signal.aborted) return;
    if (made) {
      orders = [made, ...orders];
      if (scope === "picked") picked.clear();
      timer = setTimeout(follow, FOLLOW_MS);
    }
    ctx.draw();
  }

  async function stop(one) {
    if (await ctx.act(`/api/bulk/${one.id}/stop`)) notice(word("rs_stopping"));
    follow();
  }

  // Showing

  return {
    /** What can be done, above the list. */
    bar() {
      if (!may) return null;
      const all = total(), here = picked.keys.size;
      const count = scope === "all" ? all ?? 1 : here;  // not counted yet: the server does, before it asks
      const much = scope === "picked" && here > PICKED_MAX;
      return h("div", { key: "bulk", class: "bulk", role: "group", "aria-label": word("rs_bulk") },
        h("div", { class: "scope", role: "radiogroup", "aria-label": word("rs_scope") },
          choice("picked", many("rs_picked", here)),
          choice("all", all === null ? word("rs_all_matching") : many("rs_match", all))),
        h("span", { class: "buttons" }, ACTIONS.map((action) =>
          h("button", { key: action, type: "button", "aria-disabled": busy || !count || much ? "true" : null, on: { click: () => count && !much && start(action) } }, word(action === "priority" ? "rs_set_priority" : `rs_${action}`))),
        here > 0 && h("button", { key: "none", type: "button", class: "plain", on: { click: unpick } }, word("rs_unpick"))),
        much && h("p", { class: "warn" }, word("rs_too_many", number(PICKED_MAX))));
    },
    /** What was ordered. */
    render() {
      if (!may || !orders.length) return null;
      const now = running(), then = orders.filter((one) => one.status !== "running").slice(0, SHOWN);
      return [
        now.length > 0 && section("orders", word("rs_orders"), h("ul", { class: "plain" }, now.map(progress))),
        then.length > 0 && h("details", { key: "ended", class: "box" }, h("summary", null, word("rs_ended", number(then.length))),
          h("ul", { class: "plain" }, then.map(past))),
      ];
    },
  };

  function choice(value, label) {
    return h("label", { key: value }, h("input", {
      type: "radio", name: "scope", value, checked: scope === value, on: { change: () => { scope = value; ctx.draw(); } },
    }), " ", label);
  }

  function unpick({ target }) {
    picked.clear();
    target.closest(".bulk").querySelector("input:checked").focus();  // the button goes
    ctx.draw();
  }

  function progress(one) {
    const through = one.done + one.failed;
    return h("li", { key: one.id },
      h("div", { class: "between" },
        h("span", null, h("b", null, title(one)), " ", one.ahead > 0 ? word("rs_ahead", number(one.ahead)) : word("rs_through", number(through), number(one.matched))),
        h("button", { type: "button", on: { click: () => stop(one) } }, word("rs_stop"))),
      bar(one.matched ? (100 * through) / one.matched : null, title(one)),
      problem(one));
  }

  function past(one) {
    return h("li", { key: one.id },
      h("div", { class: "between" }, h("span", null, h("b", null, title(one)), " ", ending(one)), h("span", { class: "quiet" }, one.actor, " ", when(one.updated_at))),
      problem(one));
  }
}

function tell(one) {
  const bad = one.failed > 0 || one.status === "failed";
  notice([`${title(one)}: ${ending(one)}`, one.first_error].filter(Boolean).join(". "), bad ? "bad" : "good");
}

const title = (one) => word(`rs_${one.action}`) + (one.priority ? `: ${wordOr(`p_${one.priority}`, one.priority)}` : "");
const problem = (one) => one.first_error && h("p", { class: "bad small key" }, word("rs_first_error"), " ", h("bdi", null, one.first_error));

function ending(one) {
  const parts = [word(`rs_is_${one.status}`), word("rs_through", number(one.done), number(one.matched))];
  if (one.unchanged) parts.push(word("rs_unchanged", number(one.unchanged)));
  if (one.failed) parts.push(word("rs_failed", number(one.failed)));
  return parts.join(" · ");
}
