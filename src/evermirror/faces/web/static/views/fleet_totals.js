// The fleet in a few words and figures; the brake, and who overrules it.
import { confirm, notice } from "../lib/dialog.js";
import { h } from "../lib/dom.js";
import { figures, section } from "../lib/parts.js";
import { many, number, word } from "../lib/words.js";

export function totalsPart(ctx, { totals, workers }, look) {
  const t = totals;
  return h("div", { key: "totals" },
    t.braked && brake(ctx, t, look),
    t.warming && h("p", { key: "warming", class: "box warn" }, word("fl_warming")),
    workers.length === 1 && workers[0].own && h("p", { key: "alone", class: "box" }, word("fl_alone")),
    section("placement", word("fl_totals"),
      h("p", null, sentences(t).join(" ")),
      figures([
        [word("fl_repos"), number(t.repos)],
        [word("fl_placed"), number(t.owned)],
        [word("fl_held"), number(t.held), t.repos && t.held === t.repos ? "good" : ""],
        t.unverified > 0 && [word("fl_unverified"), number(t.unverified), "warn"],
        [word("fl_moving"), number(t.moving)],
        [word("fl_no_room"), number(t.no_room), t.no_room ? "bad" : ""],
        [word("fl_planned"), number(t.planned)],
        [word("fl_asked"), number(t.asked)],
        [word("fl_deferred"), number(t.deferred), t.deferred ? "warn" : ""],
        [word("fl_leaving"), number(t.stopping + t.leaving)],
        [word("fl_alive"), word("fl_of", number(t.alive), number(t.workers)), t.alive < t.workers ? "warn" : ""],
        [word("fl_brake"), word(t.braked ? "fl_on" : "fl_off"), t.braked ? "bad" : ""],
        [word("fl_warm"), word(t.warming ? "fl_under_way" : "fl_over"), t.warming ? "warn" : ""],
      ].filter(Boolean))));
}

function sentences(t) {
  if (!t.repos) return [word("fl_no_repos")];
  const first = t.held === t.repos && t.owned === t.repos
    ? word("fl_all_held", many("repos", t.repos))
    : word("fl_some_held", many("repos", t.repos), number(t.owned), number(t.held));
  return [
    first,
    t.moving > 0 && word("fl_moving_line", many("repos", t.moving)),
    t.no_room > 0 && word("fl_no_room_line", many("repos", t.no_room)),
    t.unverified > 0 && word("fl_unverified_line", many("repos", t.unverified)),
  ].filter(Boolean);
}

function brake(ctx, t, look) {
  return h("div", { key: "brake", class: "box bad", role: "alert" },
    h("p", null, word("fl_braked", number(t.suspect))),
    ctx.session.may("operator") && h("p", null, h("button", { type: "button", on: { click: () => overrule(ctx, t, look) } }, word("fl_overrule"))));
}

async function overrule(ctx, t, look) {
  const sure = await confirm({
    title: word("fl_overrule_title"),
    lines: [word("fl_overrule_line", number(t.suspect))],
    action: word("fl_overrule_do"),
    danger: true,
  });
  if (!sure) return;
  if (await ctx.act("/api/fleet/brake/overrule")) notice(word("fl_overruled"));
  look();
}
