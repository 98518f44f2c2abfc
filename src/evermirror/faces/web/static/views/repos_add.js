// A small form for one more repository.
import { h } from "../lib/dom.js";
import { repoLink } from "../lib/parts.js";
import { word } from "../lib/words.js";
import { PRIORITIES } from "./repos_order.js";

/** `added()` is called when the list is another. */
export default function addForm(ctx, added) {
  let outcome = null, busy = false;

  async function submit(event) {
    event.preventDefault();
    if (busy) return;
    const form = event.target, told = new FormData(form);
    const info = {};  // what is not said stays as it is, where the repository is there already
    if (told.get("priority")) info.priority = told.get("priority");
    if (told.get("private")) info.private = true;
    busy = true;
    ctx.draw();
    const answer = await ctx.act("/api/git_urls", { body: { git_url: told.get("url").trim(), additional_info: info } });
    busy = false;
    if (answer) {
      outcome = answer;
      form.reset();
      added();
    }
    ctx.draw();
  }

  return {
    render: () => ctx.session.may("submitter") && h("details", { key: "add", class: "box add" }, h("summary", null, word("rs_add")),
      h("form", { class: "filters", on: { submit } },
        h("label", { class: "field f-url" }, h("span", null, word("rs_url")),
          h("input", { name: "url", type: "text", inputmode: "url", required: true, maxlength: 2048, autocomplete: "off", spellcheck: "false", placeholder: "github.com/owner/name" })),
        h("label", { class: "field" }, h("span", null, word("rs_priority")),
          h("select", { name: "priority" }, h("option", { key: "", value: "" }, word("rs_as_usual")), PRIORITIES.map((name) => h("option", { key: name, value: name }, word(`p_${name}`))))),
        ctx.session.may("operator") && h("label", { class: "check" }, h("input", { name: "private", type: "checkbox", value: "yes" }), " ", word("rs_add_private")),
        h("button", { class: "primary", "aria-disabled": busy ? "true" : null }, word("rs_add_button"))),
      h("p", { role: "status" }, outcome && [word(`rs_${outcome.status}`), " ", repoLink(outcome.git_url)])),
  };
}
