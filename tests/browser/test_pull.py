"""Pull mirroring: how far it is, the strategy's form, projects and what is asked of them, every pull."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.axe import assert_accessible
from tests.browser.world import HOSTILE_ALIAS

STRATEGY = "/api/pull/strategy"
PROJECT = "pulled/project"


def part(page: Page, title: str | re.Pattern[str]) -> Locator:
    return page.get_by_role("region", name=title).first


def project(page: Page) -> Locator:
    return part(page, re.compile(r"^Projects \(")).get_by_role("row").filter(has_text=PROJECT)


@pytest.fixture
def strategy(house):
    """As it was before, also after the test."""
    before = house.get(STRATEGY)
    yield before
    fields = (
        "strategy_name",
        "peak_hours_start",
        "night_hours_start",
        "night_hours_end",
        "night_max_concurrent",
    )
    answer = house.client.put(STRATEGY, json={name: before[name] for name in fields})
    assert answer.status_code == 200, answer.text


def test_progress_errors_and_pulls_are_those_of_the_server(browse, house):
    page = browse.open("/#/pull")
    now = house.get("/api/pull/progress/overview")
    progress = part(page, "Progress")
    for name, figure in (("Projects", "total_projects"), ("Failed", "failed"), ("Pending", "pending")):
        box = progress.locator("dl > div").filter(has=page.get_by_text(name, exact=True))
        expect(box.locator("dd")).to_have_text(str(now[figure]))
    classes = house.get("/api/pull/progress/by-priority")
    for name, one in ((name, one) for name, one in classes.items() if one["total"]):
        expect(progress.get_by_role("row").filter(has=page.get_by_role("link", name=name))).to_contain_text(
            re.compile(rf"{name}\s*{one['total']}")
        )
    expect(part(page, "Strategy")).to_contain_text(re.compile("Expected delay.*normal.*up to 2 h"))
    errors = house.get("/api/pull/errors/statistics")
    shown = part(page, f"Errors ({errors['total_errors']})")
    expect(shown.get_by_role("row").filter(has_text="Access refused").first).to_contain_text("1")
    expect(shown).to_contain_text("Projects with most errors")
    expect(project(page)).to_contain_text("a target fails")
    expect(project(page)).to_contain_text("hook declined")

    pulls = part(page, "Pulls")
    newest = house.get("/api/pull/tasks?limit=25")["items"]
    expect(pulls.locator("details")).to_have_count(len(newest))
    expect(pulls.locator("details").first).to_contain_text(newest[0]["project_key"])
    pulls.get_by_label("Show").select_option("failed")
    expect(pulls.locator("summary").filter(has_text=re.compile("^done"))).to_have_count(0)
    failed = pulls.locator("details").filter(has_text="team/emptied")
    failed.locator("summary").click()
    expect(failed).to_contain_text("What to do")
    expect(failed).to_contain_text("evermirror confirm")
    pulls.get_by_label("Show").select_option("done")
    expect(pulls.locator("summary").first).to_have_text(re.compile("^done"))
    while pulls.get_by_role("button", name="Show older ones").count():
        before = pulls.locator("details").count()
        pulls.get_by_role("button", name="Show older ones").click()
        expect(pulls.locator("details").nth(before)).to_be_visible()
    expect(pulls.locator("details").filter(has_text=HOSTILE_ALIAS).first).to_be_visible()
    pushed = pulls.locator("details").filter(has_text=PROJECT).first
    pushed.locator("summary").click()
    expect(pushed).to_contain_text("refs/heads/secret: hook declined")
    expect(pushed).to_contain_text("2 refs put, 0 deleted, 0 not taken")
    assert_accessible(page)


def test_the_strategy_keeps_what_is_typed_and_says_at_the_field_what_is_wrong(browse, house, strategy):
    page = browse.open("/#/pull", role="operator")
    browse.allow("422")
    form = part(page, "Strategy")
    peak, name = form.get_by_label("Peak begins"), form.get_by_label("Name")
    expect(form.get_by_role("button", name="Save")).to_be_disabled()
    peak.fill("25")
    name.fill("mine")
    expect(form).to_contain_text("Not saved yet: Name, Peak begins (hour).")

    house.client.put(STRATEGY, json={"strategy_name": "theirs", "off_peak_max_concurrent": 9})
    expect(form).to_contain_text("Meanwhile somebody set this to theirs.")
    expect(form.get_by_label("Pulls off peak")).to_have_value("9")
    expect(name).to_have_value("mine")
    expect(name).to_be_focused()
    house.client.put(STRATEGY, json={"off_peak_max_concurrent": strategy["off_peak_max_concurrent"]})

    form.get_by_role("button", name="Save").click()
    expect(peak).to_have_attribute("aria-invalid", "true")
    expect(form.get_by_role("alert").filter(has_text="less than or equal to 23")).to_be_visible()
    assert house.get(STRATEGY)["strategy_name"] == "theirs"
    peak.fill("8")
    form.get_by_label("Night begins").fill("1")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_label("Night begins")).to_have_attribute("aria-invalid", "true")
    expect(form).to_contain_text("Give all three, or none")
    assert_accessible(page)
    form.get_by_label("Night ends").fill("5")
    form.get_by_label("Pulls at night").fill("7")
    form.get_by_role("button", name="Save").click()
    expect(page.locator("#notices")).to_contain_text("The strategy is saved.")
    expect(form).not_to_contain_text("Not saved yet")
    saved = house.get(STRATEGY)
    assert (saved["strategy_name"], saved["peak_hours_start"]) == ("mine", 8)
    assert [saved[f"night_{n}"] for n in ("hours_start", "hours_end", "max_concurrent")] == [1, 5, 7]
    expect(form.get_by_role("button", name="Save")).to_be_focused()

    held: list[Route] = []
    page.route(
        f"**{STRATEGY}",
        lambda route: held.append(route) if route.request.method == "PUT" else route.continue_(),
    )
    peak.fill("9")
    with page.expect_request(lambda request: request.method == "PUT"):
        form.get_by_role("button", name="Save").click()
    name.fill("typed while it is saved")
    held.pop().continue_()
    expect(form).to_contain_text("Not saved yet: Name.")
    expect(form.get_by_role("button", name="Save")).to_be_enabled()
    expect(name).to_have_value("typed while it is saved")
    saved = house.get(STRATEGY)
    assert (saved["strategy_name"], saved["peak_hours_start"]) == ("mine", 9)
    page.unroute(f"**{STRATEGY}")
    form.get_by_role("button", name="Discard").click()
    expect(name).to_have_value("mine")

    form.get_by_label("The schedule runs").uncheck()
    form.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_contain_text("Switch the schedule off?")
    page.get_by_role("button", name="Cancel").click()
    form.get_by_role("button", name="Discard").click()
    expect(form.get_by_label("The schedule runs")).to_be_checked()
    assert house.get(STRATEGY)["enabled"]


def test_projects_are_searched_synced_paused_and_resumed(browse, house):
    page = browse.open("/#/pull", role="operator")
    search = page.get_by_label("Search projects")
    search.fill("nothing-like-it")
    expect(part(page, "Projects (0)")).to_contain_text("No project matches.")
    search.fill("pulled")
    expect(project(page)).to_be_visible()
    expect(search).to_be_focused()
    assert page.url.endswith("#/pull?search=pulled")

    latest = part(page, "Pulls").locator("details").first
    expect(latest).to_be_visible()
    project(page).get_by_role("button", name=f"Sync now: {PROJECT}").click()
    expect(page.locator("#notices")).to_contain_text(f"{PROJECT} is synced now")
    expect(latest).to_contain_text(PROJECT)  # the list moves by itself
    house.until(lambda: house.get("/api/pull/projects/pulled%2Fproject/config")["task_id"] is None)

    project(page).get_by_role("button", name=f"Pause {PROJECT}").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause it").click()
    expect(project(page).get_by_text("paused", exact=True)).to_be_visible()
    expect(project(page).get_by_role("button", name=f"Sync now: {PROJECT}")).to_have_count(0)
    project(page).get_by_role("button", name=f"Resume {PROJECT}").click()
    expect(page.locator("#notices")).to_contain_text(f"{PROJECT} is pulled again")
    expect(project(page).get_by_role("button", name=f"Pause {PROJECT}")).to_be_visible()
    house.until(lambda: house.get("/api/pull/projects/pulled%2Fproject/config")["task_id"] is None)

    page.get_by_role("button", name="Sync a whole priority").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Priority").locator("option")).to_have_text(["high: 1 project"])
    dialog.get_by_role("button", name="Sync them").click()
    expect(page.locator("#notices")).to_contain_text(
        re.compile(r"1 started|1 waited already|, 1 ran already")
    )
    house.until(lambda: house.get("/api/pull/projects/pulled%2Fproject/config")["task_id"] is None)


def test_it_is_read_in_chinese_on_a_phone_and_offers_what_the_role_may_do(browse, house):
    page = browse.open("/#/pull", role="submitter", locale="zh-CN", dark=True, width=360)
    projects = part(page, re.compile("^项目（"))
    expect(projects.get_by_role("button")).to_have_text(["立即同步"])
    expect(part(page, "策略").get_by_role("textbox")).to_have_count(0)
    expect(part(page, "策略")).to_contain_text("修改策略需要运维角色")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    assert_accessible(page)
    public = browse.open("/#/pull", role=None)
    expect(
        part(public, re.compile(r"^Projects \(")).get_by_role("row").filter(has_text=PROJECT)
    ).to_be_visible()
    expect(part(public, re.compile(r"^Projects \(")).get_by_role("button")).to_have_count(0)
    expect(part(public, "Pulls")).to_contain_text("shown to token holders")
    expect(public.locator("#view")).not_to_contain_text("choosy")
