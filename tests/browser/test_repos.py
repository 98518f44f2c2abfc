"""The list of repositories, on real data: found, sorted, paged, picked, and acted on by the dozen."""

from __future__ import annotations

import re
from contextlib import suppress
from urllib.parse import quote

from playwright.sync_api import Error, Locator, Page, Route, expect

from tests.browser.browsing import Browsing
from tests.browser.house import House
from tests.browser.world import BOOKS, LANGUAGES


def rows(page: Page) -> Locator:
    return page.get_by_role("region", name="Repositories").locator("tbody tr")


def names(page: Page) -> list[str]:
    return rows(page).locator("a").all_inner_texts()


def row(page: Page, key: str) -> Locator:
    return rows(page).filter(has=page.get_by_role("link", name=key, exact=True))


def counted(page: Page, text: str) -> None:
    expect(page.get_by_role("status").filter(has_text=text)).to_have_text(text)


def confirm(page: Page, title: str, action: str) -> None:
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text(title)
    dialog.get_by_role("button", name=action, exact=True).click()
    expect(dialog).to_have_count(0)


def test_what_is_looked_for_is_in_the_address_and_back_leads_back(browse: Browsing, house: House):
    page = browse.open("/#/repos")
    total = house.get("/api/git_urls?total=true&limit=1")["total"]  # the overview may be some seconds old
    counted(page, f"{total} repositories")
    search = page.get_by_role("searchbox", name="Search")
    search.press_sequentially("lang/")
    expect(page).to_have_url(re.compile(r"#/repos\?search=lang%2F$"))  # "lang" alone finds as many
    counted(page, f"{len(LANGUAGES)} repositories")
    expect(rows(page)).to_have_count(len(LANGUAGES))
    expect(search).to_be_focused()
    priority = page.get_by_role("search").get_by_label("Priority")
    priority.select_option("low")
    low = sum(item["priority"] == "low" for item in house.get("/api/git_urls?search=lang/")["items"])
    counted(page, f"{low} repositories")
    assert all("low" in text for text in rows(page).all_inner_texts())
    page.go_back()
    counted(page, f"{len(LANGUAGES)} repositories")
    expect(priority).to_have_value("")
    expect(search).to_have_value("lang/")
    page.get_by_role("link", name=house.world.key("lang/ruby")).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(house.world.key("lang/ruby"))
    page.go_back()
    counted(page, f"{len(LANGUAGES)} repositories")
    search.fill("no such repository")
    page.get_by_role("button", name="Show all").click()
    counted(page, f"{total} repositories")
    expect(search).to_have_value("")
    expect(search).to_be_focused()
    priority.select_option("low")
    page.get_by_role("button", name="Clear filters").click()
    counted(page, f"{total} repositories")
    expect(priority).to_have_value("")
    expect(search).to_be_focused()  # where the button was is nothing any more


def test_a_link_may_name_cause_state_host_and_worker(browse: Browsing, house: House):
    page = browse.open("/#/repos?failure=AUTH_FAILED", role=None)
    expect(rows(page)).to_have_count(1)
    expect(row(page, house.world.key("locked/vault"))).to_contain_text("Access refused")
    expect(page.get_by_label("Cause of failure")).to_have_value("AUTH_FAILED")
    page.goto("/#/repos?status=held")
    expect(row(page, house.world.key("team/emptied"))).to_contain_text("held back")
    expect(rows(page)).to_have_count(1)
    page.goto(f"/#/repos?host={quote(house.world.docs.host)}")
    expect(rows(page)).to_have_count(len(BOOKS))
    worker = house.get("/api/fleet")["workers"][0]["name"]
    page.goto(f"/#/repos?search=books/g&worker={quote(worker)}")
    expect(rows(page)).to_have_count(1)
    expect(page.get_by_label("Worker")).to_have_value(worker)
    expect(page.get_by_role("button", name="Sync now")).to_have_count(0)  # the public may do nothing
    expect(page.get_by_role("checkbox")).to_have_count(0)
    expect(page.get_by_text("Add a repository")).to_have_count(0)


def test_a_late_answer_to_an_earlier_question_changes_nothing(browse: Browsing):
    held: list[Route] = []
    page = browse.open("/#/repos?search=zzz")
    counted(page, "0 repositories")
    page.route(re.compile("/api/git_urls.*search=lang"), lambda route: held.append(route))
    search = page.get_by_role("searchbox", name="Search")
    with page.expect_request(re.compile("search=lang")):
        search.fill("lang")
    search.fill("books")
    counted(page, f"{len(BOOKS)} repositories")
    for route in held:
        with suppress(Error):  # the page has given it up already
            route.continue_()
    for _ in range(3):  # the same question again: what was on its way is there when that is answered
        page.evaluate("() => fetch('/api/git_urls?search=lan&total=true').then((answer) => answer.text())")
    expect(rows(page)).to_have_count(len(BOOKS))
    assert all("books" in name for name in names(page))


def test_pages_and_orders_are_the_servers(browse: Browsing, house: House):
    all_keys = [item["key"] for item in house.get("/api/git_urls?limit=1000")["items"]]
    page = browse.open("/#/repos?limit=20")
    expect(rows(page)).to_have_count(20)
    assert names(page) == all_keys[:20]
    pages = page.get_by_role("navigation", name="Pages of the list")
    expect(pages).to_contain_text("Page 1 of 2")
    pages.get_by_role("button", name="Next").click()
    expect(row(page, all_keys[20])).to_be_visible()
    assert names(page) == all_keys[20:40]
    expect(pages).to_contain_text("Page 2 of 2")
    expect(pages.get_by_role("button", name="Next")).to_be_disabled()
    page.reload()  # the place is in the address
    expect(row(page, all_keys[20])).to_be_visible()
    page.go_back()
    expect(row(page, all_keys[0])).to_be_visible()
    page.go_forward()
    expect(row(page, all_keys[20])).to_be_visible()
    pages.get_by_role("button", name="Back").click()
    expect(row(page, all_keys[0])).to_be_visible()
    page.get_by_role("button", name="Size").click()
    expect(page.get_by_role("columnheader", name="Size")).to_have_attribute("aria-sort", "ascending")
    page.get_by_role("button", name="Size").click()
    expect(page.get_by_role("columnheader", name="Size")).to_have_attribute("aria-sort", "descending")
    largest = house.get("/api/git_urls?sort=-size&limit=20")["items"]
    expect(rows(page).locator("a").first).to_have_text(largest[0]["key"])
    assert names(page) == [item["key"] for item in largest]
    assert "sort=-size" in page.url


def test_a_selection_outlasts_pages_and_what_happens_live(browse: Browsing, house: House):
    page = browse.open("/#/repos?limit=20&sort=-changed", role="operator")
    expect(rows(page)).to_have_count(20)
    first = names(page)[3]
    row(page, first).get_by_role("checkbox").check()
    page.get_by_role("button", name="Next").click()
    expect(row(page, first)).to_have_count(0)
    box = rows(page).get_by_role("checkbox").nth(2)
    second = names(page)[2]
    box.check()
    expect(page.get_by_label("Selected: 2")).to_be_checked()
    page.get_by_role("button", name="Back").click()
    box = row(page, first).get_by_role("checkbox")
    expect(box).to_be_checked()
    box.focus()
    house.world.repos["lang/kotlin"].commit()
    house.sync(["lang/kotlin"])
    expect(rows(page).first).to_contain_text(house.world.key("lang/kotlin"))  # by itself, at the top
    expect(box).to_be_checked()
    expect(box).to_be_focused()
    page.get_by_role("button", name="Sync now").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(first)
    expect(dialog).to_contain_text(second)
    confirm(page, "Sync 2 repositories now?", "Sync 2")
    expect(page.locator("#notices")).to_contain_text(re.compile("Sync now: Done · \\d of 2 done"))
    expect(page.get_by_label("Selected: 0")).to_be_visible()
    box.check()
    page.get_by_role("button", name="Clear the selection").click()
    expect(page.get_by_label("Selected: 0")).to_be_focused()
    box.check()
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("#who")).to_contain_text("Not signed in")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Token").fill(house.tokens["operator"])
    page.keyboard.press("Enter")
    expect(page.get_by_label("Selected: 0")).to_be_visible()  # it was somebody else's, for all the page knows


def test_an_order_for_all_that_match_names_their_number_and_is_followed(browse: Browsing, house: House):
    page = browse.open("/#/repos?search=books/", role="operator")
    counted(page, f"{len(BOOKS)} repositories")
    page.get_by_label(f"All that match: {len(BOOKS)}").check()
    page.get_by_role("button", name="Pause", exact=True).click()
    browse.shot(page, "bulk-question")
    confirm(page, f"Pause {len(BOOKS)} repositories?", f"Pause {len(BOOKS)}")
    try:
        expect(rows(page).filter(has_text="inactive")).to_have_count(len(BOOKS))
        page.get_by_role("button", name="Sync now").click()
        confirm(page, f"Sync {len(BOOKS)} repositories now?", f"Sync {len(BOOKS)}")
        expect(page.locator("#notices")).to_contain_text(f"{len(BOOKS)} failed")
        page.get_by_text("Orders that ended").click()
        expect(page.get_by_text("is paused: resume it first").first).to_be_visible()
    finally:
        page.get_by_role("button", name="Resume").click()
        confirm(page, f"Resume {len(BOOKS)} repositories?", f"Resume {len(BOOKS)}")
        expect(rows(page).filter(has_text="inactive")).to_have_count(0)


def test_an_order_that_would_be_about_others_by_now_is_refused(browse: Browsing, house: House):
    browse.allow(r"status of 409")
    page = browse.open("/#/repos?search=lang/&status=active", role="operator")
    counted(page, f"{len(LANGUAGES)} repositories")
    page.get_by_label("All that match").check()
    page.get_by_role("button", name="Set priority …").click()
    expect(page.get_by_role("dialog")).to_contain_text("State: active")
    lua = {"git_url": house.world.repos["lang/lua"].url}
    house.client.post("/api/git_urls", json=lua | {"additional_info": {"enabled": False}})
    try:
        page.get_by_role("dialog").get_by_label("Priority").select_option("critical")
        confirm(page, f"Set the priority of {len(LANGUAGES)} repositories?", f"Set for {len(LANGUAGES)}")
        refusal = page.locator("#notices .bad")
        expect(refusal).to_contain_text(str(len(LANGUAGES) - 1))
        refusal.get_by_role("button", name="Dismiss").click()
        expect(refusal).to_have_count(0)
        kept = [item["priority"] for item in house.get("/api/git_urls?search=lang/")["items"]]
        assert "low" in kept
    finally:
        house.client.post("/api/git_urls", json=lua | {"additional_info": {"enabled": True}})
        house.until(lambda: house.repo("lang/lua")["status"] == "active")


def test_a_running_order_shows_how_far_it_is_and_can_be_stopped(browse: Browsing):
    """The server's part is told by others; here an order that takes long is put before the page."""
    order = {
        "id": 7, "action": "sync", "filter": None, "priority": None, "matched": 1000, "done": 300,
        "unchanged": 0, "failed": 100, "status": "running", "ahead": 0, "created_at": "2026-11-15T20:30:00Z",
        "updated_at": "2026-11-15T20:31:00Z", "actor": "somebody", "first_error": "<b>one</b> is paused",
    }  # fmt: skip
    page = browse.open("/docs", role="operator")
    page.route("**/api/bulk", lambda route: route.fulfill(json={"items": [order]}))

    def stop(route: Route) -> None:
        order["status"] = "stopped"  # not before: the page asks every second, and there would be no button
        route.fulfill(json=order)

    page.route("**/api/bulk/7/stop", stop)
    page.goto("/#/repos")
    orders = page.get_by_role("region", name="Orders under way")
    expect(orders.get_by_role("progressbar")).to_have_attribute("value", "40")
    expect(orders).to_contain_text("400 of 1,000 done")
    expect(orders).to_contain_text("<b>one</b> is paused")
    with page.expect_request("**/api/bulk/7/stop"):
        orders.get_by_role("button", name="Stop").click()
    expect(orders).to_have_count(0)
    expect(page.locator("#notices")).to_contain_text("Stopped · 300 of 1,000 done · 100 failed")


def test_a_submitter_adds_a_repository_and_nothing_more(browse: Browsing, house: House):
    added = house.world.docs.create("added/by-hand", commits=1)
    page = browse.open("/#/repos?search=by-hand", role="submitter")
    counted(page, "0 repositories")
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    page.get_by_text("Add a repository").click()
    expect(page.get_by_label("Private")).to_have_count(0)
    page.get_by_label("Its address").fill(added.url)
    page.get_by_label("Priority").first.select_option("high")
    page.get_by_role("button", name="Add", exact=True).click()
    try:
        expect(page.get_by_role("status").filter(has_text="Added:")).to_be_visible()
        expect(rows(page)).to_contain_text(["high"])
        expect(rows(page)).to_contain_text(["active"])  # cloned meanwhile, and told live
        browse.allow(r"status of 422")
        page.get_by_label("Its address").fill("not an address")
        page.get_by_role("button", name="Add", exact=True).click()
        expect(page.locator("#notices .bad")).to_be_visible()
        expect(page.get_by_label("Its address")).to_have_value("not an address")
    finally:
        house.client.delete(f"/api/git_urls/{quote(added.url, safe='')}")
