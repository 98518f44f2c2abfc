"""The overview, on real data: what it says is what the server says, and it moves by itself."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from urllib.parse import quote

from playwright.sync_api import Locator, Page, expect

from tests.browser.axe import assert_accessible
from tests.browser.wire import wire_to


def section(page: Page, title: str | re.Pattern[str]) -> Locator:
    return page.get_by_role("region", name=title)


def figure(page: Page, name: str) -> Locator:
    return (
        section(page, "Freshness now")
        .locator("dl > div")
        .filter(has=page.get_by_text(name, exact=True))
        .locator("dd")
    )


def test_it_says_whether_all_is_fresh_what_is_wrong_and_how_the_day_went(browse, house):
    page = browse.open("/")
    told = house.get("/api/overview")
    fresh = section(page, "Freshness now")
    expect(fresh.get_by_text(str(told["total_repos"]), exact=True)).to_be_visible()
    expect(page.locator(".verdict")).to_contain_text("repositories are not verified within their time")
    expect(page.locator(".verdict")).to_contain_text("A guard holds back what upstream did to 1 repository")
    for priority, one in told["freshness"].items():
        expect(fresh.get_by_role("row", name=priority)).to_contain_text(f"({one['fresh']} / {one['live']})")
    assert told["never_verified"] > 0
    expect(figure(page, "Longest unverified")).to_have_text("never")
    wrong = section(page, "What is wrong?")
    for one in told["failures"]:
        expect(wrong).to_contain_text("1 repository" if one["repos"] == 1 else f"{one['repos']} repositories")
        for key in one["sample"]:
            expect(wrong.get_by_role("link", name=key)).to_be_visible()
    expect(section(page, re.compile("Alerts standing"))).to_contain_text("hook declined")
    expect(section(page, "Upstream hosts in trouble")).to_contain_text("asked to wait")
    browse.shot(page, "overview")

    day = section(page, "The last 24 hours")
    expect(day.get_by_role("img", name="Fresh, by priority")).to_be_visible()
    assert day.locator("svg path.line").count() >= 8  # four classes, share and lag
    day.get_by_text("As a table").first.click()
    rows = day.get_by_role("table").first.get_by_role("row")
    points = house.get("/api/overview/course?hours=24")["items"]
    assert abs(rows.count() - 1 - len(points)) <= 1  # a point may have come between
    assert len(points) > 50
    assert_accessible(page)


def test_a_transfer_moves_without_a_reload_and_without_moving_the_reader(browse, house):
    page = browse.open("/", width=500)
    running = section(page, re.compile("Syncing now"))
    bar = running.get_by_role("progressbar")
    expect(bar).to_be_visible()
    before = float(bar.get_attribute("value") or 0)
    of_it = browse.open(f"/#/repo/{quote(house.world.key('large/archive'))}")
    state = of_it.get_by_role("region", name="How it is", exact=True)
    expect(state).to_contain_text("It waits for its first clone.")
    expect(of_it.get_by_role("region", name="Branches and tags")).to_contain_text("There is no clone yet.")
    expect(state.get_by_role("progressbar")).to_have_attribute("value", re.compile(r"\d+"))
    there = int(state.get_by_role("progressbar").get_attribute("value") or "0")
    page.evaluate("window.kept = document.querySelector('progress')")
    summary = page.get_by_text("As a table").first
    summary.click()
    summary.focus()
    page.evaluate("scrollTo(0, 300)")
    page.evaluate(
        """() => {
          const make = document.createElementNS;
          window.drawn = 0;
          document.createElementNS = function (...what) { window.drawn += 1; return make.apply(this, what); };
        }"""
    )
    house.world.let_on(4_000_000)
    expect(bar).not_to_have_attribute("value", f"{before:g}")
    expect(state.get_by_role("progressbar")).not_to_have_attribute("value", str(there))
    assert int(state.get_by_role("progressbar").get_attribute("value") or "0") > there
    assert page.evaluate("window.kept === document.querySelector('progress')")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    assert page.evaluate("scrollY") == 300
    assert page.evaluate("window.drawn") == 0  # the charts are of the same course: they are not made again
    expect(page.get_by_role("table").nth(1)).to_be_visible()  # what was opened stays open


def test_what_was_told_long_ago_is_shown_as_old_as_it_is(browse, house):
    """Told once, of two hours ago; then the stream is lost. In whole hours: the test may take its time."""
    told = house.get("/api/overview")
    then = datetime.fromisoformat(told["now"]) - timedelta(hours=2)
    told |= {"now": then.isoformat(), "worst_lag_s": 3600, "never_verified": 0, "fresh_share": None}
    stream = f"event: overview\ndata: {json.dumps(told)}\n\n"
    page = browse.open("/docs")
    page.route("**/api/overview", lambda route: route.fulfill(json=told))
    page.route("**/api/events?**", lambda route: route.fulfill(body=stream, content_type="text/event-stream"))
    page.goto("/")
    expect(figure(page, "Longest unverified")).to_have_text("3 h")
    expect(figure(page, "Fresh")).not_to_have_class("bad")  # nobody knows
    page.get_by_role("link", name="Fleet").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Fleet")
    page.go_back()
    expect(figure(page, "Longest unverified")).to_have_text("3 h")


def test_a_lost_connection_is_told_and_mends_by_itself(browse, house):
    with wire_to(house.node.port) as wire:
        page = browse.open(url=wire.url)
        state, fresh = page.get_by_role("status").first, section(page, "Freshness now")
        expect(state).to_have_text("Live")
        expect(fresh).to_be_visible()
        figures = page.locator("#view").inner_text()
        browse.allow(
            r"net::ERR_(CONNECTION_|EMPTY_RESPONSE|INCOMPLETE_CHUNKED|SOCKET_NOT_CONNECTED|CONTENT_LENGTH)"
        )
        wire.cut()
        expect(state).to_have_text("Connection lost")
        expect(page.locator("#stale")).to_contain_text("what you see is old")
        expect(fresh).to_be_visible()  # what was known stays, and is called old
        assert page.locator("#view").inner_text().split()[:3] == figures.split()[:3]
        browse.shot(page, "overview-lost")
        wire.mend()
        expect(state).to_have_text("Live")
        expect(page.locator("#stale")).to_be_hidden()


def test_what_fails_for_one_reason_is_retried_with_one_order_that_names_the_count(browse, house):
    page = browse.open("/", role="operator")
    (count,) = [one["repos"] for one in house.get("/api/overview")["failures"] if one["kind"] == "NOT_FOUND"]
    page.get_by_role("button", name="Retry failing: Not found").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"{count} repositories")
    assert_accessible(page)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert all(order["action"] != "retry" for order in house.get("/api/bulk")["items"])
    page.get_by_role("button", name="Retry failing: Not found").click()
    dialog.get_by_role("button", name=str(count)).click()
    house.until(
        lambda: [o["status"] for o in house.get("/api/bulk")["items"] if o["action"] == "retry"] == ["done"]
    )


def test_the_public_sees_no_names_and_who_signs_in_what_the_role_may(browse, house):
    page = browse.open("/", role=None)
    wrong, key = section(page, "What is wrong?"), house.world.key("gone/one")
    expect(wrong.get_by_role("link").first).to_be_visible()
    assert key not in page.content()
    expect(page.get_by_text("Alerts standing")).to_have_count(0)
    page.get_by_role("button", name="Sign in").click()
    field = page.get_by_label("Token")
    field.fill("em_wrong")
    browse.allow("status of 401")
    page.keyboard.press("Enter")
    expect(page.get_by_text("not known here")).to_be_visible()
    assert_accessible(page)
    field.fill(house.tokens["reader"])
    page.keyboard.press("Enter")
    expect(page.locator("#who")).to_contain_text("the reader (reader)")
    expect(page.get_by_label("Token")).to_have_count(0)
    expect(wrong.get_by_role("link", name=key)).to_be_visible()
    expect(wrong.get_by_role("button")).to_have_count(0)  # orders are not offered to who may not give them
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("#who")).to_contain_text("Not signed in")
    assert page.evaluate("sessionStorage.length") == 0
    expect(page.get_by_text("Alerts standing")).to_have_count(0)
    assert key not in page.content()
