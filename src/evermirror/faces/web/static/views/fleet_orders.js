// Orders to one worker: each says before what will move.
import { confirm, notice } from "../lib/dialog.js";
import { h } from "../lib/dom.js";
import { section } from "../lib/parts.js";
import { go } from "../lib/route.js";
import { many, word } from "../lib/words.js";
import { workerAt } from "./fleet_workers.js";

export function ordersPart(ctx, worker, takers, look) {
  const orders = { drain, resume, quarantine, retire };
  const offered = Object.keys(orders).filter((name) => may(ctx, name, worker));
  return section("orders", word("fl_orders"),
    offered.length > 0 && h("p", { class: "buttons" }, offered.map((name) => h("button", {
      key: name, type: "button", class: name === "retire" ? "danger" : "", on: { click: () => orders[name](ctx, worker, takers, look) },
    }, word(`fl_${name}`)))),
    worker.own && ctx.session.may("admin") && h("p", { class: "quiet small" }, word("fl_retire_own")),
    !ctx.session.may("admin") && h("p", { class: "quiet small" }, word("fl_orders_who")));
}

function may(ctx, order, { duty, own }) {
  const role = (name) => ctx.session.may(name);
  switch (order) {
    case "drain": return duty === "active" && role("operator");
    case "resume": return (duty === "draining" && role("operator")) || (duty === "quarantined" && role("admin"));
    case "quarantine": return (duty === "active" || duty === "draining") && role("admin");
    default: return duty !== "retired" && !own && role("admin");
  }
}

/** What the copies there will do. */
function moves({ losing }, takers) {
  return takers.length
    ? word("fl_moves_count", many("fl_copies", losing.copies), many("fl_others", takers.length))
    : word("fl_moves_nowhere", many("fl_copies", losing.copies));
}

async function drain(ctx, worker, takers, look) {
  const sure = await confirm({
    title: word("fl_drain_title", worker.name),
    lines: [moves(worker, takers), word("fl_drain_line")],
    action: word("fl_drain_do"),
  });
  if (sure && await ctx.act(`${workerAt(worker)}/drain`)) notice(word("fl_drained", worker.name));
  look();
}

async function resume(ctx, worker, takers, look) {
  const sure = await confirm({
    title: word("fl_resume_title", worker.name),
    lines: [word("fl_resume_line"), ...(worker.duty === "quarantined" ? [word("fl_resume_quarantined")] : [])],
    action: word("fl_resume_do"),
  });
  if (sure && await ctx.act(`${workerAt(worker)}/resume`)) notice(word("fl_resumed", worker.name));
  look();
}

async function quarantine(ctx, worker, takers, look) {
  const { copies, alone } = worker.losing;
  const told = await confirm({
    title: word("fl_quarantine_title", worker.name),
    lines: [word("fl_quarantine_line", many("fl_copies", copies), many("repos", alone)), ...(takers.length ? [] : [word("fl_losing_nobody")])],
    action: word("fl_quarantine_do"),
    danger: true,
    fields: [{ name: "reason", label: word("fl_reason"), required: true }],
  });
  if (told && await ctx.act(`${workerAt(worker)}/quarantine`, { body: { reason: told.reason.trim() } })) {
    notice(word("fl_quarantined", worker.name));
  }
  look();
}

async function retire(ctx, worker, takers, look) {
  const { copies, alone } = worker.losing;
  const sure = await confirm({
    title: word("fl_retire_title", worker.name),
    lines: [
      word("fl_retire_line", many("fl_copies", copies), many("repos", alone)),
      ...(worker.status === "alive" && copies > 0 ? [word("fl_retire_first")] : []),
      ...(takers.length || !copies ? [] : [word("fl_losing_nobody")]),
    ],
    action: word("fl_retire_do"),
    danger: true,
  });
  if (!sure) return;
  if (await ctx.act(`${workerAt(worker)}/retire`)) {
    notice(word("fl_retired", worker.name));
    go("fleet");
  } else look();
}
