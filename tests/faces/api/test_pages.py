"""The pages need nothing from elsewhere and speak the browser's language."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

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
            assert link.startswith(("/", "#"))
            assert not link.startswith("//")
            if link.startswith("#"):
                continue
            assert (await client.get(link)).status_code == 200


def _script(name: str) -> str:
    return STATIC.joinpath(name).read_text("utf-8")


def _files(folder: Traversable) -> Iterator[Traversable]:
    for item in folder.iterdir():
        yield from _files(item) if item.is_dir() else [item]


@pytest.mark.parametrize("file", list(_files(STATIC)), ids=lambda file: file.name)
def test_no_file_names_another_host_or_writes_markup(file):
    text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|//[a-z]+\.", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function", text)
    assert not re.search(r"<script(?![^>]*src=)|<style|\son[a-z]+=|style=", text)


@pytest.mark.parametrize(
    "name", [file.name for file in STATIC.joinpath("words").iterdir() if file.name.endswith(".js")]
)
def test_both_languages_have_every_word(name):
    english, chinese = _words(name)
    assert english == chinese
    assert len(english) > 0


def test_every_word_that_a_script_names_is_there_and_no_word_is_there_in_vain():
    known = [_words(file.name)[0] for file in STATIC.joinpath("words").iterdir()]
    names = set().union(*known)
    assert sum(map(len, known)) == len(names), "a word of one view would be another's"
    scripts = [f.read_text("utf-8") for f in _files(STATIC) if f.name.endswith((".js", ".html"))]
    text = "\n".join(script for script in scripts if "export default {\n  en: {" not in script)
    named = set(re.findall(r'data-(?:word|label)="(\w+)"', text)) | set(re.findall(r'\bword\("(\w+)"', text))
    assert named - names == set()
    counted = {f"{n}_{end}" for n in re.findall(r'\bmany\("(\w+)"', text) for end in ("one", "many")}
    assert counted - names == set()
    # Some are put together: `p_${priority}`; the others are written out somewhere.
    begins = tuple(set(re.findall(r"`(\w+_)\$\{", text)))
    idle = {n for n in names - named - counted if not n.startswith(begins) and f'"{n}"' not in text}
    assert idle == set()


def _words(name: str) -> tuple[set[str], set[str]]:
    text = STATIC.joinpath("words", name).read_text("utf-8")
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)  # what is said may hold anything
    english, chinese = text.split("  zh: {")
    found = [re.findall(r"(\w+):\s*\"\"", part) for part in (english, chinese)]
    for part in found:
        assert len(part) == len(set(part)), "said twice"
    return set(found[0]), set(found[1])


VIEWS = dict(re.findall(r"(\w+): \[([^\]]*)\]", re.search("const VIEWS = (.*)", _script("app.js"))[1]))


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_comes_with_every_word_it_names(view):
    text = "\n".join(map(_script, _imported(f"views/{view}.js", set())))
    files = {"common", "overview", "repos", *re.findall(r"\w+", VIEWS[view])}
    known = set().union(*(_words(f"{name}.js")[0] for name in files))
    named = set(re.findall(r'\bword\("(\w+)"', text))
    named |= {f"{n}_{end}" for n in re.findall(r'\bmany\("(\w+)"', text) for end in ("one", "many")}
    assert named - known == set()
    every = set().union(*(_words(file.name)[0] for file in STATIC.joinpath("words").iterdir()))
    begins = tuple(b for b in re.findall(r"`(\w+_)\$\{", text) if not any(n.startswith(b) for n in known))
    assert not {n for n in every if begins and n.startswith(begins)}


def _imported(name: str, known: set[str]) -> set[str]:
    known.add(name)
    for there in re.findall(r'from "([^"]+)"', _script(name)):
        other = posixpath.normpath(posixpath.join(posixpath.dirname(name), there))
        if other not in known and not other.startswith("words/"):
            _imported(other, known)
    return known


async def test_the_page_begins_with_the_first_view_and_one_style_sheet(client):
    text = (await client.get("/")).text
    first = set(re.findall(r'modulepreload" href="/static/\w+/([^"]+)"', text))
    words = {f"words/{name}.js" for name in ("common", "overview", "repos")}
    assert first == (_imported("app.js", set()) - {"app.js"}) | words
    assert "views/overview.js" in first
    assert len(first) < 25
    [sheet] = re.findall(r'stylesheet" href="([^"]+)"', text)
    joined = (await client.get(sheet)).text
    for file in _files(STATIC):
        assert not file.name.endswith(".css") or file.read_text("utf-8") in joined


async def test_an_unchanged_file_is_not_sent_twice(client):
    first = await client.get("/static/style.css")
    again = await client.get("/static/style.css", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_what_the_page_is_made_of_is_asked_for_once_and_another_version_never_taken_for_it(client):
    script = re.search(r'src="(/static/\w+/app.js)"', (await client.get("/")).text)[1]
    answer = await client.get(script)
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.content == (await client.get("/static/app.js")).content
    assert (await client.get("/static/app.js")).headers["cache-control"] == "no-cache"
    assert (await client.get("/static/0123456789abcdef/app.js")).status_code == 404


@pytest.mark.parametrize("name", ["..%2fpages.py", "pages.py", "%00", "dashboard.html"])
async def test_no_other_file_is_served(client, name):
    assert (await client.get(f"/static/{name}")).status_code == 404
