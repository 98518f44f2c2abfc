"""The pages need nothing from elsewhere and speak the browser's language."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

STATIC = files("evermirror.faces.web").joinpath("static")


@pytest.mark.parametrize(
    ("accepted", "lang"),
    [("", "en"), ("zh-CN,zh;q=0.9,en;q=0.8", "zh"), ("en-US,en;q=0.9,zh;q=0.8", "en"), ("fr", "en"),
     ("de, zh-TW;q=0.3", "zh"), (";q=;;,", "en"), ("zh;q=x", "en"), ("zh;q=nan,en", "en")],
)  # fmt: skip
async def test_the_page_follows_the_browsers_language(client, accepted, lang):
    for path in ("/", "/docs"):
        page = await client.get(path, headers={"accept-language": accepted})
        assert f'<html lang="{lang}">' in page.text
        assert page.headers["vary"] == "Accept-Language"


async def test_everything_a_page_names_is_served_here(client):
    for path in ("/", "/docs"):
        text = (await client.get(path)).text
        for link in re.findall(r'(?:src|href)="([^"]+)"', text):
            assert link.startswith("/")
            assert not link.startswith("//")
            assert (await client.get(link)).status_code == 200


def test_no_file_names_another_host_or_writes_markup():
    for file in STATIC.iterdir():
        text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//[a-z]+\.", text), file.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text), file.name
        assert not re.search(r"<script(?![^>]*src=)|<style|\son[a-z]+=|style=", text), file.name


def test_both_languages_have_every_word():
    text = STATIC.joinpath("words.js").read_text("utf-8")
    english, chinese = (set(re.findall(r"(\w+): \"", part)) for part in text.split("  zh: {"))
    assert english == chinese
    used = set(re.findall(r'data-word="(\w+)"', STATIC.joinpath("dashboard.html").read_text("utf-8")))
    used |= set(re.findall(r'(?:word|figure)\("(\w+)"', STATIC.joinpath("dashboard.js").read_text("utf-8")))
    assert used <= english


async def test_an_unchanged_file_is_not_sent_twice(client):
    first = await client.get("/static/style.css")
    again = await client.get("/static/style.css", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["..%2fpages.py", "pages.py", "%00", "dashboard.html"])
async def test_no_other_file_is_served(client, name):
    assert (await client.get(f"/static/{name}")).status_code == 404
