// One worker: how it is, what losing it would mean, what happened to it.
import { h } from "../lib/dom.js";
import { rate } from "../lib/format.js";
import { empty, facts, section, table, when } from "../lib/parts.js";
import { many, number, word, wordOr } from "../lib/words.js";
import { ordersPart } from "./fleet_orders.js";
import { disk, workerState } from "./fleet_workers.js";

/** Those who could take what this one holds. */
export const takers = (worker, all) =>
  all.filter((one) => one.id !== worker.id && one.status === "alive" && one.duty === "active" && one.accepting);

export function workerParts(ctx, worker, all, look) {
  return [
    worker.own && h("p", { key: "own", class: "box" }, word(all.length === 1 ? "fl_alone" : "fl_own")),
    h("div", { key: "columns", class: "columns" },
      h("div", { key: "left" }, howItIs(worker), sharesPart(worker.limits)),
      h("div", { key: "right" }, losingPart(worker, all), ordersPart(ctx, worker, takers(worker, all), look), historyPart(worker.history))),
  ];
}

function howItIs(w) {
  const weight = w.weight_now < w.weight ? word("fl_weight_now", number(w.weight, 2), number(w.weight_now, 2)) : number(w.weight, 2);
  return section("about", word("fl_about"), facts([
    [word("fl_state"), workerState(w)],
    [word("fl_connected"), word(w.connected ? "fl_yes" : "fl_no")],
    [word("fl_last"), when(w.last_alive_at)],
    [word("fl_load"), `${number(w.held)} / ${number(w.wanted)}`],
    [word("fl_cloning"), number(w.asked)],
    [word("fl_capacity"), w.capacity === null ? word("fl_unbounded") : number(w.capacity)],
    [word("fl_disk"), disk(w.disk_free_bytes, w.disk_total_bytes, w.name)],
    [word("fl_polls"), w.polls_per_second === null ? null : rate(w.polls_per_second)],
    [word("fl_syncs"), w.running_syncs === null ? null : `${number(w.running_syncs)} / ${number(w.queued_syncs)}`],
    [word("fl_trusted"), word(w.trusted ? "fl_trusted_yes" : "fl_trusted_no")],
    [word("fl_weight"), weight],
    [word("fl_flaps"), number(w.flap_score, 2)],
    [word("fl_strays"), w.strays ? number(w.strays) : null],
    [word("fl_unacked"), w.unacknowledged ? number(w.unacknowledged) : null],
    [word("fl_version"), w.version],
    [word("fl_joined"), when(w.joined_at)],
  ]));
}

function losingPart(w, all) {
  const { copies, alone } = w.losing;
  const lines = copies === 0 ? [["", "fl_losing_none"]] : [
    ["", "fl_losing_copies", many("fl_copies", copies)],
    alone > 0 ? ["warn", "fl_losing_alone", many("repos", alone)] : ["good", "fl_losing_safe"],
    ...(takers(w, all).length ? [] : [["bad", "fl_losing_nobody"]]),
  ];
  return section("losing", word("fl_losing"), lines.map(([kind, ...line]) => h("p", { class: kind }, word(...line))));
}

function sharesPart(limits) {
  if (!limits) return null;
  const rows = [
    ...(limits.polls_per_second === null ? [] : [{ host: word("fl_share_all"), rate: limits.polls_per_second }]),
    ...limits.hosts,
    ...(limits.host_rate === null ? [] : [{ host: word("fl_share_each"), rate: limits.host_rate }]),
  ];
  return section("shares", word("fl_shares"), table({
    key: "shares-table",
    caption: word("fl_shares"),
    rows,
    keyOf: (one) => one.host,
    columns: [
      { id: "host", label: word("fl_host"), cell: (one) => h("bdi", { class: "key" }, one.host) },
      { id: "rate", label: word("fl_polls"), number: true, cell: (one) => number(one.rate, 2) },
    ],
  }), limits.told_at && h("p", { class: "quiet small" }, word("fl_told"), " ", when(limits.told_at)));
}

function historyPart(history) {
  return section("history", word("fl_history"), history.length
    ? h("ul", { class: "plain" }, history.map((one, i) => h("li", { key: `${one.at} ${i}`, class: "between" },
      h("span", null, wordOr(`fl_h_${one.what}`, one.what)), h("span", { class: "quiet small" }, when(one.at)))).reverse())
    : empty(word("fl_no_history")));
}
