// When to look again at what was asked for: as it changes, and never often.

const APART_MS = 2000;
const SLOW_MS = 45_000;

/** Looks when one of these live types is told, after something was missed, and slowly in between; the looks are
 * at least `apart` ms apart, and the last thing told is always followed by one. */
export function lookAgain(ctx, types, look, { apart = APART_MS, slow = SLOW_MS } = {}) {
  let last = performance.now(), waiting = 0, lost = false;
  const now = () => {
    waiting = 0;
    last = performance.now();
    look();
  };
  const soon = () => {
    waiting ||= setTimeout(now, Math.max(300, last + apart - performance.now()));
  };
  for (const type of [...types, "gap"]) ctx.on(type, soon);
  ctx.on("state", ({ name }) => {
    if (name === "live" && lost) soon();
    lost = name !== "live";
  });
  ctx.every(slow, soon);
  ctx.signal.addEventListener("abort", () => clearTimeout(waiting));
  return soon;
}
