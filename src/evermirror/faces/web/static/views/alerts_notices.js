// Who was told of an alert, and who was not.
import { h } from "../lib/dom.js";
import { empty, table, when } from "../lib/parts.js";
import { number, word, wordOr } from "../lib/words.js";

export function notices(full, alert) {
  if (full === undefined) return null;
  if (full === null) return empty(word("loading"));
  const silenced = alert.silenced_by !== null && h("p", { class: "quiet small" }, word("al_told_silenced"));
  if (!full.notices.length) return [silenced, !silenced && empty(word("al_told_nobody"))];
  return [silenced, table({
    key: "notices",
    caption: word("al_told"),
    rows: full.notices,
    keyOf: (one) => `${one.channel} ${one.turn} ${one.created_at}`,
    columns: [
      { id: "channel", label: word("al_channel"), cell: (one) => h("bdi", null, one.channel) },
      { id: "turn", label: word("al_turn"), cell: (one) => wordOr(`al_t_${one.turn}`, one.turn) },
      { id: "state", label: word("al_state"), cell: state },
      { id: "when", label: word("al_when"), cell: (one) => when(one.sent_at ?? one.given_up_at ?? one.created_at) },
      { id: "attempts", label: word("al_attempts"), number: true, cell: (one) => number(one.attempts) },
    ],
  })];
}

function state(one) {
  const kind = { sent: "good", "given-up": "bad" }[one.state] ?? "quiet";
  return [
    h("span", { class: kind }, wordOr(`al_n_${one.state}`, one.state)),
    one.next_attempt_at && [" · ", word("al_next"), " ", when(one.next_attempt_at)],
    one.error && h("div", { class: "small key" }, one.error),
  ];
}
