"""What holds for the whole page, whatever it shows: languages, policy, hostile names."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import violations
from tests.browser.browsing import Browsing
from tests.browser.house import House
from tests.browser.world import HOSTILE, HOSTILE_ALIAS, HOSTILE_REF

WORDS = {
    "en": ("Is everything fresh?", "The last 24 hours", "Repositories", "Live"),
    "zh": ("一切都是最新的吗？", "过去 24 小时", "仓库", "实时"),
}
LOOKS = {"desk": {}, "phone": {"locale": "zh-CN", "dark": True, "width": 360, "height": 780}}

_GO = """to => new Promise(done => {
  const drawn = () => requestAnimationFrame(() => requestAnimationFrame(done));
  if (location.hash === to) drawn();
  addEventListener("hashchange", drawn, {once: true});
  location.hash = to;
})"""


def places(house: House) -> list[str]:
    """Every view, and repos of which there is most to show."""
    repos = ("lang/python", "team/rewritten", "team/pulled", "team/emptied", "team/many-refs", "hostile/refs")
    return ["overview", "repos", *(repo_place(house, name) for name in repos), "fleet", "pull", "alerts"]


def repo_place(house: House, name: str) -> str:
    """Of a repo; its key has escapes of its own."""
    return f"repo/{quote(house.world.key(name))}"


def go(page: Page, place: str) -> None:
    """There, and what the view asks for has come: nothing says any more that it is loading."""
    page.evaluate(_GO, f"#/{place}")
    expect(page.locator("#view h1")).to_be_visible()
    expect(page.locator("#view")).not_to_contain_text(re.compile("Loading …|正在加载"))


@pytest.mark.parametrize(("locale", "lang"), [("en-US", "en"), ("zh-CN", "zh")])
def test_the_page_opens_in_the_browsers_language(browse: Browsing, house: House, locale, lang):
    page = browse.open(locale=locale)
    title, day, repos, live = WORDS[lang]
    expect(page.locator("html")).to_have_attribute("lang", lang)
    expect(page.get_by_role("heading", level=1)).to_have_text(title)
    expect(page.get_by_role("region", name=day)).to_be_visible()
    expect(page.get_by_role("navigation").get_by_role("link", name=repos)).to_be_visible()
    expect(page.get_by_role("status").first).to_have_text(live)
    total = house.get("/api/git_urls?total=true&limit=1")["total"]
    expect(page.locator("#view")).to_contain_text(str(total))
    browse.shot(page, f"overview-{locale}")


@pytest.mark.parametrize("look", LOOKS)
def test_every_view_is_for_everybody(browse: Browsing, house: House, look):
    page = browse.open(**LOOKS[look])
    found = {}
    for place in places(house):
        go(page, place)
        wide = page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
        found[place] = [*violations(page), *([f"{wide} px wider than the window"] if wide > 0 else [])]
        browse.shot(page, f"{place.split('/')[0]}-{place.split('/')[-1]}-{look}")
    assert not any(found.values()), "\n".join(f"{place}: {what}" for place, w in found.items() for what in w)


def test_everything_comes_with_a_strict_policy(browse: Browsing):
    page = browse.open("/docs")
    answers = []
    page.on("response", lambda answer: answers.append(answer))
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert len(answers) > 3
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy, answer.url
        assert "script-src 'self'" in policy, answer.url
        assert "unsafe" not in policy, answer.url


def test_hostile_names_are_text(browse: Browsing, house: House):
    page = browse.open("/#/repos?search=hostile")
    for name in (*HOSTILE.values(), "hostile/alias"):
        expect(page.locator("#view").get_by_text(house.world.key(name)).first).to_be_visible()
    browse.shot(page, "hostile-names")
    go(page, repo_place(house, "hostile/refs"))
    expect(page.locator("#view")).to_contain_text(HOSTILE_REF)
    go(page, repo_place(house, "hostile/alias"))
    expect(page.locator("#view")).to_contain_text(HOSTILE_ALIAS)
    for name in HOSTILE.values():
        go(page, repo_place(house, name))
        expect(page.locator("#view")).to_contain_text(house.world.key(name))
        assert page.locator("[onerror], [onload], img[src='x'], #view script").count() == 0


@pytest.mark.parametrize("role", ["admin", "operator", "submitter", "reader", None])
def test_every_role_sees_every_view_without_a_refusal(browse: Browsing, house: House, role):
    """A page that asks for what is refused would have an error in its log."""
    page = browse.open(role=role)
    for place in ("overview", "repos", repo_place(house, "team/pulled"), "fleet", "pull", "alerts"):
        go(page, place)
