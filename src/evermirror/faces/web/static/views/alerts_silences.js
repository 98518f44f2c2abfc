// Of what nobody is told for a while, and by whose word.
import { confirm, notice } from "../lib/dialog.js";
import { h } from "../lib/dom.js";
import { moment } from "../lib/format.js";
import { empty, section, table, when } from "../lib/parts.js";
import { word } from "../lib/words.js";

const HOUR_S = 3600;
const SPANS = [["al_1h", HOUR_S], ["al_4h", 4 * HOUR_S], ["al_1d", 24 * HOUR_S], ["al_1w", 7 * 24 * HOUR_S], ["al_30d", 30 * 24 * HOUR_S]];
const PATTERN_MAX = 300;

export function silencesPart(ctx, silences, look) {
  const may = ctx.session.may("operator");
  return section("silences", word("al_silences"),
    !silences ? empty(word("loading")) : !silences.length ? empty(word("al_no_silences")) : table({
      key: "silences-table",
      caption: word("al_silences"),
      rows: silences,
      keyOf: (one) => one.id,
      columns: [
        { id: "kind", label: word("al_rule"), cell: (one) => shown(one.kind) },
        { id: "about", label: word("al_about"), cell: (one) => h("bdi", { class: "key" }, shown(one.about)) },
        { id: "until", label: word("al_until"), cell: (one) => when(one.until) },
        { id: "by", label: word("al_by"), cell: (one) => h("bdi", null, one.by || "–") },
        { id: "reason", label: word("al_reason"), cell: (one) => h("span", { class: "key" }, one.reason || "–") },
        ...(may ? [{ id: "end", label: word("al_unsilence"), cell: (one) => h("button", {
          type: "button", "aria-label": word("al_unsilence_one", shown(one.kind), shown(one.about)), on: { click: () => end(ctx, one, look) },
        }, word("al_unsilence")) }] : []),
      ],
    }),
    may && h("p", null, h("button", { type: "button", on: { click: () => askPattern(ctx, look) } }, word("al_new"))));
}

/** A pattern as people read it: what we put in brackets stands for itself. */
const shown = (pattern) => (pattern === "*" ? word("al_anything") : pattern.replace(/\[([*?[])\]/g, "$1"));

/** A name as a pattern that matches just this name, or where it is too long its beginning. */
function exactly(name) {
  const pattern = name.replace(/[*?[]/g, "[$&]");
  return pattern.length <= PATTERN_MAX ? pattern : `${name.slice(0, 90).replace(/[*?[]/g, "[$&]")}*`;
}

export async function askSilence(ctx, alert, look) {
  const told = await confirm({
    title: word("al_silence_title"),
    lines: [word("al_silence_line")],
    action: word("al_silence_do"),
    fields: [
      { name: "scope", label: word("al_scope"), type: "select", value: "one", options: [
        ["one", word("al_scope_one", alert.title, alert.about)],
        ["kind", word("al_scope_kind", alert.title)],
        ["about", word("al_scope_about", alert.about)],
      ] },
      ...common(),
    ],
  });
  if (!told) return;
  const kind = told.scope === "about" ? "*" : exactly(alert.kind);
  const about = told.scope === "kind" ? "*" : exactly(alert.about);
  await silence(ctx, { kind, about, ...told }, look);
}

async function askPattern(ctx, look) {
  const told = await confirm({
    title: word("al_silence_title"),
    lines: [word("al_silence_line")],
    action: word("al_silence_do"),
    fields: [
      { name: "kind", label: word("al_new_kind"), value: "*", required: true },
      { name: "about", label: word("al_new_about"), value: "*", required: true },
      ...common(),
    ],
  });
  if (told) await silence(ctx, told, look);
}

const common = () => [
  { name: "for_s", label: word("al_for"), type: "select", value: String(HOUR_S), options: SPANS.map(([name, s]) => [String(s), word(name)]) },
  { name: "reason", label: word("al_why") },
];

async function silence(ctx, { kind, about, for_s: forS, reason }, look) {
  const body = { kind: kind.trim(), about: about.trim(), for_s: Number(forS), reason: reason.trim() };
  const made = await ctx.act("/api/alerts/silences", { body });
  if (made) notice(word("al_silence_made", moment(made.until)));
  look();
}

async function end(ctx, one, look) {
  const asked = { title: word("al_unsilence_title"), lines: [word("al_unsilence_line")], action: word("al_unsilence_do") };
  if (!await confirm(asked)) return;
  if (await ctx.act(`/api/alerts/silences/${one.id}`, { method: "DELETE" })) notice(word("al_unsilenced"));
  look();
}
