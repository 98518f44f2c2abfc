// Where what an alert is about can be looked at.
import { h } from "../lib/dom.js";
import { repoLink } from "../lib/parts.js";
import { href } from "../lib/route.js";
import { wordOr } from "../lib/words.js";

const REPOS = new Set(["repo-held", "repo-renamed", "split", "project-failing", "project-paused"]);
const TARGETS = new Set(["target-paused", "target-conflict", "target-refused", "visibility", "target-credential"]);
const WORKERS = new Set(["worker-down", "quarantine", "disk-full", "stray", "accused", "slow-clones", "unreachable"]);
const FLEET = new Set(["brake", "no-room", "accusation", "stalled"]);
const HOSTS = new Set(["source-weather", "hooks-silent"]);

/** Its name, as a link where there is a place for it. */
export function aboutLink({ kind, about }) {
  if (REPOS.has(kind)) return repoLink(about);
  if (TARGETS.has(kind)) return targetLink(about);
  if (WORKERS.has(kind)) return link(href("fleet", about), about);
  if (FLEET.has(kind)) return link(href("fleet"), wordOr(`al_a_${about}`, about));
  if (HOSTS.has(kind)) return link(href("repos", "", { host: about }), about);
  if (kind === "error-kind") return link(href("repos", "", { failure: about }), wordOr(`k_${about}`, about));
  return h("bdi", { class: "key" }, kind === "failure-rate" ? wordOr(`al_a_${about}`, about) : about);
}

/** `project → address`: the project is what can be looked at. */
function targetLink(about) {
  const [project, ...rest] = about.split(" → ");
  return h("span", null, repoLink(project), rest.length > 0 && [" → ", h("bdi", { class: "key" }, rest.join(" → "))]);
}

const link = (to, text) => h("a", { class: "key", href: to }, h("bdi", null, text));
