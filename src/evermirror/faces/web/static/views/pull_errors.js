// What went wrong, by kind and by project.
import { query } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { percent } from "../lib/format.js";
import { empty, repoLink, section, table } from "../lib/parts.js";
import { href } from "../lib/route.js";
import { number, word, wordOr } from "../lib/words.js";

const SPANS = { "24": { days: 1, name: "pu_24h" }, "168": { days: 7, name: "pu_7d" } };

export function errorsOf(ctx) {
  let hours = "24", told = null, failing = null;

  const look = () => {
    const mine = hours;
    ctx.load(`/api/pull/errors/statistics${query({ hours })}`, (answer) => { if (mine === hours) told = answer; });
  };
  const lookAtProjects = () => {
    const mine = hours;
    ctx.load(`/api/pull/report${query({ days: SPANS[hours].days })}`, (answer) => { if (mine === hours) failing = answer.failing; });
  };
  const choose = (next) => {
    hours = next;
    look();
    lookAtProjects();
  };

  function render() {
    return section("errors", told ? `${word("pu_errors")} (${number(told.total_errors)})` : word("pu_errors"),
      h("label", { class: "pu-tools" }, h("span", null, word("pu_errors_span")),
        h("select", { value: hours, on: { change: (event) => choose(event.target.value) } },
          Object.entries(SPANS).map(([value, { name }]) => h("option", { key: value, value }, word(name))))),
      !told ? empty(word("loading")) : told.total_errors === 0 ? h("p", { class: "good" }, word("pu_errors_none")) : kinds(told),
      failing && failing.length > 0 && [h("h3", { key: "top-title" }, word("pu_top")), projects(failing)]);
  }

  return { look, lookAtProjects, render };
}

const kindLink = (kind) => h("a", { href: href("repos", "", { failure: kind }) }, wordOr(`k_${kind}`, kind));

function kinds({ by_type: byType, total_errors: total }) {
  return table({
    key: "kinds",
    caption: word("pu_errors"),
    rows: Object.entries(byType),
    keyOf: ([kind]) => kind,
    columns: [
      { id: "kind", label: word("pu_kind"), cell: ([kind]) => kindLink(kind) },
      { id: "count", label: word("pu_count"), number: true, cell: ([, one]) => number(one.count) },
      { id: "affected", label: word("pu_affected"), number: true, cell: ([, one]) => number(one.affected_projects) },
      { id: "share", label: word("pu_share"), number: true, cell: ([, one]) => percent(one.count / total) },
    ],
  });
}

function projects(failing) {
  return table({
    key: "top",
    caption: word("pu_top"),
    rows: failing,
    keyOf: (one) => one.project_key,
    columns: [
      { id: "project", label: word("pu_project"), cell: (one) => [
        repoLink(one.project_key), one.paused && h("span", { class: "status st-held" }, word("pu_p_paused")),
      ] },
      { id: "errors", label: word("pu_count"), number: true, cell: (one) => number(one.errors) },
      { id: "kind", label: word("pu_mostly"), cell: (one) => wordOr(`k_${one.error_type}`, one.error_type) },
    ],
  });
}
