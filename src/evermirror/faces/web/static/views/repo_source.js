// Questions that are asked again and again, and when to ask them anew.
import { Denied, Lost, ask } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { word } from "../lib/words.js";

/** One question: the latest one counts, whatever comes late from an earlier one is let go.
 * `data` is the last answer, `error` why there was none this time. */
export function source(ctx) {
  let asking = null;
  const told = {
    data: null, error: null, loading: false,
    async load(path) {
      if (ctx.signal.aborted) return;
      asking?.abort();
      const mine = (asking = new AbortController());
      told.loading = true;
      const end = (data, error) => {
        if (asking !== mine || ctx.signal.aborted) return;
        Object.assign(told, { error, loading: false }, data === undefined ? {} : { data });
        ctx.draw();
      };
      try {
        end(await ask(path, { signal: AbortSignal.any([ctx.signal, mine.signal]) }), null);
      } catch (error) {
        if (error instanceof Denied && !ctx.signal.aborted) ctx.session.learn().catch(() => {});
        end(undefined, error);
      }
    },
  };
  return told;
}

/** Why there is no answer. */
export const unanswered = (error) => h("p", { key: "unanswered", class: "box bad", role: "alert" },
  error instanceof Lost ? word("no_answer") : [error.message, error.hint].filter(Boolean).join(". "));

const SOON_MS = 150;  // what happens together is looked at together

/** `touch()` calls `look` soon; however often it is touched, at most once in `ms`. */
export function calm(ctx, ms, look) {
  let timer = 0, last = -ms;
  ctx.signal.addEventListener("abort", () => clearTimeout(timer));
  return () => {
    timer ||= setTimeout(() => {
      timer = 0;
      last = performance.now();  // a clock may be set back
      look();
    }, Math.max(SOON_MS, last + ms - performance.now()));
  };
}

/** Calls `look` when `ms` passed since the last touch: for what is being typed. */
export function settled(ctx, ms, look) {
  let timer = 0;
  ctx.signal.addEventListener("abort", () => clearTimeout(timer));
  return () => {
    clearTimeout(timer);
    timer = setTimeout(look, ms);
  };
}

/** Calls `look` where live events may have been missed, and every `ms` in any case. */
export function keepFresh(ctx, ms, look) {
  let away = false;
  ctx.on("gap", look);
  ctx.on("state", ({ name }) => {
    if (name === "live" && away) look();
    away = name === "lost" || name === "resting" || (away && name !== "live");
  });
  ctx.every(ms, look);
}
