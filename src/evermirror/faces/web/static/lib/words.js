// Every word that the page shows, in both languages: each view has a file of its own in ../words. Those of the first
// view are here from the beginning; others come with their views.
import common from "../words/common.js";
import overview from "../words/overview.js";
import repos from "../words/repos.js";

export const lang = document.documentElement.lang === "zh" ? "zh" : "en";
const WORDS = {};

export function learnWords(part) {
  Object.assign(WORDS, part[lang]);
}
[common, overview, repos].forEach(learnWords);

/** The text of this name, with `{0}`, `{1}` … filled in. A name that nobody wrote is shown as it is. */
export function word(name, ...values) {
  const text = WORDS[name] ?? name;
  return text.replace(/\{(\d)\}/g, (whole, i) => values[Number(i)] ?? whole);
}

/** The same where there may be no such word: then what is given. */
export const wordOr = (name, other) => WORDS[name] ?? other;
/** What a sync does now, as its worker tells it: one of SyncPhase, a push with its host. */
export function phaseWord(told) {
  const [name, host] = told.split(" to ");
  return host ? word(`ph_${name}_to`, host) : wordOr(`ph_${name}`, name);
}

/** `many("repos", 1)` is "1 repository": the names are `repos_one` and `repos_many`. */
export function many(name, count) {
  return word(`${name}_${count === 1 && lang === "en" ? "one" : "many"}`, number(count));
}

export const number = (value, digits = 0) =>
  value.toLocaleString(lang, { maximumFractionDigits: digits, minimumFractionDigits: 0 });

/** For axes: "94K". */
export const compact = (value) => value.toLocaleString(lang, { notation: "compact", maximumFractionDigits: 1 });
