// One stream of what happens, for the whole page: read through fetch, because it carries the token.
//
//   waiting ──connect──▶ live ──ended, silent, refused──▶ lost ──pause──▶ live …
//                          ├── nobody looks (hidden for a while) ──▶ resting ──looked at──▶ live
//                          └── a token is needed ──▶ denied, until it is opened for somebody else
//
// A browser opens few connections to one server, so tabs that nobody looks at let go of theirs.
import { headers } from "./api.js";
import { heard, now } from "./clock.js";

const BEGIN_MS = 15_000;  // an answer that takes longer to begin counts as none
const SILENT_MS = 40_000;  // the server says something every 15 s
const HIDDEN_MS = 30_000;
const PAUSE_MS = [1000, 2000, 4000, 8000, 15_000];
const MOST_PAUSE_MS = 60_000;  // however long the server asks us to wait

const listeners = new Map();
let state = { name: "waiting", since: now() };
let lastId = null, wanted = "", tries = 0, run = null, again = 0, hiding = 0;

export const live = {
  get state() { return state; },

  /** `type`: "overview", "progress", "gap", "state", the type of an event, or "event" for any of these last. */
  on(type, listener) {
    if (!listeners.has(type)) listeners.set(type, new Set());
    listeners.get(type).add(listener);
    return () => listeners.get(type).delete(listener);
  },

  /** Begins, or begins anew for somebody else. */
  open({ progress }) {
    wanted = `/api/events?overview=true${progress ? "&progress=true" : ""}`;
    lastId = null;
    restart();
  },

  /** Until it is opened again, for somebody who may follow. */
  close() {
    wanted = "";
    clearTimeout(hiding);
    end();
    turn("denied");
  },

  /** For what was asked for instead, while nothing came by itself. */
  tell: say,
};

function end() {
  clearTimeout(again);
  run?.abort();
  run = null;
}

function restart() {
  end();
  if (wanted && !document.hidden) follow(run = new AbortController());
}

async function follow(mine) {
  let denied = false, pause = 0;
  const begin = setTimeout(() => mine.abort(), BEGIN_MS);
  try {
    const answer = await fetch(wanted, {
      headers: headers({ Accept: "text/event-stream", ...(lastId === null ? {} : { "Last-Event-ID": lastId }) }),
      signal: mine.signal,
      cache: "no-store",
    });
    clearTimeout(begin);
    heard(answer);
    denied = answer.status === 401 || answer.status === 403;
    pause = Math.min(1000 * Number(answer.headers.get("Retry-After")) || 0, MOST_PAUSE_MS);
    if (answer.ok) await read(answer.body.getReader(), mine);
    else await answer.body?.cancel();
  } catch {
    // it ended: the same follows, however it did
  }
  clearTimeout(begin);
  if (run !== mine) return;
  turn(denied ? "denied" : "lost");
  if (denied) return;
  const usual = PAUSE_MS[Math.min(tries, PAUSE_MS.length - 1)] * (0.7 + 0.6 * Math.random());
  again = setTimeout(restart, Math.max(usual, pause));
  tries += 1;
}

async function read(reader, mine) {
  const decoder = new TextDecoder();
  let text = "", silence = 0;
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => mine.abort(), SILENT_MS);
  };
  try {
    for (;;) {
      heard();
      const { done, value } = await reader.read();
      if (done || run !== mine) return;
      tries = 0;
      turn("live");
      text += decoder.decode(value, { stream: true });
      const frames = text.split("\n\n");
      text = frames.pop();
      frames.forEach(take);
    }
  } finally {
    clearTimeout(silence);
    reader.cancel().catch(() => {});
  }
}

function take(frame) {
  let type = "message", data = "", id = null;
  for (const line of frame.split("\n")) {
    const colon = line.indexOf(":");
    const name = line.slice(0, colon), value = line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") type = value;
    else if (name === "data") data += value;
    else if (name === "id") id = value;
  }
  if (id !== null) lastId = id;
  if (!data) return;
  const told = JSON.parse(data);
  say(type, told);
  if (id !== null && type !== "gap") say("event", told);
}

function say(type, told) {
  for (const listener of [...(listeners.get(type) ?? [])]) {
    try {
      listener(told);
    } catch (error) {
      console.error(error);  // one part's fault must not end the stream for the others
    }
  }
}

function turn(name) {
  if (state.name === name) return;
  state = { name, since: now() };
  say("state", state);
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (!document.hidden && run === null && wanted) restart();
  else if (document.hidden && wanted) {
    hiding = setTimeout(() => {
      end();
      turn("resting");
    }, HIDDEN_MS);
  }
});
addEventListener("online", () => state.name === "lost" && restart());
