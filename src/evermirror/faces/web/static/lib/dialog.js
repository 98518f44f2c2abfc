// Questions to who looks at the page, and short answers to what he did.
import { Problem } from "./api.js";
import { h, patch } from "./dom.js";
import { word } from "./words.js";

const NOTICE_MS = 8000;
let shown = [];
let open = null;  // the dialog that is shown

/** Asks before something is done. `fields`: [{name, label, type: "text"|"select", options: [[value, label]], value,
 * required}]. Resolves to the fields' values, or null where it was called off, or another question stands. */
export function confirm({ title, lines = [], action, danger = false, fields = [] }) {
  if (open) return Promise.resolve(null);
  const before = document.activeElement;
  return new Promise((resolve) => {
    let told = null;
    const form = h("form", {
      method: "dialog",
      on: { submit: () => { told = Object.fromEntries(new FormData(form)); } },
    },
    h("h2", { id: "dialog-title" }, title),
    lines.map((line) => h("p", null, line)),
    fields.map(field),
    h("p", { class: "buttons" },
      h("button", { type: "button", on: { click: () => box.close() } }, word("cancel")),
      h("button", { class: danger ? "danger" : "primary" }, action)));
    const box = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    box.addEventListener("close", () => {
      open = null;
      box.remove();
      refocus(before);
      resolve(told);
    });
    open = box;
    document.body.append(box);
    box.showModal();
  });
}

// Who goes elsewhere does not answer any more.
addEventListener("hashchange", () => open?.close());

/** Where he was; what is gone, or cannot be used now, takes no focus. */
function refocus(before) {
  before?.focus();
  if (document.activeElement === document.body) document.getElementById("view").focus({ preventScroll: true });
}

function field({ name, label, type = "text", options = [], value = "", required = false }) {
  const control = type === "select"
    ? h("select", { name, value }, options.map(([v, text]) => h("option", { value: v, selected: v === value }, text)))
    : h("input", { name, type, value, required, maxlength: 1000, autocomplete: "off" });
  return h("label", { class: "field" }, h("span", null, label), control);
}

/** Tells for a few seconds; an error until it is put away. */
export function notice(text, kind = "good") {
  const one = { text, kind, id: crypto.getRandomValues(new Uint32Array(1))[0] };
  shown = [...shown.slice(-3), one];
  draw();
  if (kind !== "bad") setTimeout(() => putAway(one), NOTICE_MS);
}

/** What went wrong, in the server's words and with its hint. */
export function complain(error) {
  if (error?.name === "AbortError") return;
  const known = error instanceof Problem;
  notice(known ? [error.message, error.hint].filter(Boolean).join(". ") : word("no_answer"), "bad");
}

function putAway(one) {
  shown = shown.filter((other) => other !== one);
  draw();
}

function draw() {
  patch(document.getElementById("notices"), shown.map((one) =>
    h("p", { key: one.id, class: `notice ${one.kind}` }, h("span", null, one.text),
      h("button", { type: "button", class: "plain", "aria-label": word("put_away"), on: { click: () => putAway(one) } }, "×"))));
}
