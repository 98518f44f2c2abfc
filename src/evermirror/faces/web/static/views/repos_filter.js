// What of the list is looked for: fields whose values are the address's.
import { ask } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { word } from "../lib/words.js";
import { settled } from "./repo_source.js";
import { PRIORITIES } from "./repos_order.js";

const TYPED = ["search", "host"];
const TYPED_MS = 250;  // typing has come to a rest
const STATUSES = ["pending", "active", "failing", "gone", "auth", "held", "inactive"];
const FAILURES = ["AUTH_FAILED", "NETWORK_TIMEOUT", "NOT_FOUND", "CONFLICT", "PERMISSION_DENIED", "DISK_FULL", "RATE_LIMITED", "UNKNOWN"];

/** `chosen()` gives the filters of the address, `turn(changes, options)` goes to another. */
export default function filters(ctx, chosen, turn) {
  const typed = draft();  // what stands in the fields; the address follows when typing rests
  let workers = [];
  ask("/api/fleet", { signal: ctx.signal }).then(
    (told) => { workers = told.workers.map((worker) => worker.name); ctx.draw(); },
    () => {},  // then there is no list of workers to choose from
  );

  function draft() {
    const now = chosen();
    return Object.fromEntries(TYPED.map((name) => [name, now[name]]));
  }

  const rested = settled(ctx, TYPED_MS, () => {
    const now = chosen();
    const changed = Object.fromEntries(TYPED.map((name) => [name, typed[name].trim()]));
    if (TYPED.some((name) => changed[name] !== now[name])) turn(changed, { replace: true });
  });

  function type(name, event) {
    typed[name] = event.target.value;
    if (!event.isComposing) rested();
  }

  return {
    /** The address is another: what was typed stays where it is what the address says. */
    turned() {
      const now = chosen();
      for (const name of TYPED) if (typed[name].trim() !== now[name]) typed[name] = now[name];
    },
    render: () => h("form", { key: "filters", class: "filters", role: "search", on: { submit: (event) => event.preventDefault() } },
      field("search", word("rs_search"), "search", word("rs_search_hint")),
      select("status", word("rs_status"), STATUSES.map((name) => [name, word(`s_${name}`)])),
      select("failure", word("rs_failure"), FAILURES.map((name) => [name, word(`k_${name}`)])),
      select("priority", word("rs_priority"), PRIORITIES.map((name) => [name, word(`p_${name}`)])),
      field("host", word("rs_host"), "text", "github.com"),
      select("worker", word("rs_worker"), workers.map((name) => [name, name])),
      Object.values(chosen()).some(Boolean) && h("button", { key: "clear", type: "button", on: { click: clear } }, word("rs_clear_filters"))),
  };

  function clear({ target }) {
    for (const name of TYPED) typed[name] = "";
    target.form.elements.search.focus();  // the button goes
    turn(Object.fromEntries(Object.keys(chosen()).map((name) => [name, ""])));
  }

  function field(name, label, kind, hint) {
    return h("label", { key: name, class: `field f-${name}` }, h("span", null, label),
      h("input", {
        type: kind, name, value: typed[name], placeholder: hint, maxlength: 200, autocomplete: "off", spellcheck: "false",
        on: { input: (event) => type(name, event), compositionend: (event) => type(name, event) },
      }));
  }

  function select(name, label, options) {
    const now = chosen()[name];
    const all = options.some(([value]) => value === now) || !now ? options : [...options, [now, now]];
    return h("label", { key: name, class: `field f-${name}` }, h("span", null, label),
      h("select", { name, value: now, on: { change: (event) => turn({ [name]: event.target.value }) } },
        h("option", { key: "", value: "" }, word("rs_any")),
        all.map(([value, text]) => h("option", { key: value, value }, text))));
  }
}
