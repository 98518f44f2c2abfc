// Shows the overview, live. Names come from strangers: they are only ever set as text.
import { ago, clock, size, span, word } from "./words.js";

const LOOK_MS = 2000;      // how often the overview is asked for
const WRONG_EVERY = 5;     // ... and every how many looks the failing repos
const TIMEOUT_MS = 10000;  // an answer that takes longer counts as a lost connection
const at = (id) => document.getElementById(id);
let lostSince = null, looks = 0, now = Date.now(), cursor = null, searchRun = 0;

class Denied extends Error {}

async function ask(path) {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (answer.status === 401) throw new Denied();
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
}

function make(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function row(title, side, small) {
  const li = make("li");
  if (side) li.append(make("span", side, "side"));
  li.append(make("span", title));
  if (small) li.append(make("small", small));
  return li;
}

function figure(name, value, className) {
  const box = make("div");
  box.append(make("dt", word(name)), make("dd", value, className));
  return box;
}

function showOverview(o) {
  now = Date.parse(o.now);
  const share = o.fresh_share;
  const fresh = share === null ? "–" : `${(Math.floor(share * 1000) / 10).toFixed(share === 1 ? 0 : 1)} %`;
  at("figures").replaceChildren(
    figure("total", o.total_repos.toLocaleString()),
    figure("fresh", fresh, share === 1 ? "good" : ""),
    figure("worst", o.worst_lag_s === null ? "–" : span(o.worst_lag_s)),
    figure("polls", o.polls_per_second.toFixed(1)),
    figure("queued", o.queued_syncs.toLocaleString()),
    figure("disk", size(o.disk_free_bytes), o.accepting_clones ? "" : "bad"),
  );
  at("statuses").replaceChildren(...Object.entries(o.by_status).map(([name, count]) =>
    make("li", `${word(`s_${name}`)} ${count.toLocaleString()}`)));
  const warnings = o.accepting_clones ? o.warnings : [word("no_clones"), ...o.warnings];
  at("warnings").replaceChildren(...warnings.map((w) => make("li", w)));
  at("running").replaceChildren(...o.running.map(runningRow));
  if (!o.running.length) at("running").append(make("li", word("nothing_running"), "quiet"));
  at("hosts").replaceChildren(...o.hosts.map((h) => {
    const state = h.state === "waiting" && h.until ? word("waiting", clock(h.until)) : word(h.state);
    return row(`${h.host}: ${state}`, word("host_repos", h.repos), h.reason);
  }));
  at("version").textContent = o.version;
}

function runningRow(sync) {
  const percent = sync.percent === null ? "" : ` ${Math.round(sync.percent)} %`;
  const li = row(sync.key, `${sync.phase}${percent}`, "");
  const bar = make("progress");
  bar.max = 100;
  bar.setAttribute("aria-label", sync.key);
  if (sync.percent !== null) bar.value = sync.percent;
  const age = span((now - Date.parse(sync.started_at)) / 1000);
  li.append(bar, make("small", `${word("received", size(sync.received_bytes))} · ${age}`));
  return li;
}

function repoRow(repo) {
  const seen = repo.verified_at ? word("verified", ago((now - Date.parse(repo.verified_at)) / 1000)) : word("never");
  const error = repo.last_error;
  const why = error ? `${error.error_type}: ${[error.error_message, error.hint].filter(Boolean).join(". ")}` : "";
  const li = row(repo.key, `${word(`s_${repo.status}`)} · ${seen}`, why);
  if (error) li.classList.add("failing");
  return li;
}

async function showWrong() {
  const lists = await Promise.all(["failing", "auth", "gone", "held"].map((status) =>
    ask(`/api/git_urls?limit=20&status=${status}`)));
  const wrong = lists.flatMap((list) => list.items);
  at("wrong").replaceChildren(...wrong.map(repoRow));
  if (!wrong.length) at("wrong").append(make("li", word("nothing_wrong"), "good"));
}

async function showRepos(add) {
  const run = ++searchRun;
  const query = new URLSearchParams({ limit: "50", search: at("search").value });
  if (add && cursor) query.set("cursor", cursor);
  const page = await ask(`/api/git_urls?${query}`);
  if (run !== searchRun) return; // a later search was faster
  const rows = page.items.map(repoRow);
  if (add) at("repos").append(...rows); else at("repos").replaceChildren(...rows);
  if (!at("repos").children.length) at("repos").append(make("li", word("none_found"), "quiet"));
  cursor = page.next_cursor;
  at("more").hidden = cursor === null;
}

function tell(text, className) {
  if (at("state").textContent !== text) at("state").textContent = text;
  at("state").className = className;
}

function failed(error) {
  const denied = error instanceof Denied;
  at("sign-in").hidden = !denied;
  lostSince ??= new Date().toISOString();
  tell(denied ? word("denied") : word("lost", clock(lostSince)), "bad");
}

async function look() {
  try {
    showOverview(await ask("/api/overview"));
    if (looks % WRONG_EVERY === 0 || lostSince) await showWrong();
    if (looks === 0 || lostSince) await showRepos(false);
    looks += 1;
    lostSince = null;
    at("sign-in").hidden = true;
    tell(word("live"), "good");
  } catch (error) {
    failed(error);
  }
  setTimeout(look, LOOK_MS);
}

for (const place of document.querySelectorAll("[data-word]")) place.textContent = word(place.dataset.word);
let typing = 0;
at("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => showRepos(false).catch(failed), 200);
});
at("more").addEventListener("click", () => showRepos(true).catch(failed));
at("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", at("token").value.trim());
  at("token").value = "";
});
look();
