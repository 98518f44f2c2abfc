// Who mirrors: how it is with each worker, what moves, and orders to single ones.
import { lookAgain } from "../lib/again.js";
import { query } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { empty, section } from "../lib/parts.js";
import { href } from "../lib/route.js";
import { word } from "../lib/words.js";
import { aggregatorsPart, movesPart, ratesPart } from "./fleet_lists.js";
import { totalsPart } from "./fleet_totals.js";
import { workerParts } from "./fleet_worker.js";
import { workerAt, workersTable } from "./fleet_workers.js";

const MOVES = 100;
const EVENTS = ["worker.joined", "worker.up", "worker.suspect", "worker.down", "worker.changed", "aggregator.joined", "aggregator.up", "aggregator.down", "aggregator.changed", "overview"];
const APART_MS = 5000;

export default function fleet(ctx) {
  return ctx.path ? oneWorker(ctx) : wholeFleet(ctx);
}

function wholeFleet(ctx) {
  let told = null, moves = null;
  const look = () => {
    ctx.load("/api/fleet", (answer) => { told = answer; });
    ctx.load(`/api/fleet/moves${query({ limit: MOVES })}`, (answer) => { moves = answer; });
  };
  look();
  lookAgain(ctx, EVENTS, look, { apart: APART_MS });

  function render() {
    if (!told) return ctx.failed ? [] : [empty(word("loading"))];
    return [
      totalsPart(ctx, told, look),
      section("workers", word("fl_workers"), told.workers.length ? workersTable(told.workers) : empty(word("fl_none"))),
      moves && movesPart(moves),
      h("div", { key: "columns", class: "columns" },
        h("div", { key: "left" }, aggregatorsPart(told.aggregators)),
        h("div", { key: "right" }, ctx.session.may("reader") && ratesPart(told.rates))),
    ];
  }

  return { title: word("nav_fleet"), render };
}

function oneWorker(ctx) {
  let told = null, all = null, unknown = false;
  const look = () => ctx.load("/api/fleet", (answer) => {
    all = answer.workers;
    const known = all.find((one) => one.name === ctx.path) ?? all.find((one) => String(one.id) === ctx.path);
    unknown = !known;
    if (known) ctx.load(workerAt(known), (worker) => { told = worker; });
  });
  look();
  lookAgain(ctx, EVENTS, look, { apart: APART_MS });

  function render() {
    const back = h("p", { key: "back" }, h("a", { href: href("fleet") }, "← ", word("fl_back")));
    if (unknown) return [back, empty(word("fl_unknown"))];
    if (!told) return [back, !ctx.failed && empty(word("loading"))];
    return [back, ...workerParts(ctx, told, all, look)];
  }

  return { title: word("fl_worker_title", ctx.path), render };
}
