// Where alerts are sent, how each place is doing, and messages that try one out.
import { confirm, notice } from "../lib/dialog.js";
import { h } from "../lib/dom.js";
import { empty, section, table, when } from "../lib/parts.js";
import { number, word, wordOr } from "../lib/words.js";

export function channelsPart(ctx, channels, look) {
  const may = ctx.session.may("operator");
  if (!channels) return section("channels", word("al_channels"), empty(word("loading")));
  if (!channels.length) return section("channels", word("al_channels"), h("p", { class: "warn" }, word("al_no_channels")));
  return section("channels", word("al_channels"),
    table({
      key: "channels-table",
      caption: word("al_channels"),
      rows: channels,
      keyOf: (one) => one.name,
      columns: [
        { id: "name", label: word("al_channel"), cell: (one) => h("bdi", null, one.name) },
        { id: "type", label: word("al_type"), cell: (one) => one.type },
        { id: "state", label: word("al_state"), cell: state },
        { id: "waiting", label: word("al_waiting"), number: true, cell: (one) => number(one.waiting) },
        { id: "sent", label: word("al_last_sent"), cell: (one) => when(one.sent_at) },
        ...(may ? [{ id: "test", label: word("al_test"), cell: (one) => h("button", {
          type: "button", "aria-label": word("al_test_one", one.name), on: { click: () => tryOut(ctx, one.name, 1, look) },
        }, word("al_test")) }] : []),
      ],
    }),
    may && channels.length > 1 && h("p", null, h("button", {
      type: "button", on: { click: () => tryOut(ctx, null, channels.length, look) },
    }, word("al_test_all"))));
}

function state(one) {
  const kind = { fine: "good", failing: "bad" }[one.state] ?? "quiet";
  return [
    h("span", { class: kind }, wordOr(`al_c_${one.state}`, one.state)),
    one.failing_since && h("div", { class: "small" }, word("al_failing_since"), " ", when(one.failing_since)),
    one.error && h("div", { class: "small key" }, one.error),
  ];
}

async function tryOut(ctx, channel, count, look) {
  const line = channel === null ? word("al_test_line_all", number(count)) : word("al_test_line", channel);
  if (!await confirm({ title: word("al_test_title"), lines: [line], action: word("al_test_do") })) return;
  const told = await ctx.act("/api/alerts/test", { body: { channel } });
  for (const one of told?.items ?? []) {
    if (one.sent) notice(word("al_test_sent", one.channel));
    else notice(word("al_test_failed", one.channel, one.error), "bad");
  }
  look();
}
