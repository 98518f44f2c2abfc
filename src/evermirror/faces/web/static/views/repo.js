// One repository: how it is and why, when it is looked at next, what happened to it, where it is.
import { keyPath } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { word } from "../lib/words.js";
import actions from "./repo_act.js";
import kept from "./repo_kept.js";
import { pushes, tasks } from "./repo_past.js";
import plan from "./repo_plan.js";
import refs from "./repo_refs.js";
import { calm, keepFresh, source, unanswered } from "./repo_source.js";
import state from "./repo_state.js";
import { holders, hooks, targets, upkeep } from "./repo_where.js";

const REFRESH_MS = 1000;  // at most so often while things happen
const LOOK_MS = 30_000;
const ALWAYS = ["repo", "tasks", "holders"];
const TOUCHED = {  // by the type of an event, what else may be another
  "refs.changed": ["pushes", "refs", "kept"], "push.ended": ["targets"], "task.ended": ["refs", "targets"],
  "hooks.reliable": ["hooks"], "hooks.silent": ["hooks"],
};
const ENDS = new Set(["refs.changed", "task.ended", "sync.failed", "sync.recovered", "repo.held", "repo.gone"]);

export default function repo(ctx) {
  const base = `/api/repos/${keyPath(ctx.path)}`;
  const told = Object.fromEntries(["repo", "tasks", "holders", "pushes", "targets", "hooks"].map((name) => [name, source(ctx)]));
  const key = () => told.repo.data?.key ?? ctx.path;
  let progress = null;  // of the sync that runs, as last told
  let over = 0;  // when one ended: what is told later of a time before that is old

  const shownRefs = refs(ctx, base), shownKept = kept(ctx, base, () => acts);
  const asks = {
    repo: () => told.repo.load(base),
    tasks: () => told.tasks.load(`${base}/-/tasks?limit=20`),
    holders: () => told.holders.load(`${base}/-/holders`),
    pushes: () => told.pushes.load(`${base}/-/pushes?days=30`),
    targets: () => ctx.session.may("reader") && told.targets.load(`${base}/-/targets`),
    hooks: () => told.repo.data?.hooks && told.hooks.load(`${base}/-/hooks`),
    refs: () => told.repo.data?.digest && shownRefs.load(),
    kept: () => told.repo.data?.digest && shownKept.load(),
  };

  /** The repository first: there may be none, or nothing of it yet. */
  async function look(names = Object.keys(asks)) {
    await asks.repo();
    if (told.repo.error || told.repo.loading) return;
    for (const name of names) if (name !== "repo") asks[name]();
  }

  const wanted = new Set();
  const soon = calm(ctx, REFRESH_MS, () => {
    look([...wanted]);
    wanted.clear();
  });
  function touch(...names) {
    for (const name of [...ALWAYS, ...names]) wanted.add(name);
    soon();
  }

  const acts = actions(ctx, { repo: () => told.repo.data, key, touch, look });
  ctx.on("progress", ({ repo: about, at, data }) => {
    if (about !== key() || Date.parse(at) <= over) return;
    progress = data;
    ctx.draw();
  });
  ctx.on("overview", (figures) => {
    if (!figures.running.some((sync) => sync.key === key())) progress = null;
  });
  ctx.on("event", ({ type, at, repo: about }) => {
    if (about !== key()) return;
    if (ENDS.has(type)) [progress, over] = [null, Date.parse(at)];
    touch(...(TOUCHED[type] ?? []));
  });
  keepFresh(ctx, LOOK_MS, () => look());
  look();

  const running = () => progress ?? ctx.overview?.running.find((sync) => sync.key === key() && Date.parse(sync.started_at) > over) ?? null;
  return {
    get title() { return key(); },
    render() {
      const { data, error } = told.repo;
      if (error?.status === 404) return [unanswered(error), acts.removed()];
      if (data === null) return error ? unanswered(error) : h("p", { key: "loading", class: "quiet", role: "status" }, word("loading"));
      return [
        error && unanswered(error),
        state(ctx, data, running(), acts),
        h("div", { key: "columns", class: "columns" },
          h("div", { key: "left" }, plan(data), tasks(told.tasks, running()), targets(told.targets), shownKept.render(data)),
          h("div", { key: "right" }, pushes(told.pushes), holders(told.holders, data), hooks(data, told.hooks), upkeep(data), shownRefs.render(data))),
      ];
    },
  };
}
