// Is everything fresh, and if not, what is wrong?
import { narrow } from "../lib/chart.js";
import { h, memo } from "../lib/dom.js";
import { now, percent, rate, sinceIso, size, span } from "../lib/format.js";
import { bar, empty, figures, repoLink, section, when } from "../lib/parts.js";
import { href } from "../lib/route.js";
import { lang, many, number, phaseWord, word, wordOr } from "../lib/words.js";
import { courseCharts } from "./overview_course.js";
import { order } from "./repos_order.js";

const COURSE_MS = 60_000;  // a point is noted every five minutes
const GROW_MS = 5000;  // lags grow without being told
const PRIORITIES = ["critical", "high", "normal", "low"];

export default function overview(ctx) {
  let told = null, course = null;
  const running = new Map();  // by repo: how far it is, since the overview was told

  const look = () => ctx.load("/api/overview/course?hours=24", (answer) => { course = answer; });
  const take = (next) => {
    told = next;
    running.clear();
    ctx.draw();
  };
  ctx.on("overview", take);
  ctx.on("progress", ({ repo, data }) => {
    running.set(repo, data);
    ctx.draw();
  });
  if (ctx.overview) take(ctx.overview);
  else ctx.load("/api/overview", (answer) => told ?? take(answer));  // what was told live meanwhile is newer
  look();
  ctx.every(COURSE_MS, look);
  ctx.every(GROW_MS, ctx.draw);

  function render() {
    if (!told) return [empty(word("loading"))];
    const since = Math.max(0, (now() - Date.parse(told.now)) / 1000);  // that it is true of, however it came
    return [
      verdict(told),
      h("div", { key: "columns", class: "columns" },
        h("div", { key: "left" }, freshness(told, since), hosts(told)),
        h("div", { key: "right" }, standing(told), wrong(told, ctx.session.may("operator")), syncing(told, running))),
      section("course", word("course_title"), memo("div", { key: "charts" }, [course, narrow()],
        () => (course ? courseCharts(course) : empty(word("loading"))))),
    ];
  }

  return { title: word("overview_title"), render };
}

/** One line that says it all. */
function verdict(o) {
  const share = o.fresh_share;
  const [kind, text] = !o.total_repos ? ["quiet", word("verdict_empty")]
    : share === null ? ["quiet", word("verdict_none_live")]
      : share === 1 ? ["good", word("verdict_fresh", number(o.fresh_repos))]
        : [share < 0.9 ? "bad" : "warn", word("verdict_stale", percent(share), number(live(o) - o.fresh_repos))];
  const held = o.by_status.held ?? 0;
  const lines = [
    o.accepting_clones || !o.total_repos ? null : h("li", { key: "disk" }, word("no_clones")),
    held > 0 && h("li", { key: "held" }, h("a", { href: href("repos", "", { status: "held" }) }, many("held", held))),
    untold(o).map((w) => h("li", { key: w }, w)),
  ];
  return h("div", { key: "verdict", class: `box verdict ${kind}` },
    h("p", { class: "verdict-line" }, text), h("ul", { class: "plain small" }, lines));
}

/** The server's warnings, but for those that the page says elsewhere in its own words. */
function untold(o) {
  const alerts = o.alerts_standing?.items.map((one) => one.text) ?? [];
  const begins = ["a guard holds back", ...o.hosts.map((one) => `${one.host}: `)];
  return o.warnings.filter((w) => !alerts.some((text) => w.endsWith(text)) && !begins.some((text) => w.startsWith(text)));
}

const live = (o) => Object.values(o.freshness).reduce((sum, one) => sum + one.live, 0);

function freshness(o, since) {
  return section("fresh", word("fresh_title"),
    figures([
      [word("total"), number(o.total_repos)],
      [word("fresh"), percent(o.fresh_share), shareKind(o.fresh_share)],
      [word("worst"), o.never_verified > 0 ? word("worst_never") : lag(o.worst_lag_s, since)],
      [word("polls"), rate(o.polls_per_second)],
      [word("changes"), rate(o.changes_per_minute)],
      [word("bytes"), `${size(o.received_bytes_per_second)}/s`],
      [word("queued"), number(o.queued_syncs)],
      [word("disk"), size(o.disk_free_bytes), o.accepting_clones ? "" : "bad"],
    ]),
    h("p", { class: "quiet small" }, word("fresh_means", span(o.fresh_bound_s)),
      o.never_verified > 0 && ` ${word("never_verified", number(o.never_verified))}`),
    h("table", null, h("caption", { class: "unseen" }, word("by_priority")),
      h("thead", null, h("tr", null, ["priority", "fresh_of_live", "worst"].map((name) =>
        h("th", { scope: "col", class: name === "priority" ? "" : "number" }, word(name))))),
      h("tbody", null, PRIORITIES.filter((p) => o.freshness[p].live > 0).map((p) => priorityRow(p, o.freshness[p], since)))),
    h("ul", { class: "chips" }, Object.entries(o.by_status).filter(([, count]) => count > 0).map(([name, count]) =>
      h("li", { key: name }, h("a", { href: href("repos", "", { status: name }) }, `${wordOr(`s_${name}`, name)} ${number(count)}`)))));
}

const shareKind = (share) => (share === null ? "" : share === 1 ? "good" : share < 0.9 ? "bad" : "");
const lag = (seconds, since) => (seconds === null ? "–" : span(seconds + since));

function priorityRow(priority, one, since) {
  return h("tr", { key: priority },
    h("th", { scope: "row" }, h("a", { href: href("repos", "", { priority, sort: "verified" }) }, word(`p_${priority}`))),
    h("td", { class: "number" }, `${percent(one.live ? one.fresh / one.live : null)} (${number(one.fresh)} / ${number(one.live)})`),
    h("td", { class: "number" }, lag(one.worst_lag_s, since)));
}

function syncing(o, running) {
  const title = o.queued_syncs ? word("running_queued", number(o.queued_syncs)) : word("running_title");
  return section("running", title, o.running.length
    ? h("ul", { class: "plain" }, o.running.map((sync) => runningRow(sync, running.get(sync.key))))
    : empty(word("nothing_running")));
}

function runningRow(sync, later) {
  const { phase, percent: done, received_bytes: received } = later ?? sync;
  const age = span(sinceIso(sync.started_at));
  return h("li", { key: sync.key },
    h("div", { class: "between" }, repoLink(sync.key),
      h("span", { class: "quiet small numbers" }, `${phaseWord(phase)}${done === null ? "" : ` ${Math.round(done)} %`}`)),
    bar(done, sync.key),
    h("small", { class: "quiet numbers" }, [word("received", size(received)), age, sync.worker].filter(Boolean).join(" · ")));
}

function wrong(o, mayOrder) {
  const kinds = o.failures ?? [];
  return section("wrong", word("wrong_title"), kinds.length === 0
    ? h("p", { class: "good" }, word("nothing_wrong"))
    : h("ul", { class: "plain" }, kinds.map((one) => h("li", { key: one.kind },
      h("div", { class: "between" },
        h("a", { class: "bad", href: href("repos", "", { failure: one.kind, sort: "-failures" }) }, wordOr(`k_${one.kind}`, one.kind)),
        h("span", { class: "numbers" }, many("repos", one.repos))),
      h("p", { class: "quiet small" }, wordOr(`k_${one.kind}_hint`, "")),
      one.sample.map((key) => h("div", { key, class: "small" }, repoLink(key))),
      mayOrder && h("p", { class: "buttons small" }, ["retry", "reset"].map((action) =>
        h("button", {
          key: action, type: "button", "aria-label": `${word(`rs_${action}`)}: ${wordOr(`k_${one.kind}`, one.kind)}`,
          on: { click: () => order({ action, filter: { failure: one.kind } }) },
        }, word(`rs_${action}`))))))));
}

function standing(o) {
  const alerts = o.alerts_standing;
  if (!alerts || alerts.total === 0) return null;
  return section("alerts", word("alerts_title", number(alerts.total)),
    h("ul", { class: "plain" }, alerts.items.map((one) => h("li", { key: one.id },
      h("div", { class: "between" }, h("span", { class: one.level === "warning" ? "warn" : "bad" }, lang === "zh" ? one.text_zh : one.text), h("span", { class: "quiet small" }, when(one.since)))))),
    h("p", null, h("a", { href: href("alerts") }, word("all_alerts"))));
}

function hosts(o) {
  if (!o.hosts.length) return null;
  return section("hosts", word("hosts_title"),
    h("ul", { class: "plain" }, o.hosts.map((one) => h("li", { key: one.host },
      h("div", { class: "between" },
        h("a", { href: href("repos", "", { host: one.host }) }, h("bdi", null, one.host)),
        h("span", { class: "numbers" }, many("repos", one.repos))),
      h("p", { class: "quiet small" }, [wordOr(`host_${one.state}`, one.state), one.reason].filter(Boolean).join(": "),
        one.until && [" · ", when(one.until)])))));
}
