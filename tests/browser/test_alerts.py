"""Alerts, as people meet them: what stands, who was told, what is silenced, and channels that are tried."""

from __future__ import annotations

import json

from playwright.sync_api import Locator, Page, expect

from tests.browser.axe import assert_accessible
from tests.support.http_sink import Reply


def part(page: Page, title: str) -> Locator:
    return page.get_by_role("region", name=title).first


def alert(page: Page, text: str) -> Locator:
    return part(page, "Standing").locator("li").filter(has_text=text)


def test_what_stands_is_shown_with_who_was_told_and_is_silenced_for_a_while(browse, house):
    page = browse.open("/#/alerts")
    held = alert(page, "Change held back")
    key = house.world.key("team/emptied")
    expect(held).to_contain_text("warning")
    expect(held).to_contain_text("upstream is empty")
    expect(held.get_by_role("link", name=key)).to_have_attribute("href", f"#/repo/{key.replace(':', '%3A')}")
    held.get_by_text("Who was told").click()
    told = held.get_by_role("row").filter(has_text="hotline")
    expect(told).to_contain_text("sent")
    assert_accessible(page)

    held.get_by_role("button", name="Silence").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("For how long").select_option("1 day")
    dialog.get_by_label("Why").fill("we know")
    dialog.get_by_role("button", name="Silence").click()
    expect(page.locator("#notices")).to_contain_text("Silenced until")
    expect(held).to_contain_text("silenced")
    expect(told).to_be_visible()  # what was opened stays open
    silence = part(page, "Silences").get_by_role("row").filter(has_text="we know")
    expect(silence).to_contain_text(key)
    (made,) = house.get("/api/alerts/silences")["items"]
    assert (made["kind"], made["about"], made["by"]) == ("repo-held", key, "the admin")
    silence.get_by_role("button", name="End").click()
    page.get_by_role("dialog").get_by_role("button", name="End the silence").click()
    expect(part(page, "Silences")).to_contain_text("Nothing is silenced")
    expect(held.locator(".status")).to_have_text(["warning"])


def test_a_channel_is_tried_and_says_why_not(browse, house):
    page = browse.open("/#/alerts", role="operator")
    channels, taken = part(page, "Channels"), house.world.hotline.taken
    before = len(taken)
    channels.get_by_role("button", name="Send a test message to hotline").click()
    expect(page.get_by_role("dialog")).to_contain_text("People get a message at hotline")
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    expect(page.locator("#notices")).to_contain_text("hotline took the test message")
    assert any(json.loads(one.body)["alerts"][0]["turn"] == "test" for one in taken[before:])
    house.world.hotline.answer = lambda _: Reply(415)
    try:
        channels.get_by_role("button", name="Send a test message to hotline").click()
        page.get_by_role("dialog").get_by_role("button", name="Send").click()
        expect(page.locator("#notices")).to_contain_text("hotline did not: ")
        expect(page.locator("#notices")).to_contain_text("415")
    finally:
        house.world.hotline.answer = lambda _: Reply()


def test_it_is_told_in_chinese_and_only_to_those_who_may_know(browse, house):
    page = browse.open("/#/alerts", role="reader", locale="zh-CN", dark=True, width=360)
    standing = part(page, "未恢复")
    expect(standing).to_contain_text("仓库变更被搁置")
    expect(standing).to_contain_text("的变更被搁置：")
    expect(page.locator("#view").get_by_role("button")).to_have_count(0)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    assert_accessible(page)
    public = browse.open("/#/alerts", role=None)
    expect(public.locator("#view")).to_contain_text("shown to token holders")
    expect(public.locator("#view")).not_to_contain_text("emptied")
