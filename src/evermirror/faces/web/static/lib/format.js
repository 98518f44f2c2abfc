// Numbers and times as people read them.
import { now } from "./clock.js";
import { lang, number, word } from "./words.js";

export { now };

export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return word("span_s", s);
  if (s < 5400) return word("span_m", Math.round(s / 60));
  if (s < 129_600) return word("span_h", Math.round(s / 3600));
  return word("span_d", Math.round(s / 86_400));
}

export const sinceIso = (iso) => (now() - Date.parse(iso)) / 1000;

/** "5 min ago", or "in 5 min" for what is to come. */
export function ago(iso) {
  const s = sinceIso(iso);
  return s < -1 ? word("in_span", span(-s)) : word("ago", span(s));
}

export const clock = (iso) => new Date(iso).toLocaleTimeString(lang, { hour12: false });
export const shortClock = (ms) =>
  new Date(ms).toLocaleTimeString(lang, { hour12: false, hour: "2-digit", minute: "2-digit" });
export const moment = (iso) => new Date(iso).toLocaleString(lang, { hour12: false, dateStyle: "medium", timeStyle: "medium" });
export const day = (iso) => new Date(iso).toLocaleDateString(lang, { month: "short", day: "numeric" });

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let n = bytes, i = 0;
  while (Math.round(n) >= 1000 && i < units.length - 1) { n /= 1000; i += 1; }
  return `${n < 9.95 && i ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

/** Never rounded up to 100 %: that is said only where it is so. */
export function percent(share) {
  if (share === null || share === undefined) return "–";
  return `${(Math.floor(share * 1000) / 10).toFixed(share === 1 || share === 0 ? 0 : 1)} %`;
}

export const rate = (value) => number(value, value < 10 ? 1 : 0);
