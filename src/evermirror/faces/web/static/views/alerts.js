// What people are told of: what stands, what stood, who was told, and what is kept from them for a while.
import { lookAgain } from "../lib/again.js";
import { query } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { empty, section, when } from "../lib/parts.js";
import { lang, number, word, wordOr } from "../lib/words.js";
import { aboutLink } from "./alerts_about.js";
import { notices } from "./alerts_notices.js";
import { channelsPart } from "./alerts_channels.js";
import { askSilence, silencesPart } from "./alerts_silences.js";

const STANDING = 200;
const OVER = 20;

export default function alerts(ctx) {
  const title = word("nav_alerts");
  if (!ctx.session.may("reader")) return { title, render: () => [empty(word("al_reader"))] };
  const state = { standing: null, over: null, pages: 1, channels: null, silences: null };
  const opened = new Map();  // by id: the alert in full, null while it is asked for

  const look = () => {
    ctx.load(`/api/alerts${query({ state: "standing", language: lang, limit: STANDING })}`, (told) => { state.standing = told; });
    ctx.load(`/api/alerts/channels`, (told) => { state.channels = told.items; });
    ctx.load(`/api/alerts/silences`, (told) => { state.silences = told.items; });
    lookAtOver();
    for (const id of opened.keys()) lookAtOne(id);
  };
  const lookAtOver = () =>
    ctx.load(`/api/alerts${query({ state: "over", language: lang, limit: OVER * state.pages })}`, (told) => { state.over = told; });
  const lookAtOne = (id) => ctx.load(`/api/alerts/${id}${query({ language: lang })}`, (told) => opened.has(id) && opened.set(id, told));
  look();
  lookAgain(ctx, ["alert.raised", "alert.over"], look);

  function turnedOpen(id, open) {
    if (!open) {
      opened.delete(id);
      ctx.forget(`/api/alerts/${id}`);
    } else if (!opened.has(id)) {
      opened.set(id, null);
      lookAtOne(id);
    }
  }

  function one(alert) {
    return h("li", { key: alert.id },
      h("div", { class: "between" },
        h("span", null, level(alert.level), " ", h("strong", null, alert.title), " ", aboutLink(alert),
          alert.silenced_by !== null && [" ", h("span", { class: "status" }, word("al_silenced"))]),
        h("span", { class: "quiet small" }, alert.standing
          ? [word("al_since"), " ", when(alert.raised_at)]
          : [word("al_ended"), " ", when(alert.ended_at)])),
      h("p", { class: "key" }, alert.text),
      !alert.standing && h("p", { class: "quiet small key" }, alert.end_text),
      h("div", { class: "al-row" },
        h("details", { class: "al-told", on: { toggle: (event) => turnedOpen(alert.id, event.target.open) } },
          h("summary", null, word("al_told")), notices(opened.get(alert.id), alert)),
        alert.standing && ctx.session.may("operator") && h("button", {
          type: "button", "aria-label": word("al_silence_one", alert.title), on: { click: () => askSilence(ctx, alert, look) },
        }, word("al_silence"))));
  }

  function render() {
    const { standing, over } = state;
    if (!standing) return ctx.failed ? [] : [empty(word("loading"))];
    return [
      section("standing", standing.total ? word("al_standing_n", number(standing.total)) : word("al_standing"),
        standing.items.length ? h("ul", { class: "plain" }, standing.items.map(one)) : h("p", { class: "good" }, word("al_none")),
        !ctx.session.may("operator") && h("p", { class: "quiet small" }, word("al_who"))),
      h("div", { key: "columns", class: "columns" },
        h("div", { key: "left" }, channelsPart(ctx, state.channels, look)),
        h("div", { key: "right" }, silencesPart(ctx, state.silences, look))),
      section("over", word("al_over"),
        !over ? empty(word("loading")) : over.items.length ? h("ul", { class: "plain" }, over.items.map(one)) : empty(word("al_none_over")),
        over && over.items.length < over.total && h("p", null, h("button", {
          type: "button", on: { click: () => { state.pages += 1; lookAtOver(); } },
        }, word("al_more_over")))),
    ];
  }

  return { title, render };
}

const level = (name) => h("span", { class: `status lv-${name}` }, wordOr(`al_l_${name}`, name));
