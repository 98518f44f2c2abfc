// Back and Next through something that the server gives in pages.
import { h } from "../lib/dom.js";
import { number, word } from "../lib/words.js";

/** `turned()` is called when `cursor()` is another; `next()` gives where the page after this one begins. */
export function pager(label, next, turned) {
  let begins = [""];  // of each page up to this one
  const turn = (to) => {
    begins = to;
    turned();
  };
  return {
    cursor: () => begins.at(-1),
    rewind: () => { begins = [""]; },
    render() {
      const after = next();
      if (begins.length === 1 && !after) return null;
      return h("nav", { key: "pager", class: "buttons pager", "aria-label": label },
        h("button", { key: "back", type: "button", "aria-disabled": begins.length === 1 ? "true" : null, on: { click: () => begins.length > 1 && turn(begins.slice(0, -1)) } }, word("rs_back")),
        h("span", { class: "numbers" }, word("rs_page", number(begins.length))),
        h("button", { key: "next", type: "button", "aria-disabled": after ? null : "true", on: { click: () => after && turn([...begins, after]) } }, word("rs_next")));
    },
  };
}
