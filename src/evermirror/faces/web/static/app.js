// The page: who looks, where he is, what is told live. Views show the rest.
//
// A view is a function of a context, and gives {title, render, turned?}. `render()` gives its whole tree;
// `ctx.draw()` asks for it to be shown. What a view begins through its context ends when it is left.
import { Denied, Lost, Problem, ask, strays } from "./lib/api.js";
import { complain, notice } from "./lib/dialog.js";
import { h, patch } from "./lib/dom.js";
import { clock } from "./lib/format.js";
import { live } from "./lib/live.js";
import { here, href } from "./lib/route.js";
import { session } from "./lib/session.js";
import { learnWords, word } from "./lib/words.js";
import overview from "./views/overview.js";

const VIEWS = { overview: [], repos: [], repo: ["repo"], fleet: ["fleet"], pull: ["pull"], alerts: ["alerts"] };  // their words
const NAV = ["overview", "repos", "fleet", "pull", "alerts"];
const OVERVIEW_MS = 30_000;  // between two looks at it where nothing is told live
const FAILURE_MS = 60_000;  // what is not asked for any more does not fail for ever
const at = (id) => document.getElementById(id);
let shown = null;  // {name, path, context, view}
let figures = null;  // the latest overview, for every view
let version = null, upgraded = false;  // of the server, as first told

// Views

const views = new Map([["overview", overview]]);  // those that are here; the others come when nothing else is to do

async function fetchView(name) {
  if (views.has(name)) return;
  for (const words of await Promise.all(VIEWS[name].map((part) => import(`./words/${part}.js`)))) learnWords(words.default);
  views.set(name, (await import(`./views/${name}.js`)).default);
}

/** So that a connection that is lost, or another version at the server, finds them all here. */
async function fetchViews() {
  try {
    for (const name of Object.keys(VIEWS)) await fetchView(name);
  } catch {
    // who goes there is told
  }
}

function context(place) {
  const leaving = new AbortController();
  const failures = new Map();  // by address: that one part is answered does not hide that another is not
  const ctx = {
    path: place.path,
    query: place.query,
    session,
    signal: leaving.signal,
    /** The overview as last told, or null; its `now` says when it was so. */
    get overview() { return figures; },
    draw: () => leaving.signal.aborted || drawSoon(),
    /** What the server answers goes to `take`; a failure is shown in place of the view's first data. */
    async load(path, take) {
      const [place] = path.split("?");
      try {
        const told = await ask(path, { signal: leaving.signal });
        if (leaving.signal.aborted) return;
        failures.delete(place);
        take(told);
      } catch (error) {
        if (leaving.signal.aborted) return;
        if (error instanceof Denied) session.learn().catch(() => {});
        const failure = { error };
        failures.set(place, failure);
        const passing = error instanceof Lost || error.status === 429 || error.status >= 500;
        if (passing) setTimeout(() => failures.get(place) === failure && ctx.forget(path), FAILURE_MS);
      }
      ctx.draw();
    },
    /** This address is not asked any more: that it failed does not matter. */
    forget(path) {
      if (failures.delete(path.split("?")[0])) ctx.draw();
    },
    /** Does something at the server; what it refuses is told. Returns the answer, or null. */
    async act(path, options) {
      try {
        return await ask(path, { method: "POST", ...options });
      } catch (error) {
        complain(error);
        return null;
      }
    },
    /** Follows what is told live, until the view is left. */
    on: (type, listener) => leaving.signal.addEventListener("abort", live.on(type, listener)),
    every(ms, look) {
      const timer = setInterval(() => document.hidden || look(), ms);
      leaving.signal.addEventListener("abort", () => clearInterval(timer));
    },
    get failed() { return failures.values().next().value?.error ?? null; },
    leave: () => leaving.abort(),
  };
  return ctx;
}

function show() {
  if (!session.me.known || session.me.denied) return;  // what a view asks for depends on who looks
  const place = here();
  const name = strays(place.path) ? "nowhere" : Object.hasOwn(VIEWS, place.name) ? place.name : "overview";
  if (shown && shown.name === name && shown.path === place.path && shown.view.turned) {
    shown.context.query = place.query;
    shown.view.turned(place.query);
    drawSoon();
    return;
  }
  const moved = shown !== null && (shown.name !== name || shown.path !== place.path);
  shown?.context.leave();
  shown = { name, path: place.path, context: context(place), view: null };
  enter(shown);
  if (moved) at("view").replaceChildren();
  draw();
  if (moved) {
    scrollTo(0, 0);
    at("view").focus({ preventScroll: true });  // who listens hears where he is
  }
}

/** Gives it its view, as soon as that is here. */
function enter(mine) {
  const { name, context: ctx } = mine;
  if (name === "nowhere") {
    mine.view = said("nowhere", () => h("p", { key: "nowhere" }, h("a", { href: href("overview") }, word("to_overview"))));
  } else if (views.has(name)) {
    try {
      mine.view = views.get(name)(ctx);
    } catch (error) {
      mine.view = said(`nav_${name}`, () => broken(mine, error));
    }
  } else {
    mine.view = said(`nav_${name}`, () => h("p", { key: "coming", class: "quiet" }, word("loading")));
    fetchView(name)
      .then(() => shown === mine && enter(mine), () => { mine.view = said(`nav_${name}`, unloaded); })
      .finally(ctx.draw);
  }
}

const said = (title, render) => ({ title: word(title), render });

const reload = () => h("button", { key: "reload", type: "button", on: { click: () => location.reload() } }, word("reload"));

function unloaded() {
  return h("div", { key: "unloaded", class: "box bad", role: "alert" }, h("p", null, word("unloaded")), reload());
}

/** A fault of ours: told to who looks, and once to who looks for it. */
function broken(mine, error) {
  if (error instanceof Problem) return trouble(error);
  if (mine.fault !== error.message) console.error(error);
  mine.fault = error.message;
  return h("div", { key: "broken", class: "box bad", role: "alert" }, h("p", null, word("broken", error.message)), reload());
}

let drawing = 0;
function drawSoon() {
  drawing ||= requestAnimationFrame(() => {
    drawing = 0;
    draw();
  });
}

function draw() {
  drawShell();
  if (session.me.denied) {
    patch(at("view"), [signIn()]);
    return;
  }
  if (shown === null) return;
  const { context: ctx, view } = shown;
  document.title = `${view.title} · evermirror`;
  patch(at("view"), [h("h1", { key: "title" }, view.title), ctx.failed ? trouble(ctx.failed) : null, rendered(shown)].flat());
}

function rendered(mine) {
  try {
    return mine.view.render();
  } catch (error) {
    return broken(mine, error);
  }
}

const inWords = (error) => (error instanceof Problem ? [error.message, error.hint].filter(Boolean).join(". ") : word("no_answer"));

const trouble = (error) => h("p", { key: "trouble", class: "box bad", role: "alert" }, inWords(error));

// The shell

function drawShell() {
  patch(at("nav"), NAV.map((name) =>
    h("a", { key: name, href: href(name), "aria-current": isAt(name) ? "page" : null }, word(`nav_${name}`), badge(name))));
  const { name, since } = live.state;
  const kind = { live: "good", lost: "bad", denied: "bad" }[name] ?? "quiet";
  patch(at("state"), [h("span", { class: `lamp ${kind}`, "aria-hidden": "true" }), h("span", { class: kind }, word(`live_${name}`))]);
  at("stale").hidden = name !== "lost";
  patch(at("stale"), name === "lost" ? word("stale", clock(since)) : "");
  at("upgraded").hidden = !upgraded;
  patch(at("upgraded"), upgraded ? [word("upgraded"), " ", reload()] : []);
  patch(at("who"), who());
  const open = asking && !session.me.denied;
  at("login").hidden = !open;
  patch(at("login"), open ? [signIn()] : []);
  patch(at("version"), figures?.version ?? "");
}

const isAt = (name) => shown?.name === name || (name === "repos" && shown?.name === "repo");

function badge(name) {
  const count = name === "alerts" ? figures?.alerts_standing?.total ?? 0 : 0;
  return count > 0 && h("span", { class: "badge" }, count);
}

function who() {
  const { me, signedIn } = session;
  if (!me.known) return [];
  const name = me.name ?? word("nobody");
  return [
    h("span", { class: "quiet" }, `${name} (${word(`role_${me.role}`)})`),
    signedIn
      ? h("button", { key: "out", type: "button", class: "plain", on: { click: signOut } }, word("sign_out"))
      : me.role !== "admin" && h("button", { key: "in", type: "button", class: "plain", on: { click: askForToken } }, word("sign_in")),
  ];
}

// Who looks

let asking = false, tokenProblem = "";
function askForToken() {
  asking = !asking;
  tokenProblem = "";
  draw();
  if (asking) at("token").focus();
}

function signIn() {
  return h("form", { key: "sign-in", class: "box sign-in", on: { submit: submitToken } },
    h("p", null, word("sign_in_why")),
    h("label", { class: "field" }, h("span", null, word("token")),
      h("input", { id: "token", type: "password", autocomplete: "off", required: true, maxlength: 1000, "aria-describedby": "token-problem" })),
    h("p", { id: "token-problem", class: "bad", role: "alert" }, tokenProblem),
    h("button", { class: "primary" }, word("sign_in")));
}

async function submitToken(event) {
  event.preventDefault();
  const field = at("token"), text = field.value.trim();
  try {
    if (!/^[\x21-\x7e]+$/.test(text)) throw new Problem(422, { detail: word("token_letters") });  // no header could hold it
    await session.signIn(text);
    asking = false;
    tokenProblem = "";
    notice(word("signed_in", session.me.name ?? ""));
  } catch (error) {
    tokenProblem = error instanceof Denied ? word("token_refused") : inWords(error);
    field.select();
  }
  draw();
}

function signOut() {
  session.signOut().catch(complain);
}

let role = null;
function turned() {
  const { me } = session;
  if (me.denied) {
    live.close();
    figures = null;
    shown?.context.leave();  // else it would go on asking with what is refused
    shown = null;
  }
  if (!me.denied && role !== `${me.name} ${me.role}`) {
    figures = null;
    live.open({ progress: session.may("reader") });
    shown?.context.leave();
    shown = null;
    show();
    (window.requestIdleCallback ?? setTimeout)(fetchViews);
  }
  role = me.denied ? null : `${me.name} ${me.role}`;
  drawSoon();
}

/** Where it does not come by itself. */
async function lookAtOverview() {
  if (document.hidden || live.state.name === "live" || !session.me.known || session.me.denied) return;
  try {
    live.tell("overview", await ask("/api/overview"));
  } catch (error) {
    if (error instanceof Denied) session.learn().catch(() => {});
  }
}

async function start() {
  for (const place of document.querySelectorAll("[data-word]")) place.textContent = word(place.dataset.word);
  for (const place of document.querySelectorAll("[data-label]")) place.setAttribute("aria-label", word(place.dataset.label));
  session.on(turned);
  live.on("overview", (told) => {
    figures = told;
    version ??= told.version;
    upgraded ||= told.version !== version;
    drawSoon();
  });
  live.on("state", ({ name }) => {
    if (name === "denied" && !session.me.denied) session.learn().catch(() => {});
    if (name === "live" && shown && !views.has(shown.name) && shown.name !== "nowhere") enter(shown);
    drawSoon();
  });
  setInterval(lookAtOverview, OVERVIEW_MS);
  addEventListener("hashchange", show);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();  // the address says where in the page we are
    at("view").focus();
  });
  draw();
  for (;;) {
    try {
      await session.learn();
      return;
    } catch (error) {
      patch(at("view"), [trouble(error)]);
      await new Promise((later) => setTimeout(later, 2000));  // the server is not there yet
    }
  }
}

start();
