// Old tips that upstream threw away: here they are kept, and can be shown again.
import { query } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { section, table, when } from "../lib/parts.js";
import { many, word, wordOr } from "../lib/words.js";
import { pager } from "./repo_pager.js";
import { oid } from "./repo_refs.js";
import { source } from "./repo_source.js";

const PAGE = 20;

export default function kept(ctx, base, acts) {
  const told = source(ctx);
  const load = () => told.load(`${base}/-/history${query({ limit: PAGE, cursor: pages.cursor() })}`);
  const pages = pager(word("rp_kept_pages"), () => told.data?.next_cursor, load);

  return {
    load,
    render() {
      if (!told.data?.total) return null;
      const may = ctx.session.may("operator");
      return section("kept", word("rp_kept"),
        h("p", { key: "count", class: "quiet small" }, many("rp_kept_count", told.data.total)),
        table({ key: "table", caption: word("rp_kept"), rows: told.data.items, keyOf: (tip) => tip.kept, columns: [
          { id: "ref", label: word("rp_name"), cell: (tip) => h("bdi", { class: "key" }, tip.ref) },
          { id: "when", label: word("rp_when"), cell: (tip) => when(tip.date) },
          { id: "why", label: word("rp_kept_why"), cell: (tip) => wordOr(`rp_kept_${tip.why}`, tip.why) },
          { id: "old", label: word("rp_kept_old"), cell: (tip) => [oid(tip.old), tip.new && [" → ", oid(tip.new)]] },
          ...(may ? [{ id: "act", label: word("rp_kept_act"), cell: (tip) => acts().restore(tip) }] : []),
        ] }),
        pages.render());
    },
  };
}
