// All repositories: searched, filtered, sorted and paged by the server. What is asked for is in the address.
import { query as asText } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { size as bytes } from "../lib/format.js";
import { empty, repoLink, section, status, table, when } from "../lib/parts.js";
import { go } from "../lib/route.js";
import { many, number, word, wordOr } from "../lib/words.js";
import { calm, keepFresh, source, unanswered } from "./repo_source.js";
import addForm from "./repos_add.js";
import bulk from "./repos_bulk.js";
import filters from "./repos_filter.js";
import { FILTERS, picked, trail } from "./repos_place.js";

const SIZES = [20, 50, 100, 200], SIZE = 50;  // rows of a page
const REFRESH_MS = 3000;  // at most so often while things happen
const LOOK_MS = 30_000;
const LISTED = new Set(["repo.added", "repo.removed", "catalog.changed"]);  // how many there are may be another

export default function repos(ctx) {
  const list = source(ctx);
  let total = null, counting = true;
  let counted = "";  // what the total is of
  let stale = false;  // what is shown is not yet what the address asks for

  const chosen = () => Object.fromEntries(FILTERS.map((name) => [name, ctx.query[name] ?? ""]));
  const sort = () => ctx.query.sort || "key";
  const size = () => (SIZES.includes(Number(ctx.query.limit)) ? Number(ctx.query.limit) : SIZE);
  const seen = () => ({ ...chosen(), sort: ctx.query.sort, limit: ctx.query.limit });
  const page = () => Math.max(1, Number.parseInt(ctx.query.page, 10) || 1);

  function look({ count = true } = {}) {
    counting ||= count;
    counted = asText(chosen());
    const asked = { ...seen(), limit: size(), cursor: ctx.query.cursor, total: counting };
    return list.load(`/api/git_urls${asText(asked)}`).then(() => {
      if (list.loading) return;
      if (list.error && stale) list.data = null;  // else what was there is shown on, as old as it is
      stale = false;
      if (!list.error && Number.isInteger(list.data.total)) [total, counting] = [list.data.total, false];
      ctx.draw();
    });
  }

  /** Goes to the same list, seen otherwise: from its beginning. */
  function turn(changed, options) {
    go("repos", "", { ...seen(), ...changed }, options);
  }

  function turnPage(by) {
    if (stale || (by > 0 ? list.data.next_cursor === null : page() === 1)) return;
    const here = trail(seen());
    if (by > 0) here[page()] = list.data.next_cursor;
    const to = by > 0 ? page() + 1 : Math.max(1, page() - 1);
    const cursor = to === 1 ? "" : here[to - 1];
    const known = to === 1 || cursor;  // a link may lead to a page whose neighbours were never seen
    go("repos", "", { ...seen(), cursor: known ? cursor : "", page: known && to > 1 ? to : "" });
    const top = document.querySelector(".repo-rows");
    if (top.getBoundingClientRect().top < 0) top.scrollIntoView();
  }

  const field = filters(ctx, chosen, turn);
  const orders = bulk(ctx, { chosen, total: () => total, refresh: () => look() });
  const form = addForm(ctx, () => look());
  const soon = calm(ctx, REFRESH_MS, () => look({ count: false }));
  /** One that is not shown may come to be, where what happens to it is what the list goes by. */
  const touches = (repo) => repo && (ctx.query.sort || ctx.query.status || ctx.query.failure || list.data?.items.some((item) => item.key === repo));
  ctx.on("event", ({ type, repo }) => {
    if (LISTED.has(type)) counting = true;
    if (LISTED.has(type) || touches(repo)) soon();
  });
  keepFresh(ctx, LOOK_MS, look);
  look();

  return {
    title: word("nav_repos"),
    turned() {
      const same = asText(chosen()) === counted;  // another page or order of as many
      if (!same) total = null;
      stale = true;
      field.turned();
      look({ count: !same });
    },
    render: () => [
      form.render(),
      orders.render(),
      section("list", word("rs_list"),
        field.render(),
        orders.bar(),
        h("p", { key: "count", class: "quiet", role: "status" }, count()),
        list.error && unanswered(list.error),
        h("div", { key: "rows", class: "repo-rows", "aria-busy": stale ? "true" : null }, rows()),
        pager()),
    ],
  };

  function count() {
    if (stale || list.loading && list.data === null) return word("loading");
    return total === null ? "" : many("repos", total);
  }

  function rows() {
    if (list.data === null) return null;
    const items = list.data.items;
    if (!items.length) return nothing();
    const may = ctx.session.may("operator");
    return table({
      key: "table", caption: word("nav_repos"), columns: COLUMNS(), rows: items, keyOf: (item) => item.key,
      sort: sort(), onSort: (name) => turn({ sort: name === "key" ? "" : name }),
      selected: may ? picked.keys : null,
      onSelect: (key, on) => pick([key], on),
      onSelectAll: (on) => pick(items.map((item) => item.key), on),
    });
  }

  function pick(keys, on) {
    picked.turn(keys, on);
    ctx.draw();
  }

  function nothing() {
    if (!Object.values(chosen()).some(Boolean)) return empty(word("rs_none_at_all"));
    return h("p", { key: "none" }, word("rs_none"), " ",
      h("button", { type: "button", class: "plain", on: { click: showAll } }, word("rs_all")));
  }

  function showAll() {
    document.querySelector(".filters[role=search]").elements.search.focus();  // the button goes
    go("repos");
  }

  function pager() {
    const pages = total === null ? null : Math.max(1, Math.ceil(total / size()));
    const one = page() === 1 && list.data?.next_cursor === null;
    if (list.data === null || (one && list.data.items.length <= SIZES[0])) return null;
    return h("nav", { key: "pager", class: "buttons pager", "aria-label": word("rs_pages") },
      h("button", { key: "back", type: "button", "aria-disabled": page() === 1 ? "true" : null, on: { click: () => turnPage(-1) } }, word("rs_back")),
      h("span", { class: "numbers" }, pages ? word("rs_page_of", number(page()), number(pages)) : word("rs_page", number(page()))),
      h("button", { key: "next", type: "button", "aria-disabled": list.data.next_cursor === null ? "true" : null, on: { click: () => turnPage(1) } }, word("rs_next")),
      h("label", { key: "size", class: "rows" }, h("span", null, word("rs_rows")), " ",
        h("select", { value: String(size()), on: { change: (event) => turn({ limit: event.target.value }) } },
          SIZES.map((rows) => h("option", { key: rows, value: String(rows) }, number(rows))))));
  }
}

const COLUMNS = () => [
  { id: "key", label: word("rs_key"), sort: "key", cell: name },
  { id: "status", label: word("rs_status"), cell: state },
  { id: "priority", label: word("rs_priority"), cell: (item) => wordOr(`p_${item.priority}`, item.priority) },
  { id: "verified", label: word("rs_verified"), sort: "verified", cell: (item) => when(item.verified_at) },
  { id: "changed", label: word("rs_changed"), sort: "changed", cell: (item) => when(item.changed_at) },
  { id: "size", label: word("rs_size"), sort: "size", number: true, cell: (item) => (item.size_bytes ? bytes(item.size_bytes) : "–") },
  { id: "failures", label: word("rs_failures"), sort: "failures", number: true, cell: (item) => number(item.consecutive_failures ?? 0) },
];

const name = (item) => [
  repoLink(item.key),
  item.private && h("span", { class: "status" }, word("rs_private")),
  item.alias && h("span", { class: "quiet small alias key" }, h("bdi", null, item.alias)),
];

function state(item) {
  const error = item.last_error;
  return [
    status(item.status),
    error && h("span", { class: "bad small cause", title: error.error_message }, wordOr(`k_${error.error_type}`, error.error_type)),
  ];
}
