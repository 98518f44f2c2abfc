// Pull mirroring: how far projects are, by which strategy, what went wrong, and every pull.
import { lookAgain } from "../lib/again.js";
import { query } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { now } from "../lib/format.js";
import { empty } from "../lib/parts.js";
import { word } from "../lib/words.js";
import { errorsOf } from "./pull_errors.js";
import { coursePart, progressPart } from "./pull_progress.js";
import { projectsOf } from "./pull_projects.js";
import { strategyOf } from "./pull_strategy.js";
import { tasksOf } from "./pull_tasks.js";

const EVENTS = [
  "refs.changed", "sync.failed", "sync.recovered", "sync.excused", "task.ended", "push.ended",
  "repo.added", "repo.changed", "repo.removed", "catalog.changed", "overview",
];
const APART_MS = 3000;
const SLOW_MS = 60_000;  // for what is noted every few minutes
const DAY_MS = 86_400_000;
const STEP_MS = 300_000;

export default function pull(ctx) {
  const state = { progress: null, classes: null, course: null };
  const strategy = strategyOf(ctx, () => state.progress?.total_projects ?? 0);
  const projects = projectsOf(ctx);
  const errors = errorsOf(ctx);
  const tasks = tasksOf(ctx);

  const lookAtPast = () => {
    ctx.load("/api/pull/progress/course", (told) => { state.course = told.items; });
    errors.lookAtProjects();
  };
  const look = () => {
    const from = new Date(Math.floor((now() - DAY_MS) / STEP_MS) * STEP_MS).toISOString();
    ctx.load("/api/pull/progress/overview", (told) => { state.progress = told; });
    ctx.load(`/api/pull/progress/by-priority${query({ from })}`, (told) => { state.classes = told; });
    strategy.look();
    projects.look();
    errors.look();
    tasks.look();
  };
  look();
  lookAtPast();
  lookAgain(ctx, EVENTS, look, { apart: APART_MS });
  ctx.every(SLOW_MS, lookAtPast);

  function render() {
    if (!state.progress) return ctx.failed ? [] : [empty(word("loading"))];
    return [
      progressPart(state.progress, state.classes, strategy.told),
      h("div", { key: "columns", class: "columns" },
        h("div", { key: "left" }, coursePart(state.course), errors.render()),
        h("div", { key: "right" }, strategy.render())),
      projects.render(),
      tasks.render(),
    ];
  }

  return { title: word("nav_pull"), render, turned: (next) => projects.turned(next) };
}
