// Where a repository is: who holds it, what it is pushed to, what its hooks taught, how it lies on the disk.
import { h } from "../lib/dom.js";
import { size } from "../lib/format.js";
import { facts, figures, section, table, when } from "../lib/parts.js";
import { href } from "../lib/route.js";
import { number, word, wordOr } from "../lib/words.js";
import { oid } from "./repo_refs.js";
import { address, words } from "./repo_state.js";

export function holders({ data }, repo) {
  const rows = data?.holders ?? repo.holders;
  return section("holders", word("rp_holders"),
    rows.length
      ? table({ key: "table", caption: word("rp_holders"), rows, keyOf: (one) => one.worker, columns: [
        { id: "worker", label: word("rp_worker"), cell: (one) => [h("a", { class: "key", href: href("fleet", one.worker) }, h("bdi", null, one.worker)), one.primary && h("span", { class: "status" }, word("rp_primary"))] },
        { id: "state", label: word("rp_copy_state"), cell: (one) => copyState(one) },
        { id: "verified", label: word("rp_holder_verified"), cell: (one) => when(one.verified_at) },
      ] })
      : h("p", { key: "none", class: "warn" }, word("rp_no_holders")),
    data?.why.length > 0 && h("details", { key: "why" }, h("summary", null, word("rp_holders_why")),
      h("ul", { class: "plain small" }, data.why.map((line) => h("li", null, h("bdi", null, line))))));
}

function copyState(one) {
  const kind = one.state === "held" && one.wanted ? "st-active" : "st-pending";
  return [h("span", { class: `status ${kind}` }, wordOr(`rp_copy_${one.state}`, one.state)), one.reason && h("div", { class: "quiet small" }, h("bdi", null, one.reason))];
}

export function targets({ data }) {
  if (!data?.targets.length) return null;
  return section("targets", word("rp_targets"), data.targets.map((target, i) => h("div", { key: `${i} ${target.url}`, class: "target" }, one(target))));
}

function one(target) {
  const error = target.last_error;
  return [
    h("p", { class: "between" }, h("span", null, address(target.url), " ", targetState(target.status)),
      h("span", { class: "quiet" }, pushed(target))),
    target.paused && h("p", { class: "warn" }, h("bdi", null, target.paused)),
    target.refs_equal !== null && h("p", { class: "quiet small" }, word("rp_refs_equal", number(target.refs_equal), number(target.refs_total))),
    error && h("div", { class: "box bad" }, h("b", null, wordOr(`k_${error.error_type}`, error.error_type)),
      words(error.error_message), error.hint && h("p", null, error.hint)),
    target.refs.length > 0 && h("details", { open: target.refs.some((ref) => ref.state !== "equal") }, h("summary", null, word("rp_target_refs")), table({
      key: "refs", caption: word("rp_target_refs"), rows: target.refs, keyOf: (ref) => ref.name, columns: [
        { id: "name", label: word("rp_name"), cell: (ref) => h("bdi", { class: "key" }, ref.name) },
        { id: "state", label: word("rp_outcome"), cell: (ref) => [targetState(ref.state), ref.reason && h("div", { class: "small" }, h("bdi", null, ref.reason))] },
        { id: "ours", label: word("rp_ours"), cell: (ref) => oid(ref.ours) },
        { id: "theirs", label: word("rp_theirs"), cell: (ref) => oid(ref.theirs) },
      ],
    })),
  ];
}

function pushed(target) {
  if (target.last_push_at) return [word("rp_pushed"), " ", when(target.last_push_at)];
  return target.checked_at ? [word("rp_tried"), " ", when(target.checked_at)] : word("rp_never_pushed");
}

const KINDS = { equal: "st-active", refused: "st-failing", failing: "st-failing", conflict: "st-held", exposed: "st-held", foreign: "st-held", paused: "st-held" };
const targetState = (name) => h("span", { class: `status ${KINDS[name] ?? ""}` }, wordOr(`rp_ts_${name}`, name));

export function hooks({ hooks: memory }, { data }) {
  if (!memory) return null;
  const ours = data?.registration;
  return section("hooks", word("rp_hooks"), facts([
    [word("rp_trust"), word(`rp_trust_${memory.trust}`, number(memory.told), number(memory.needed), number(memory.missed))],
    [word("rp_trust_since"), when(memory.since)],
    [word("rp_hooks_received"), number(memory.received), memory.last_at && [" · ", when(memory.last_at)]],
    [word("rp_hooks_told"), word("rp_hooks_told_of", number(memory.told_total), number(memory.told_total + memory.missed_total))],
    ours ? [word("rp_registration"), wordOr(`rp_reg_${ours.state}`, ours.state), ` (${ours.forge}) `, when(ours.checked_at), ours.problem && h("div", { class: "bad small" }, h("bdi", null, ours.problem))] : ["", null],
  ]));
}

export function upkeep({ upkeep: lies }) {
  return lies && section("upkeep", word("rp_upkeep"),
    figures([
      [word("rp_size"), size(lies.size_bytes)], [word("rp_packs"), number(lies.packs)], [word("rp_loose"), number(lies.loose_objects)],
      [word("rp_loose_refs"), number(lies.loose_refs)], [word("rp_cruft"), size(lies.cruft_bytes)], [word("rp_bitmap"), word(lies.has_bitmap ? "rp_yes" : "rp_no")],
    ]),
    h("p", { key: "times", class: "quiet small" }, word("rp_repacked"), " ", time(lies.repacked_at), " · ", word("rp_checked"), " ", time(lies.checked_at)));
}

const time = (iso) => (iso ? when(iso) : word("rp_not_yet"));
