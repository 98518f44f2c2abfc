// The strategy as a form. What was typed stays until it is saved or discarded, whatever is told meanwhile.
import { Problem, ask } from "../lib/api.js";
import { complain, confirm, notice } from "../lib/dialog.js";
import { h } from "../lib/dom.js";
import { span } from "../lib/format.js";
import { empty, facts, section } from "../lib/parts.js";
import { number, word } from "../lib/words.js";

const AT = "/api/pull/strategy";
const MINUTE_S = 60;
const GROUPS = {
  general: ["strategy_name", "enabled", "max_concurrent_pulls", "enable_adaptive"],
  peak: ["enable_peak_avoidance", "peak_hours_start", "peak_hours_end", "peak_max_concurrent", "off_peak_max_concurrent"],
  night: ["night_hours_start", "night_hours_end", "night_max_concurrent"],
};
const FIELDS = Object.values(GROUPS).flat();
const SWITCHES = new Set(["enabled", "enable_adaptive", "enable_peak_avoidance"]);

const isText = (name) => name === "strategy_name";
const isNight = (name) => name.startsWith("night_");
/** As the form has it: texts, and true or false. */
const formed = (name, value) => (SWITCHES.has(name) ? value : value === null ? "" : String(value));
const shown = (name, value) => (SWITCHES.has(name) ? word(value ? "pu_yes" : "pu_no") : formed(name, value) || word("pu_nothing_set"));

/** What is sent; what is no number goes as it was typed, so that the server says what is wrong with it. */
function sent(name, value) {
  if (SWITCHES.has(name) || isText(name)) return value;
  const text = value.trim();
  if (text === "" && isNight(name)) return null;
  return /^-?\d{1,9}$/.test(text) ? Number(text) : text;
}

export function strategyOf(ctx, projects) {
  let told = null, saving = false, saved = 0;
  let draft = {};  // by field: {value, base}: what was typed, and what stood there then
  let problems = { fields: {}, whole: "" };

  function look() {
    const before = saved;
    ctx.load(AT, (answer) => { if (before === saved) told = answer; });  // else it may tell what was before that
  }
  const value = (name) => (name in draft ? draft[name].value : formed(name, told[name]));
  const changed = () => FIELDS.filter((name) => name in draft && draft[name].value !== formed(name, told[name]));

  function type(name, next) {
    draft[name] = { value: next, base: draft[name]?.base ?? formed(name, told[name]) };
    delete problems.fields[name];
    ctx.draw();
  }

  function discard() {
    if (saving) return;
    draft = {};
    problems = { fields: {}, whole: "" };
    ctx.draw();
  }

  async function save(event) {
    event.preventDefault();
    const names = changed();
    if (saving || !names.length) return;
    if (names.includes("enabled") && !draft.enabled.value && !await mayStop(projects())) return;
    saving = true;
    ctx.draw();
    const going = Object.fromEntries(names.map((name) => [name, draft[name].value]));
    try {
      told = await ask(AT, { method: "PUT", body: Object.fromEntries(names.map((name) => [name, sent(name, going[name])])) });
      saved += 1;
      drop(going);
      notice(word("pu_saved", number(told.current_limit)));
    } catch (error) {
      if (error instanceof Problem && [409, 422].includes(error.status)) problems = placed(error);
      else complain(error);
    }
    saving = false;
    ctx.draw();
  }

  /** These are saved; what was typed since stays. */
  function drop(going) {
    for (const [name, value] of Object.entries(going)) {
      if (draft[name].value === value) delete draft[name];
      else draft[name].base = formed(name, told[name]);
    }
    problems = { fields: {}, whole: "" };
  }

  function field(name) {
    const problem = problems.fields[name], id = `strategy-${name}`;
    const other = name in draft && draft[name].base !== formed(name, told[name]) && draft[name].value !== formed(name, told[name]);
    const described = [`${id}-help`, problem && `${id}-problem`].filter(Boolean).join(" ");
    const common = { id, name, "aria-describedby": described, "aria-invalid": problem ? "true" : null };
    const input = SWITCHES.has(name)
      ? h("input", { ...common, type: "checkbox", checked: value(name), on: { change: (event) => type(name, event.target.checked) } })
      : h("input", {
        ...common, type: "text", value: value(name), autocomplete: "off", maxlength: isText(name) ? 200 : 12,
        inputmode: isText(name) ? "text" : "numeric", on: { input: (event) => type(name, event.target.value) },
      });
    const label = h("label", { for: id }, word(`pu_f_${name}`));
    return h("div", { key: name, class: SWITCHES.has(name) ? "pu-field pu-switch" : "pu-field" },
      SWITCHES.has(name) ? h("div", { class: "pu-line" }, input, label) : [label, input],
      h("p", { key: "help", id: `${id}-help`, class: "quiet small" }, word(`pu_h_${name}`)),
      other && h("p", { key: "other", class: "warn small" }, word("pu_meanwhile", shown(name, told[name]))),
      problem && h("p", { key: "problem", id: `${id}-problem`, class: "bad small", role: "alert" }, problem));
  }

  function form() {
    const names = changed();
    const idle = saving || !names.length ? "true" : null;  // disabled, they would lose the focus
    return h("form", { key: "form", novalidate: true, on: { submit: save } },
      Object.entries(GROUPS).map(([group, fields]) => h("fieldset", { key: group },
        h("legend", null, word(`pu_g_${group}`)), h("div", { class: "pu-fields" }, fields.map(field)))),
      h("p", { key: "zone", class: "quiet small" }, word("pu_zone", told.time_zone)),
      problems.whole && h("p", { key: "whole", class: "box bad", role: "alert" }, problems.whole),
      names.length > 0 && h("p", { key: "unsaved", class: "warn" }, word("pu_unsaved", names.map((name) => word(`pu_f_${name}`)).join(", "))),
      h("p", { key: "buttons", class: "buttons" },
        h("button", { class: "primary", "aria-disabled": idle }, word("pu_save")),
        h("button", { type: "button", "aria-disabled": idle, on: { click: discard } }, word("pu_discard"))));
  }

  const readOnly = () => [
    facts(FIELDS.map((name) => [word(`pu_f_${name}`), shown(name, told[name])])),
    h("p", { class: "quiet small" }, word("pu_zone", told.time_zone)),
    h("p", { class: "quiet small" }, word("pu_strategy_who")),
  ];

  return {
    get told() { return told; },
    look,
    render: () => section("strategy", word("pu_strategy"),
      !told ? empty(word("loading")) : [told.expected_delay && expected(told.expected_delay), ctx.session.may("operator") ? form() : readOnly()]),
  };
}

/** How late each class may be, by the strategy that is saved. */
function expected(delays) {
  const text = ({ usual_minutes: usual, worst_minutes: worst }) => {
    const times = [usual, worst].map((minutes) => span(minutes * MINUTE_S));
    return usual === worst ? word("pu_delay_up_to", times[0]) : word("pu_delay_peak", ...times);
  };
  return h("div", { key: "expected" },
    h("h3", null, word("pu_expected")),
    facts(Object.entries(delays).map(([priority, delay]) => [word(`p_${priority}`), text(delay)])));
}

const mayStop = (projects) => confirm({
  title: word("pu_stop_title"), lines: [word("pu_stop_line", number(projects))], action: word("pu_stop_do"), danger: true,
});

/** The server's words, each at its field. */
function placed(error) {
  const fields = {}, rest = [];
  for (const { where, what } of error.errors) {
    const name = FIELDS.find((one) => where === `body.${one}` || where.startsWith(`body.${one}.`));
    if (name) fields[name] ??= what;
    else rest.push(`${where}: ${what}`);
  }
  const said = [error.message, error.hint].filter(Boolean).join(". ");
  const named = FIELDS.find((name) => error.message.includes(name));
  if (!error.errors.length && named) fields[named] = said;
  else if (!error.errors.length || rest.length) rest.unshift(said);
  return { fields, whole: rest.length ? rest.join(" ") : word("pu_not_saved") };
}
