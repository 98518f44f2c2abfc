// Workers in a table.
import { h } from "../lib/dom.js";
import { rate, size } from "../lib/format.js";
import { meter, table, when } from "../lib/parts.js";
import { href } from "../lib/route.js";
import { number, word, wordOr } from "../lib/words.js";

/** Names may hold anything; a slash, or dots alone, would be another address. */
const nameOf = (worker) => (/\/|^\.{1,2}$/.test(worker.name) ? String(worker.id) : worker.name);

export const workerAt = (worker) => `/api/fleet/workers/${encodeURIComponent(nameOf(worker))}`;

export const workerLink = (worker) => h("a", { class: "key", href: href("fleet", worker.name) }, h("bdi", null, worker.name));

export const workerState = (worker) => [
  h("span", { class: `status st-${worker.status}` }, wordOr(`fl_s_${worker.status}`, worker.status)),
  worker.connected && !worker.accepting && h("div", { class: "small bad" }, word("fl_not_accepting")),
];

export function disk(free, total, name) {
  if (free === null || !total) return "–";
  return [meter(total - free, total, word("fl_disk_of", name)), h("div", { class: "small quiet" }, word("fl_disk_free", size(free)))];
}

export function workersTable(workers) {
  const figure = (value, format) => (value === null ? "–" : format(value));
  return table({
    key: "workers-table",
    caption: word("fl_workers"),
    rows: workers,
    keyOf: (one) => one.id,
    columns: [
      { id: "name", label: word("fl_name"), cell: workerLink },
      { id: "state", label: word("fl_state"), cell: workerState },
      { id: "load", label: word("fl_load"), number: true, cell: (one) => `${number(one.held)} / ${number(one.wanted)}` },
      { id: "capacity", label: word("fl_capacity"), number: true, cell: (one) => (one.capacity === null ? word("fl_unbounded") : number(one.capacity)) },
      { id: "disk", label: word("fl_disk"), cell: (one) => disk(one.disk_free_bytes, one.disk_total_bytes, one.name) },
      { id: "polls", label: word("fl_polls"), number: true, cell: (one) => figure(one.polls_per_second, rate) },
      { id: "syncs", label: word("fl_syncs"), number: true, cell: (one) => `${figure(one.running_syncs, number)} / ${figure(one.queued_syncs, number)}` },
      { id: "version", label: word("fl_version"), cell: (one) => one.version ?? "–" },
      { id: "last", label: word("fl_last"), cell: (one) => when(one.last_alive_at) },
    ],
  });
}
