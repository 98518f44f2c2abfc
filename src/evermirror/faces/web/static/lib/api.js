// Questions to the server, with the token of who asks.
import { heard } from "./clock.js";

const TIMEOUT_MS = 15_000;  // an answer that takes longer counts as none

/** What the server refused, in its words. */
export class Problem extends Error {
  constructor(status, told) {
    super(told.detail || told.title || `HTTP ${status}`);
    this.status = status;
    this.hint = told.hint ?? "";
    this.errors = told.errors ?? [];  // [{where: "body.field", what}]
    this.type = (told.type ?? "").split("/").pop();
  }
}

/** Who asks is not known, or no longer. */
export class Denied extends Problem {}

/** There was no answer. */
export class Lost extends Error {}

export const token = {
  get: () => sessionStorage.getItem("token"),
  set(text) {
    refused = null;
    if (text) sessionStorage.setItem("token", text);
    else sessionStorage.removeItem("token");
  },
};

// The token that was refused, and how: sent again and again it would lock out everybody at this address.
let refused = null;

export const headers = (more, known = token.get()) => (known ? { ...more, Authorization: `Bearer ${known}` } : { ...more });

/** The JSON that the server answers; throws Problem, Denied, Lost, or AbortError where `signal` was given up.
 * `as`: another token than that of who is signed in. */
export async function ask(path, { method = "GET", body, signal, as } = {}) {
  const known = as ?? token.get();
  if (!as && refused?.known === known) throw refused.error;
  try {
    return await answered(path, { method, body, signal, known });
  } catch (error) {
    if (error instanceof Denied && known && !as && known === token.get()) refused = { known, error };
    throw error;
  }
}

async function answered(path, { method, body, signal, known }) {
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  const options = {
    method,
    headers: headers({ Accept: "application/json", ...(body === undefined ? {} : { "Content-Type": "application/json" }) }, known),
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: signal ? AbortSignal.any([signal, limit]) : limit,
    cache: "no-store",
  };
  let answer, told;
  try {
    answer = await fetch(path, options);
    heard(answer);
    told = await answer.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Lost(String(error));
  }
  return answer.ok ? JSON.parse(told || "null") : refuse(answer.status, told);
}

function refuse(status, text) {
  let told = {};
  try {
    told = JSON.parse(text) ?? {};
  } catch {
    // a proxy's words: the status says enough
  }
  throw new (status === 401 ? Denied : Problem)(status, told);
}

/** `{a: 1, b: "", c: null}` as `?a=1`. */
export function query(values) {
  const kept = Object.entries(values).filter(([, v]) => v !== "" && v !== null && v !== undefined && v !== false);
  const text = new URLSearchParams(kept.map(([k, v]) => [k, String(v)])).toString();
  return text ? `?${text}` : "";
}

/** A key as part of an address. */
export function keyPath(key) {
  if (strays(key)) throw new Problem(404, { detail: key });
  return key.split("/").map(encodeURIComponent).join("/");
}

/** Whether a path would lead elsewhere: browsers take `..` as a step up, however it is written. */
export const strays = (path) => path.split("/").some((part) => /^(\.|%2e){1,2}$/i.test(part));
