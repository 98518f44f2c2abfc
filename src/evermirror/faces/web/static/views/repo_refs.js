// Branches and tags of a mirror, in pages, by how they begin.
import { query } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { empty, section, table } from "../lib/parts.js";
import { number, word } from "../lib/words.js";
import { pager } from "./repo_pager.js";
import { settled, source } from "./repo_source.js";

const PAGE = 15;
const TYPED_MS = 250;
const BEGINNINGS = [["", "rp_refs_all"], ["refs/heads/", "rp_refs_heads"], ["refs/tags/", "rp_refs_tags"]];

export const oid = (text) => (text ? h("code", { class: "small", title: text }, text.slice(0, 10)) : "–");

export default function refs(ctx, base) {
  const told = source(ctx);
  let prefix = "";
  const load = () => told.load(`${base}/-/refs${query({ prefix, limit: PAGE, cursor: pages.cursor() })}`);
  const pages = pager(word("rp_refs_pages"), () => told.data?.next_cursor, load);
  const rested = settled(ctx, TYPED_MS, load);

  function begin(text, later) {
    prefix = text;
    pages.rewind();
    if (later) rested();
    else load();
    ctx.draw();
  }

  return {
    load,
    render(repo) {
      if (!repo.digest) return section("refs", word("rp_refs"), empty(word("rp_not_cloned")));
      return section("refs", word("rp_refs"),
        h("div", { key: "by", class: "filters" },
          h("label", { class: "field f-prefix" }, h("span", null, word("rp_prefix")),
            h("input", { type: "search", value: prefix, maxlength: 1000, autocomplete: "off", spellcheck: "false", placeholder: "refs/heads/", on: { input: (event) => begin(event.target.value, true) } })),
          h("span", { class: "buttons" }, BEGINNINGS.map(([text, name]) =>
            h("button", { key: name, type: "button", "aria-pressed": String(prefix === text), on: { click: () => begin(text) } }, word(name))))),
        body());
    },
  };

  function body() {
    if (told.data === null) return told.error ? h("p", { key: "none", class: "quiet" }, told.error.message) : null;
    const { refs: rows, total, head } = told.data;
    return h("div", { key: "body" },
      h("p", { key: "count", class: "quiet small", role: "status" }, word("rp_refs_total", number(total)), head && [" · HEAD → ", h("bdi", { class: "key" }, head)]),
      rows.length
        ? table({ key: "table", caption: word("rp_refs"), rows, keyOf: (ref) => ref.name, columns: [
          { id: "name", label: word("rp_name"), cell: (ref) => h("bdi", { class: "key" }, ref.name) },
          { id: "oid", label: word("rp_commit"), cell: (ref) => oid(ref.oid) },
        ] })
        : empty(word("rp_refs_none")),
      pages.render());
  }
}
