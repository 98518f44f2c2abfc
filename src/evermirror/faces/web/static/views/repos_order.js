// An order for many repositories.
//
//   wish ──▶ the server counts (dry run) ──▶ who wishes confirms that number ──▶ it begins
//
// The number that was confirmed goes with the order: where it is another by then, the server does nothing.
import { ask } from "../lib/api.js";
import { complain, confirm, notice } from "../lib/dialog.js";
import { h } from "../lib/dom.js";
import { many, number, word } from "../lib/words.js";

export const PRIORITIES = ["critical", "high", "normal", "low"];
const NAMED = 5;  // of those picked, in the question

/** `action`: sync, retry, reset, pause, resume or priority; `keys` or a `filter` as the list of repositories has it.
 * Tells what it did or why not; returns the order as the server took it in, or null. */
export async function order({ action, keys, filter }) {
  const wish = { action, ...(keys ? { keys } : { filter: narrowed(filter) }) };
  if (action === "priority") wish.priority = "normal";  // to count, any will do
  try {
    return await asked(wish);
  } catch (error) {
    complain(error);
    return null;
  }
}

async function asked(wish) {
  const { matched } = await ask("/api/bulk", { method: "POST", body: { ...wish, dry_run: true } });
  if (!matched) {
    notice(word("rs_none_matched"), "bad");
    return null;
  }
  const told = await confirm({
    title: word(`rs_ask_${wish.action}`, many("repos", matched)),
    lines: [word(`rs_why_${wish.action}`), ...(wish.keys ? named(wish.keys) : [described(wish.filter)])],
    action: word(`rs_do_${wish.action}`, number(matched)),
    danger: wish.action === "pause",
    fields: wish.action === "priority" ? [priorityField()] : [],
  });
  if (told === null) return null;
  const made = await ask("/api/bulk", { method: "POST", body: { ...wish, ...told, expected: matched } });
  notice(word("rs_begun", many("repos", matched)));
  return made;
}

function named(keys) {
  const more = keys.length - NAMED;
  return [...keys.slice(0, NAMED).map((key) => h("bdi", { class: "key" }, key)), ...(more > 0 ? [word("rs_and_more", number(more))] : [])];
}

const narrowed = (filter) => Object.fromEntries(Object.entries(filter).filter(([, value]) => value));

function described(filter) {
  const parts = Object.entries(filter).map(([name, value]) => `${word(`rs_${name}`)}: ${value}`);
  return parts.length ? parts.join(", ") : word("rs_every");
}

const priorityField = () => ({
  name: "priority", label: word("rs_priority"), type: "select", value: "normal", options: PRIORITIES.map((name) => [name, word(`p_${name}`)]),
});
