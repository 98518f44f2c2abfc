"""What the page does whatever it shows: its tree, its clock, who looks, what comes late or not at all."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.browsing import Browsing
from tests.browser.house import House

SCRIPTS = Path(__file__).parent / "scripts"
OVERVIEW = "**/api/overview"

# In the page's own modules: `part("dialog")` is the very one that the page uses.
_PART = """const part = (name) =>
  import(document.querySelector("script[type=module]").src.replace("app.js", `lib/${name}.js`));"""

_ANSWERS = """
const real = fetch;
globalThis.asked = [];
globalThis.fetch = (url, options) => {
  asked.push(url);
  const how = Object.entries(answers).find(([begin]) => url.startsWith(begin))?.[1];
  if (!how) return real(url, options);
  const later = { status: 503, headers: { "Retry-After": "3600" } };
  if (how === "busy") return Promise.resolve(Response.json({ detail: "Come later" }, later));
  const { signal } = options;
  return new Promise((_, fail) => signal.addEventListener("abort", () => fail(signal.reason)));
};"""


def within(page: Page, script: str):
    return page.evaluate(f"async () => {{ {_PART} {script} }}")


def _answering(page: Page, answers: dict[str, str]) -> None:
    """The clock is the test's, and so is how the server answers at these addresses."""
    page.clock.install()
    page.add_init_script(f"globalThis.answers = {json.dumps(answers)}; {_ANSWERS}")


def _hide(page: Page, *, hidden: bool) -> None:
    """As if another tab was looked at."""
    told = json.dumps({"value": hidden, "configurable": True})
    page.evaluate(
        f"() => {{ Object.defineProperty(document, 'hidden', {told});"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )


def is_live(page: Page) -> None:
    expect(page.locator("#state")).to_have_text("Live")


def test_a_tree_becomes_the_one_that_is_wanted_and_disturbs_nobody(browse: Browsing):
    page = browse.open("/docs")
    told = page.evaluate((SCRIPTS / "trees.js").read_text("utf-8"))
    assert told.pop("patches") >= 1000
    assert told == dict.fromkeys(told, True)
    assert len(told) >= 8


def test_numbers_and_times_are_told_right_whatever_the_browsers_clock_says(browse: Browsing):
    page = browse.open(before=lambda page: page.clock.install(time=datetime.now(UTC) - timedelta(days=3)))
    is_live(page)
    off = within(page, "return Math.abs((await part('format')).now() - Date.now()) / 86_400_000")
    assert round(off) == 3
    alerts = page.get_by_role("region", name=re.compile("Alerts standing"))
    expect(alerts).to_contain_text(re.compile(r"\d (s|min) ago"))
    numbers = "[0, 999, 999_499, 999_600, 9_960_000]"
    sizes = within(page, f"const {{ size }} = await part('format'); return {numbers}.map(size)")
    assert sizes == ["0 B", "999 B", "999 kB", "1.0 MB", "10 MB"]


def test_a_stream_that_does_not_begin_is_called_lost_and_the_figures_are_asked_for(browse: Browsing):
    page = browse.open(before=lambda page: _answering(page, {"/api/events": "never"}))
    expect(page.get_by_role("region", name="Freshness now")).to_be_visible()
    expect(page.locator("#state")).to_have_text("Connecting …")
    page.clock.run_for(16_000)
    expect(page.locator("#state")).to_have_text("Connection lost")
    with page.expect_response(OVERVIEW):
        page.clock.run_for(31_000)
    # It is told to wait for an hour, and does so for a minute.
    page.evaluate(
        "() => { answers['/api/events'] = 'busy'; asked.length = 0; dispatchEvent(new Event('online')); }"
    )
    page.clock.run_for(45_000)
    assert page.evaluate("asked.filter((url) => url.startsWith('/api/events')).length") == 1
    page.evaluate("() => { delete answers['/api/events']; }")
    page.clock.run_for(20_000)
    is_live(page)


@pytest.mark.parametrize("role", ["operator", None])
def test_who_is_refused_does_not_ask_again_and_again(browse: Browsing, house: House, role):
    """Wrong tokens are counted, by address: others there would be locked out."""
    place = f"/#/repo/{house.world.key('lang/python')}"
    missing = {"tasks", "holders", "pushes", "refs", "history"}

    def before(page: Page) -> None:
        page.clock.install()
        page.on("requestfinished", lambda r: missing.discard(r.url.partition("/-/")[2].partition("?")[0]))

    page = browse.open(place, role=role, before=before)
    is_live(page)
    while missing:  # what is still asked for would be refused with the rest
        page.wait_for_timeout(20)
    refused: list[str] = []

    def refuse(route: Route) -> None:
        refused.append(route.request.url)
        route.fulfill(status=401, json={"detail": "revoked", "type": "/problems/token-needed"})

    browse.allow("status of 401")
    page.route("**/api/**", refuse)
    within(page, "(await part('live')).live.tell('gap', {})")
    page.clock.run_for(3000)
    expect(page.get_by_label("Token")).to_be_visible()
    expect(page.locator("#state")).to_have_text("A token is needed")
    assert len(refused) < 10
    refused.clear()
    within(page, "const { session } = await part('session'); await Promise.all([1, 2, 3].map(session.learn))")
    assert len(refused) == (0 if role else 1)
    refused.clear()
    _hide(page, hidden=True)
    page.clock.run_for(300_000)
    expect(page.locator("#state")).to_have_text("A token is needed")
    _hide(page, hidden=False)
    assert refused == []
    page.unroute("**/api/**")
    page.get_by_label("Token").fill(house.tokens["reader"])
    page.keyboard.press("Enter")
    expect(page.locator("#who")).to_contain_text("the reader")
    is_live(page)


def test_what_is_typed_as_a_token_disturbs_nothing_until_it_is_proven(browse: Browsing, house: House):
    page = browse.open(role="reader")
    is_live(page)
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("#who")).to_contain_text("Not signed in")  # and what the public is shown is asked for
    page.get_by_role("button", name="Sign in").click()
    is_live(page)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    field, problem = page.get_by_label("Token"), page.locator("#token-problem")
    field.fill("“em_curly”")
    page.keyboard.press("Enter")
    expect(problem).to_contain_text("curly quotes")
    assert not any("/api/" in url for url in sent)
    words = {"detail": "Too many wrong tokens from this address", "hint": "Try again in 6 s"}
    page.route("**/api/me", lambda route: route.fulfill(status=429, json=words))
    browse.allow("status of 4")
    field.fill(house.tokens["operator"])
    page.keyboard.press("Enter")
    expect(problem).to_have_text("Too many wrong tokens from this address. Try again in 6 s")
    page.unroute("**/api/me")
    field.fill("em_wrong")
    page.keyboard.press("Enter")
    expect(problem).to_contain_text("not known here")
    assert page.evaluate("sessionStorage.getItem('token')") is None
    is_live(page)


def test_the_page_opens_with_what_it_needs_and_fetches_the_rest_when_idle(browse: Browsing):
    asked: list[str] = []
    page = browse.open(before=lambda page: page.on("request", lambda request: asked.append(request.url)))
    is_live(page)
    while not any(url.endswith("/views/alerts.js") for url in asked):  # the last one
        page.wait_for_event("request")
    first = asked[: next(i for i, url in enumerate(asked) if url.endswith("/views/repos.js"))]
    assert len(first) <= 30, first
    assert sum(url.endswith(".css") for url in asked) == 1


def test_what_cannot_be_loaded_or_shown_is_told(browse: Browsing, house: House):
    gone = re.compile(r"/views/fleet\.js$")
    page = browse.open(before=lambda page: page.route(gone, lambda route: route.fulfill(status=404)))
    browse.allow("status of 404")
    page.goto("/#/fleet")
    expect(page.get_by_role("alert")).to_contain_text("could not be loaded")
    expect(page.get_by_role("button", name="Reload")).to_be_visible()
    page.unroute(gone)
    for place in ("/#/repo/../me", "/#/repo/%2e%2E/me"):
        page.goto(place)
        expect(page.get_by_role("heading", level=1)).to_have_text("There is nothing at this address")
    page.get_by_role("link", name="To the overview").click()
    expect(page.get_by_role("region", name="Freshness now")).to_be_visible()
    is_live(page)
    known = house.get("/api/overview")
    tell = "(await part('live')).live.tell('overview', told)"
    told = {name: known[name] for name in ("version", "now", "total_repos")}
    # The real overview comes every two seconds and takes its place: what is drawn is looked at in the page.
    drawn = f"""const told = {json.dumps(told)}, alert = () => document.querySelector("#view [role=alert]");
      for (let n = 0; n < 100 && !alert(); n += 1) {{ {tell}; await new Promise(requestAnimationFrame); }}
      return alert()?.textContent;"""
    assert "cannot be shown" in within(page, drawn)
    within(page, f"const told = {json.dumps(told)}; {tell}; await new Promise(requestAnimationFrame)")
    assert (
        len([fault for fault in browse.faults if "TypeError" in fault]) == 1
    )  # told once, however often drawn
    browse.allow(r"(?s)TypeError: .*views/overview\.js")
    expect(page.locator("#upgraded")).to_be_hidden()
    page.goto("/#/repos")
    within(page, f"const told = {json.dumps(told | {'version': 'next'})}; {tell}")
    expect(page.locator("#upgraded")).to_contain_text("another version")
    page.route(re.compile(r"/app\.js$"), lambda route: route.fulfill(status=404))
    page.reload()
    expect(page.locator("#view")).to_contain_text("reload the page")


def test_one_question_is_asked_at_a_time_and_not_after_leaving(browse: Browsing):
    page = browse.open("/#/repos")
    expect(page.get_by_role("table")).to_be_visible()
    page.goto("/#/alerts")
    expect(page.get_by_role("heading", level=1)).to_have_text("Alerts")  # whoever goes on leaves a dialog
    ask = "const { confirm } = await part('dialog'); window.told = [];"
    one = "confirm({ title: 'Sure?', action: 'Yes' }).then((told) => window.told.push(told));"
    within(page, f"{ask} document.querySelector('#nav a').focus(); {one} {one}")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_have_count(1)
    assert page.evaluate("window.told") == [None]
    page.go_back()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_have_text("Repositories")
    assert page.evaluate("window.told") == [None, None]
    gone = "const gone = document.createElement('button'); document.body.append(gone); gone.focus();"
    within(page, f"{ask} {gone} {one} gone.remove()")
    expect(dialog).to_have_count(1)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.locator("#view")).to_be_focused()


def test_a_failure_of_what_is_not_asked_any_more_goes_away(browse: Browsing):
    course = "/api/overview/course"
    page = browse.open(before=lambda page: _answering(page, {course: "busy"}))
    told = page.get_by_role("alert").get_by_text("Come later")
    expect(told).to_be_visible()
    page.evaluate(f"() => {{ answers['{course}'] = 'never'; }}")
    page.clock.run_for(40_000)
    expect(told).to_be_visible()
    page.clock.run_for(25_000)
    expect(told).to_have_count(0)
