// What moves in the fleet, its aggregators, and the rates it shares.
import { h } from "../lib/dom.js";
import { empty, meter, repoLink, section, table, when } from "../lib/parts.js";
import { href } from "../lib/route.js";
import { number, word, wordOr } from "../lib/words.js";
import { disk } from "./fleet_workers.js";

const SHOWN = 5; // ups and downs of one aggregator

export function movesPart({ items, total }) {
  return section("moves", total ? word("fl_moves_n", number(total)) : word("fl_moves"),
    items.length === 0 ? empty(word("fl_no_moves")) : table({
      key: "moves-table",
      caption: word("fl_moves"),
      rows: items,
      keyOf: (one) => `${one.repo} ${one.state} ${one.to}`,
      columns: [
        { id: "repo", label: word("fl_repo"), cell: (one) => repoLink(one.repo) },
        { id: "from", label: word("fl_from"), cell: (one) => names(one.from) },
        { id: "to", label: word("fl_to"), cell: (one) => names(one.to) },
        { id: "state", label: word("fl_state"), cell: (one) => wordOr(`fl_m_${one.state}`, one.state) },
        { id: "why", label: word("fl_why"), cell: (one) => one.reason || "–" },
      ],
    }),
    items.length < total && h("p", { class: "quiet small" }, word("fl_moves_shown", number(items.length), number(total))));
}

const names = (list) => (list.length
  ? list.map((name, i) => [i > 0 && ", ", h("a", { href: href("fleet", name) }, h("bdi", null, name))])
  : "–");

export function aggregatorsPart(aggregators) {
  return section("aggregators", word("fl_aggregators"), aggregators.length === 0 ? empty(word("fl_no_aggregators")) : table({
    key: "aggregators-table",
    caption: word("fl_aggregators"),
    rows: aggregators,
    keyOf: (one) => one.name,
    columns: [
      { id: "name", label: word("fl_agg"), cell: (one) => h("bdi", { class: "key" }, one.name) },
      { id: "state", label: word("fl_state"), cell: (one) => [
        h("span", { class: `status st-${one.status}` }, wordOr(`fl_s_${one.status}`, one.status)),
        h("div", { class: "small quiet" }, when(one.since)),
      ] },
      { id: "url", label: word("fl_a_url"), cell: (one) => h("bdi", null, one.url ?? "–") },
      { id: "serves", label: word("fl_serves"), number: true, cell: (one) => number(one.serves) },
      { id: "disk", label: word("fl_disk"), cell: (one) => disk(one.disk_free_bytes, one.disk_total_bytes, one.name) },
      { id: "relay", label: word("fl_relay"), cell: (one) => h("bdi", null, one.relay ?? "–") },
      { id: "version", label: word("fl_version"), cell: (one) => one.version },
      { id: "history", label: word("fl_history"), cell: (one) => outages(one.history) },
    ],
  }));
}

/** The last few ups and downs, the newest first. */
const outages = (history) => (history.length
  ? history.slice(-SHOWN).reverse().map(({ at, what }) => h("div", { class: "small" }, wordOr(`fl_h_${what}`, what), " ", when(at)))
  : "–");

export function ratesPart(rates) {
  if (!rates.length) return section("rates", word("fl_rates"), empty(word("fl_no_rates")));
  return section("rates", word("fl_rates"),
    h("p", { class: "quiet small" }, word("fl_rates_why")),
    table({
      key: "rates-table",
      caption: word("fl_rates"),
      rows: rates,
      keyOf: (one) => one.host ?? "",
      columns: [
        { id: "host", label: word("fl_host"), cell: (one) => (one.host === null ? word("fl_share_all")
          : h("a", { class: "key", href: href("repos", "", { host: one.host }) }, h("bdi", null, one.host))) },
        { id: "rate", label: word("fl_rate"), number: true, cell: (one) => number(one.rate, 2) },
        { id: "used", label: word("fl_in_use"), number: true, cell: (one) => number(one.in_use, 2) },
        { id: "share", label: "%", cell: (one) => meter(one.in_use, one.rate, word("fl_share_of", one.host ?? word("fl_share_all"))) },
      ],
    }));
}
