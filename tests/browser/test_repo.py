"""One repository, on real data: how it is and why, what happened, what is to come; and what may be done."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.browsing import Browsing
from tests.browser.house import House
from tests.browser.world import REFS_MANY, REFUSED_BRANCH
from tests.support.gitrepo import run_git


def opened(browse: Browsing, house: House, name: str, **options) -> Page:
    page = browse.open(f"/#/repo/{quote(house.world.key(name))}", **options)
    expect(page.get_by_role("heading", level=1)).to_have_text(house.world.key(name))
    return page


def went(page: Page, house: House, name: str) -> None:
    """To another repository, in the same page."""
    page.goto(f"/#/repo/{quote(house.world.key(name))}")
    expect(page.get_by_role("heading", level=1)).to_have_text(house.world.key(name))


def part(page: Page, title: str) -> Locator:
    return page.get_by_role("region", name=title, exact=True).first


def told(page: Page, text: str | re.Pattern[str]) -> None:
    expect(page.locator("#notices")).to_contain_text(text)


def test_it_says_how_it_is_and_when_it_is_looked_at_next_and_why(
    browse: Browsing, house: House, tmp_path: Path
):
    page = opened(browse, house, "lang/python")
    state = part(page, "How it is")
    expect(state).to_contain_text(re.compile(r"active.*It follows upstream.*Found equal to upstream .* ago"))
    command = state.locator("code").inner_text()
    run_git(tmp_path, *command.split()[1:], "clone")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    state.get_by_role("button", name="Copy").click()
    told(page, "Copied.")
    assert page.evaluate("() => navigator.clipboard.readText()") == command
    plan = part(page, "When it is looked at next")
    expect(plan).to_contain_text(re.compile(r"Next look at upstream: in \d+ min"))
    drawing = plan.get_by_role("img", name="Last look, now, next look")
    for mark in ("last look", "now", "next look"):
        expect(drawing.get_by_text(mark, exact=True).first).to_be_attached()
    steps = house.get(f"/api/repos/{house.world.key('lang/python')}")["plan"]["steps"]
    expect(plan.get_by_role("listitem")).to_have_count(len(steps))
    expect(plan).to_contain_text("No repository is looked at more often than the min gap: 60 min.")
    pushes = part(page, "Pushes")
    expect(pushes.get_by_role("img", name="Pushes a day, last 30 days")).to_be_visible()
    days = house.get(f"/api/repos/{house.world.key('lang/python')}/-/pushes?days=30")["days"]
    pushed = [day for day in days[-2:] if day["pushes"] > 0][-1]  # today, or it was midnight since
    label = f"{date.fromisoformat(pushed['day']):%b} {date.fromisoformat(pushed['day']).day}"
    pushes.get_by_text("As a table").click()
    that_day = pushes.get_by_role("row").filter(has=page.get_by_role("cell", name=label, exact=True))
    expect(that_day).to_contain_text(f"{pushed['pushes']} push")
    page.get_by_text("All about it").click()
    upstream = state.get_by_role("link", name=house.world.repos["lang/python"].url)
    expect(upstream).to_have_attribute("rel", "noreferrer noopener")
    page.get_by_text("Why there?").click()
    expect(part(page, "Who holds it").get_by_role("listitem").first).to_be_visible()
    expect(part(page, "On the disk")).to_contain_text("Packs")


def test_a_sync_is_followed_to_its_end_and_what_it_brought_appears(browse: Browsing, house: House):
    page = opened(browse, house, "lang/perl", role="reader")
    for name in ("Pause", "Priority …", "Remove"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)  # an operator's
    tasks, refs = part(page, "Syncs"), part(page, "Branches and tags")
    before = len(house.get(f"/api/repos/{house.world.key('lang/perl')}/-/tasks")["items"])
    expect(tasks.locator("tbody tr")).to_have_count(before)
    expect(refs.locator("tbody tr")).to_have_count(1)
    house.world.repos["lang/perl"].commit()
    house.world.repos["lang/perl"].branch("topic")
    page.get_by_role("button", name="Sync now").click()
    told(page, "Done: refs moved: 2, new commits: 1.")
    expect(page.get_by_role("progressbar")).to_have_count(0)
    expect(tasks.locator("tbody tr")).to_have_count(before + 1)
    expect(tasks.locator("tbody tr").first).to_contain_text("2 refs moved, 1 commit")
    expect(refs).to_contain_text("refs/heads/topic")
    page.get_by_role("button", name="Sync now").click()
    told(page, "Nothing had changed")
    page.evaluate("() => { const now = Date.now; Date.now = () => now() - 3_600_000; }")  # set back
    house.world.repos["lang/perl"].commit()
    house.sync(["lang/perl"])  # by somebody else: the page hears of it
    expect(tasks.locator("tbody tr").first).to_contain_text("1 ref moved, 1 commit")


def test_a_task_is_followed_until_nobody_can_tell_of_it(browse: Browsing, house: House):
    browse.allow(r"status of (503|404)")
    page = opened(browse, house, "team/emptied", role="reader")
    expect(part(page, "How it is")).to_contain_text("Upstream has lost all its branches.")
    expect(page.get_by_role("button", name="Follow upstream")).to_have_count(0)  # an operator's
    went(page, house, "lang/scala")
    seen, given = False, []

    def answer(route: Route) -> None:
        given.append(404 if seen and given else 503)  # it may be asked twice at once: by time, and by its end
        route.fulfill(status=given[-1], json={})

    page.route("**/api/tasks/*", answer)
    page.get_by_role("button", name="Sync now").click()
    asked = page.get_by_role("status").filter(has_text="What you asked for:")
    expect(asked).to_be_visible()
    seen = True
    expect(asked).to_have_count(0)
    assert (given[0], given[-1]) == (503, 404)


def test_an_operator_pauses_resumes_sets_a_priority_and_resets_a_failure(browse: Browsing, house: House):
    page = opened(browse, house, "lang/julia", role="operator")
    page.get_by_role("button", name="Pause").click()
    told(page, "Paused.")
    state = part(page, "How it is")
    expect(state).to_contain_text("Paused: upstream is not looked at")
    expect(page.get_by_role("button", name="Sync now")).to_have_count(0)
    expect(part(page, "When it is looked at next")).to_contain_text("No time is set.")
    page.get_by_role("button", name="Resume").click()
    expect(state).to_contain_text("It follows upstream.")
    for name in ("high", "normal"):
        page.get_by_role("button", name="Priority …").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Priority").select_option(name)
        dialog.get_by_role("button", name="Set").click()
        told(page, f"Its priority is {name} now.")
    assert house.repo("lang/julia")["priority"] == "normal"

    went(page, house, "locked/vault")
    error = house.repo("locked/vault")["last_error"]
    state = part(page, "How it is")
    expect(state).to_contain_text("Upstream refuses us.")
    expect(state.locator("pre")).to_have_text(error["error_message"])
    expect(state).to_contain_text(error["hint"])
    page.get_by_role("button", name="Reset failures").click()
    told(page, "Its failures are forgotten; it is due at once.")
    house.until(lambda: house.repo("locked/vault")["status"] == "auth")
    expect(state).to_contain_text("Upstream refuses us.")
    page.goto(f"/#/repo/{quote(house.world.key('limited/one'))}")
    expect(state).to_contain_text("Its host gives trouble to all:")


def test_what_a_guard_holds_back_is_for_an_operator_to_confirm(browse: Browsing, house: House):
    page = opened(browse, house, "team/emptied", role="operator")
    expect(part(page, "How it is")).to_contain_text("Upstream has lost all its branches.")
    page.get_by_role("button", name="Follow upstream").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Follow upstream as it is now?")
    expect(dialog).to_contain_text(house.world.key("team/emptied"))
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Follow upstream")).to_be_focused()
    assert house.repo("team/emptied")["status"] == "held"


def test_a_kept_tip_is_restored_under_a_name(browse: Browsing, house: House, tmp_path: Path):
    page = opened(browse, house, "team/rewritten", role="operator")
    kept = part(page, "Kept tips")
    expect(kept).to_contain_text("2 old tips that upstream threw away.")
    row = kept.get_by_role("row").filter(has_text="refs/heads/feature")
    expect(row).to_contain_text("deleted")
    row.get_by_role("button", name="Restore").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("refs/heads/feature")
    dialog.get_by_label("Name below refs/restored/").fill("seen/again")
    dialog.get_by_role("button", name="Restore").click()
    told(page, "Restored as refs/restored/seen/again.")
    expect(part(page, "Syncs").locator("tbody tr").first).to_contain_text("refs/restored/seen/again")
    served = f"{house.url}/git/{house.world.key('team/rewritten')}"
    assert "refs/restored/seen/again" in run_git(tmp_path, "ls-remote", served)


def test_targets_are_shown_ref_by_ref_and_many_refs_in_pages(browse: Browsing, house: House):
    page = opened(browse, house, "team/pulled")
    targets = part(page, "Where it is pushed to")
    willing, choosy = (targets.locator(".target").filter(has_text=name) for name in ("willing", "choosy"))
    expect(willing).to_contain_text("2 of 2 branches and tags are equal there.")
    row = choosy.get_by_role("row").filter(has_text=f"refs/heads/{REFUSED_BRANCH}")
    expect(row).to_contain_text("hook declined")
    expect(part(page, "When it is looked at next")).to_contain_text(
        "As a pull project it is pulled every 60 min."
    )
    told_of = house.get(f"/api/repos/{house.world.key('team/pulled')}/-/targets")
    unsaid = {"status": "unknown", "refs": [], "last_error": None, "refs_total": None, "refs_equal": None}
    differs = unsaid | {"status": "behind", "refs_total": 2}
    first, second = told_of["targets"]
    changed = {"targets": [first | unsaid, second | differs], "total": 2}
    page.route("**/-/targets", lambda route: route.fulfill(json=changed))
    page.reload()
    expect(targets.locator(".target").first).to_contain_text("not known now")
    expect(targets.locator(".target").last).to_contain_text("behind")
    expect(targets).not_to_contain_text("are equal there")
    public = opened(browse, house, "team/pulled", role=None)
    expect(part(public, "Syncs")).to_be_visible()
    expect(part(public, "Where it is pushed to")).to_have_count(0)
    expect(public.get_by_role("button", name="Sync now")).to_have_count(0)

    went(page, house, "team/many-refs")
    refs = part(page, "Branches and tags")
    expect(refs).to_contain_text(f"{REFS_MANY + 1} in all · HEAD → refs/heads/main")
    first = refs.locator("tbody tr").first.inner_text()
    refs.get_by_role("button", name="Next").click()
    expect(refs).to_contain_text("Page 2")
    expect(refs).not_to_contain_text(first.split()[0])
    refs.get_by_role("button", name="Back").click()
    expect(refs).to_contain_text(first.split()[0])
    field = refs.get_by_role("searchbox", name="Begins with")
    field.fill("refs/heads/m")
    expect(refs.locator("tbody tr")).to_have_count(1)
    expect(refs.locator("tbody tr")).to_contain_text("refs/heads/main")
    refs.get_by_role("button", name="Tags").click()
    expect(field).to_have_value("refs/tags/")
    expect(refs).to_contain_text("None begins like that.")


def test_a_removed_repository_can_be_brought_back(browse: Browsing, house: House):
    browse.allow(r"status of 404")
    made = house.world.docs.create("added/for-a-while", commits=2)
    house.client.post("/api/tasks", json={"git_url": made.url, "additional_params": {"wait": 30}})
    key = made.url.removeprefix("http://").removesuffix(".git")
    page = browse.open(f"/#/repo/{quote(key)}", role="operator")
    page.get_by_role("button", name="Remove").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(key)
    dialog.get_by_role("button", name="Remove").click()
    told(page, "Removed.")
    expect(page.get_by_role("alert")).to_contain_text("is not in the catalog")
    page.get_by_role("button", name="Bring it back").click()
    told(page, "It is mirrored again.")
    expect(part(page, "Branches and tags")).to_contain_text("refs/heads/main")
    page.get_by_role("button", name="Remove").click()
    dialog.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("alert")).to_contain_text("is not in the catalog")
