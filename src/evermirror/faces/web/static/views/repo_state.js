// How a repository is, and why; what may be done about it.
import { notice } from "../lib/dialog.js";
import { h } from "../lib/dom.js";
import { clock, size, span } from "../lib/format.js";
import { bar, facts, section, status, when } from "../lib/parts.js";
import { many, number, phaseWord, word, wordOr } from "../lib/words.js";

export default function state(ctx, repo, running, acts) {
  return section("state", word("rp_state"),
    h("p", { key: "now", class: "now" }, status(repo.status), " ", h("span", null, why(repo))),
    running && syncing(running),
    acts.outcome(),
    repo.held && held(repo, acts),
    weather(ctx, repo),
    repo.last_error && !tellsOfGuard(repo) && trouble(repo.last_error, repo.consecutive_failures),
    acts.buttons(repo),
    clone(repo),
    about(repo));
}

function why(repo) {
  if (!repo.enabled) return word("rp_why_disabled");
  return [word(`rp_why_${repo.status}`), " ", repo.verified_at ? [word("rp_verified"), " ", when(repo.verified_at), word("rp_stop")] : word("rp_never_verified"),
    repo.verified === false && repo.verified_at ? [" ", word("rp_unverified")] : null];
}

export const phase = (text) => (text ? phaseWord(text) : word("rp_begins"));

/** A sync under way, as progress or the overview tells of it. */
function syncing(running) {
  const received = running.received_bytes ? word("rp_received", size(running.received_bytes)) : "";
  return h("div", { key: "syncing", class: "syncing" },
    h("div", { class: "between" }, h("span", null, word("rp_syncing"), " ", h("bdi", null, phase(running.phase))), h("span", { class: "quiet numbers" }, received)),
    bar(running.percent, word("rp_syncing")));
}

const tellsOfGuard = (repo) => repo.held !== null && repo.last_error?.error_type === "CONFLICT";

function held({ held: guard, last_error: error }, acts) {
  return h("div", { key: "held", class: "box warn" },
    h("p", null, h("b", null, word(`rp_held_${guard.reason}`)), " ", many("rp_seen", guard.sightings), " ", when(guard.since), word("rp_stop")),
    h("p", null, word("rp_held_what")),
    error?.error_type === "CONFLICT" && [words(error.error_message), error.hint && h("p", { class: "hint" }, error.hint)],
    acts.confirmHeld());
}

/** What its host does to all of its repositories. */
function weather(ctx, repo) {
  const host = ctx.overview?.hosts.find((one) => one.host === repo.host);
  return host && h("p", { key: "weather", class: "box warn" },
    word("rp_weather"), " ", h("bdi", { class: "key" }, host.host), ": ", h("bdi", null, host.reason || host.state),
    host.until && ` · ${word("rp_until", clock(host.until))}`);
}

function trouble(error, failures) {
  return h("div", { key: "trouble", class: "box bad" },
    h("p", null, h("b", null, wordOr(`k_${error.error_type}`, error.error_type)), " ", when(error.at),
      failures > 1 && [" · ", word("rp_in_a_row", number(failures))]),
    words(error.error_message),
    error.hint && h("p", { class: "hint" }, error.hint));
}

/** As git, or who else it came from, said it. */
export const words = (text) => h("pre", { class: "words", tabindex: 0, role: "group", "aria-label": word("rp_words") }, text);

// Cloning

function clone(repo) {
  const command = `git clone ${quoted(location.origin + repo.clone_path)}`;
  return h("div", { key: "clone", class: "clone" },
    h("code", { id: "clone-command", class: "key" }, command),
    h("button", { type: "button", on: { click: () => copy(command) } }, word("rp_copy")),
    repo.private && h("p", { class: "hint" }, word("rp_clone_private")));
}

/** A name may hold what a shell would take for an order. */
const quoted = (text) => (/^[\w.~:/@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // a browser gives the clipboard to pages with https only
    getSelection().selectAllChildren(document.getElementById("clone-command"));
    if (!document.execCommand("copy")) {
      notice(word("rp_copy_self"), "bad");
      return;
    }
  }
  notice(word("rp_copied"));
}

// Facts

function about(repo) {
  const alone = (text) => (text ? h("bdi", { class: "key" }, text) : null);
  return h("details", { key: "facts", class: "more" }, h("summary", null, word("rp_facts")), facts([
    [word("rp_url"), address(repo.git_url)],
    [word("rp_source_url"), repo.source_url && repo.source_url !== repo.git_url ? address(repo.source_url) : null],
    [word("rp_fallbacks"), repo.fallbacks.length ? h("ul", null, repo.fallbacks.map((url) => h("li", null, address(url)))) : null],
    [word("rp_alias"), alone(repo.alias)],
    [word("rp_priority"), wordOr(`p_${repo.priority}`, repo.priority)],
    [word("rp_interval"), repo.interval_s ? span(repo.interval_s) : null],
    [word("rp_mode"), wordOr(`rp_mode_${repo.mode}`, repo.mode)],
    [word("rp_private"), repo.private ? word("rp_private_yes") : null],
    [word("rp_from"), repo.source === "api" ? word("rp_from_api") : alone(repo.source)],
    [word("rp_pins"), repo.pins.length ? alone(repo.pins.join(", ")) : null],
    [word("rp_size"), repo.size_bytes ? size(repo.size_bytes) : null],
    [word("rp_refs"), number(repo.refs_count)],
    [word("rp_head"), alone(repo.head_commit)],
    [word("rp_changed"), repo.changed_at ? when(repo.changed_at) : null],
    [word("rp_created"), when(repo.created_at)],
  ]));
}

/** A link only where a browser goes there and nowhere else. */
export function address(url) {
  const text = h("bdi", { class: "key" }, url);
  const leads = URL.canParse(url) && ["http:", "https:"].includes(new URL(url).protocol);
  return leads ? h("a", { href: url, rel: "noreferrer noopener" }, text) : text;
}
