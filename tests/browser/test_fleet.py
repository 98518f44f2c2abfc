"""The fleet, on a real one and in an all-in-one: what is there, what would move, and orders by a click."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.browser.axe import assert_accessible


def part(page: Page, title: str | re.Pattern[str]) -> Locator:
    return page.get_by_role("region", name=title, exact=isinstance(title, str)).first


def row(page: Page, worker: str) -> Locator:
    return (
        part(page, "Workers").get_by_role("row").filter(has=page.get_by_role("link", name=worker, exact=True))
    )


def offered(page: Page, orders: list[str]) -> None:
    """To a worker, by who looks: what the role may not order is not there."""
    expect(part(page, "How it is")).to_be_visible()
    expect(part(page, "Orders").get_by_role("button")).to_have_text(orders)


def test_an_all_in_one_says_that_it_is_alone(browse, house):
    page = browse.open("/#/fleet")
    told = house.get("/api/fleet")
    (worker,) = told["workers"]
    expect(page.locator("#view")).to_contain_text("its one worker is part of this very process")
    placement = part(page, "Placement")
    for name, figure in (
        ("Repositories", "repos"),
        ("Placed", "owned"),
        ("Held", "held"),
        ("No room", "no_room"),
    ):
        box = placement.locator("dl > div").filter(has=page.get_by_text(name, exact=True))
        expect(box.locator("dd")).to_have_text(str(told["totals"][figure]))
    expect(row(page, worker["name"])).to_contain_text(f"{worker['held']} / {worker['wanted']}")
    moves = house.get("/api/fleet/moves")
    expect(part(page, f"Under way ({moves['total']})")).to_contain_text(house.world.key("large/archive"))
    assert_accessible(page)

    row(page, worker["name"]).get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Worker {worker['name']}")
    losing = house.get(f"/api/fleet/workers/{worker['name']}")["losing"]
    expect(part(page, "If it were lost")).to_contain_text(f"{losing['copies']} copies would be wanted")
    expect(part(page, "If it were lost")).to_contain_text("There is no other worker that could take them")
    expect(part(page, "History")).to_contain_text("joined the fleet")
    orders = part(page, "Orders")
    expect(orders.get_by_role("button", name="Retire")).to_have_count(0)
    expect(orders).to_contain_text("cannot be retired")
    orders.get_by_role("button", name="Drain").click()
    expect(page.get_by_role("dialog")).to_contain_text("There is no other worker that can take anything")
    page.get_by_role("button", name="Cancel").click()
    expect(orders.get_by_role("button", name="Drain")).to_be_focused()
    assert house.get("/api/fleet")["workers"][0]["duty"] == "active"
    assert_accessible(page)


def test_it_is_read_in_chinese_on_a_phone_and_by_who_may_only_look(browse, house):
    (worker,) = house.get("/api/fleet")["workers"]
    page = browse.open(f"/#/fleet/{worker['name']}", role="reader", locale="zh-CN", dark=True, width=360)
    expect(part(page, "如果失去它")).to_contain_text("个副本将改由其他工作节点持有")
    expect(part(page, "操作").get_by_role("button")).to_have_count(0)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    assert_accessible(page)
    page.goto("/#/fleet/nobody-of-this-name")
    expect(page.locator("#view")).to_contain_text("没有这个名字的工作节点")


def test_a_worker_is_drained_and_resumed_and_everybody_sees_it(browse_fleet, fleet):
    onlooker = browse_fleet.open("/#/fleet/ant", role="reader")
    offered(onlooker, [])
    onlooker.goto("/#/fleet")
    expect(row(onlooker, "bee")).to_contain_text("alive")
    expect(part(onlooker, "Rates by host")).to_be_visible()
    page = browse_fleet.open("/#/fleet/ant")
    offered(page, ["Drain …", "Quarantine …", "Retire …"])
    page.goto("/#/fleet/bee")
    expect(page.get_by_role("heading", level=1)).to_have_text("Worker bee")  # not ant's orders any more
    losing = fleet.worker("bee")["losing"]
    part(page, "Orders").get_by_role("button", name="Drain").click()
    expect(page.get_by_role("dialog")).to_contain_text(
        f"{losing['copies']} copies will move to 1 other worker."
    )
    page.get_by_role("button", name="Drain it").click()
    expect(page.locator("#notices")).to_contain_text("bee is being emptied")
    expect(part(page, "How it is")).to_contain_text("draining")
    fleet.until(lambda: fleet.worker("bee")["held"] == 0)  # what moves is cloned anew: that takes its time
    expect(row(onlooker, "bee")).to_contain_text("0 / 0")
    expect(row(onlooker, "ant")).to_contain_text(f"{len(fleet.repos)} / {len(fleet.repos)}")
    expect(part(page, "If it were lost")).to_contain_text("Nothing would move")
    expect(part(page, "History").get_by_role("listitem").first).to_contain_text("began to be emptied")

    part(page, "Orders").get_by_role("button", name="Quarantine").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Quarantine it").click()
    expect(dialog.get_by_label("Reason")).to_be_focused()  # it is asked for
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)

    part(page, "Orders").get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume it").click()
    expect(row(onlooker, "bee")).to_contain_text("alive")
    fleet.settle()


def test_the_brake_is_overruled_on_a_persons_word_only(browse_fleet, fleet):
    """It is hard to have in a test; so the page is told of one. What the server then says is real."""

    told = fleet.get("/api/fleet")
    told["totals"] |= {"braked": True, "suspect": 7}
    page = browse_fleet.open("/#/fleet/ant", role="operator")
    offered(page, ["Drain …"])
    page.route("**/api/fleet", lambda route: route.fulfill(json=told))
    page.goto("/#/fleet")
    expect(page.get_by_role("alert")).to_contain_text("too many workers fell silent at once (7)")
    browse_fleet.allow("409")
    page.get_by_role("button", name="They are really gone").click()
    expect(page.get_by_role("dialog")).to_contain_text("Silent workers (7) are declared down")
    page.get_by_role("button", name="Declare them down").click()
    expect(page.locator("#notices")).to_contain_text("the brake is not on. There is nothing to overrule")
