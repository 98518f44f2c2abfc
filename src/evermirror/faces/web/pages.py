"""The page people look at, the API's reference, and their files: all from this process, nothing else's.

Files hold no data of the catalog; scripts fetch that from the API and show it as text only.
"""

from __future__ import annotations

import hashlib
import html
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.faces.api.text import iso, printable
from evermirror.model.repo import RepoKey

_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_BEGIN = "app.js"  # the page's module that imports the others
_IMPORT = re.compile(r'^import [^"]*"(\.[^"]+)";$', re.MULTILINE)
_SHEET = "all.css"  # every style sheet of the dashboard, joined: one question instead of one for each view
_ROOT = files("evermirror.faces.web").joinpath("static")
_MAX_LANGUAGES = 20  # of an Accept-Language header

router = APIRouter(include_in_schema=False)


@router.get("/")
async def dashboard(request: Request) -> Response:
    return _page(request, "dashboard.html", static=_versioned(), preload=_preload())


@router.get("/docs")
async def docs(request: Request) -> Response:
    return _page(request, "docs.html")


@router.get("/static/{name:path}")
async def static(name: str, request: Request) -> Response:
    version, _, rest = name.partition("/")
    if version == _version() and rest in _names():
        response = _file(request, rest, _text(rest))
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response
    if name not in _names():
        raise ApiProblem(Kind.NOT_FOUND, f"There is no file {name!r}")
    return _file(request, name, _text(name))


@router.get("/favicon.ico")
async def icon(request: Request) -> Response:
    return _file(request, "icon.svg", _text("icon.svg"))


@router.get("/problems/{slug}")
async def problem(slug: str) -> Response:
    """What the ``type`` of a problem document leads to."""
    for kind in Kind:
        if kind.slug == slug:
            return PlainTextResponse(f"{kind.status} {kind.slug}: {kind.title}.\n")
    raise ApiProblem(Kind.NOT_FOUND, f"There is no problem type {slug!r}")


def language(request: Request) -> str:
    """``zh`` or ``en``: the one of these two that the browser likes better."""
    liked: dict[str, float] = {}
    for part in request.headers.get("accept-language", "").split(",")[:_MAX_LANGUAGES]:
        tag, _, weight = part.strip().lower().partition(";q=")
        name = tag.partition("-")[0]
        try:
            q = float(weight) if weight else 1.0
        except ValueError:
            q = 0.0
        liked[name] = max(liked.get(name, 0.0), q)
    return "zh" if liked.get("zh", 0.0) > liked.get("en", 0.0) else "en"


def clone_page(request: Request, key: RepoKey, verified_at: float | None, *, private: bool) -> Response:
    """For a person who opened a clone address: the command to type."""
    lang = language(request)
    base = f"{request.url.scheme}://{request.url.netloc}"
    words = _CLONE_WORDS[lang]
    filled = Template(_text("clone.html")).substitute(
        lang=lang,
        title=html.escape(printable(key)),
        say=words["say"],
        command=html.escape(f"git clone {base}/git/{printable(key)}"),
        private=words["private"] if private else "",
        fresh=html.escape(words["fresh"].format(iso(verified_at)) if verified_at else words["never"]),
    )
    headers = {"Vary": "Accept-Language, Authorization", "Cache-Control": "no-cache"}
    return Response(filled, media_type=_TYPES["html"], headers=headers)


_CLONE_WORDS = {
    "en": {
        "say": "A read-only mirror. Clone it by:",
        "fresh": "Equal to its upstream at {}",
        "never": "Not yet compared with its upstream",
        "private": "It is private: git asks for a user name, which may be any, and for a password: a token.",
    },
    "zh": {
        "say": "只读镜像。克隆命令：",
        "fresh": "与上游一致的时间：{}",
        "never": "尚未与上游比对",
        "private": "这是私有仓库：git 会询问用户名（任意）和密码（填令牌）。",
    },
}


def _page(request: Request, name: str, **filled: str) -> Response:
    text = Template(_text(name)).substitute(filled)
    text = text.replace('<html lang="en">', f'<html lang="{language(request)}">', 1)
    response = _file(request, name, text)
    response.headers["Vary"] = "Accept-Language"
    return response


def _file(request: Request, name: str, text: str) -> Response:
    """Always asked for again, answered by 304 where nothing changed: an upgrade shows at once."""
    body = text.encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=_TYPES[name.rpartition(".")[2]], headers=headers)


@cache
def _text(name: str) -> str:
    if name == _SHEET:
        views = sorted(sheet for sheet in _names() if sheet.startswith("css/"))
        return "".join(_text(sheet) for sheet in ("style.css", "dashboard.css", *views))
    return _ROOT.joinpath(name).read_text("utf-8")


@cache
def _names() -> frozenset[str]:
    """Whatever lies there but pages, which have addresses of their own."""
    return frozenset({_SHEET, *(name for name in _below(_ROOT, "") if not name.endswith(".html"))})


def _below(folder: Traversable, before: str) -> Iterator[str]:
    for item in folder.iterdir():
        name = f"{before}{item.name}"
        if item.is_dir():
            yield from _below(item, f"{name}/")
        elif name.rpartition(".")[2] in _TYPES:
            yield name


@cache
def _preload() -> str:
    """The modules that the page begins with, all asked for at once and not as one imports the other."""
    modules = sorted(_imported(_BEGIN, set()) - {_BEGIN})
    return "\n".join(f'<link rel="modulepreload" href="{_versioned()}/{name}">' for name in modules)


def _imported(name: str, known: set[str]) -> set[str]:
    """It and whatever it imports, but for what it imports only later."""
    known.add(name)
    for there in _IMPORT.findall(_text(name)):
        other = posixpath.normpath(posixpath.join(posixpath.dirname(name), there))
        if other not in known:
            _imported(other, known)
    return known


@cache
def _version() -> str:
    """Of all files together: at an address with it each is the same for ever, and is asked for once."""
    every = hashlib.sha256()
    for name in sorted(_names()):
        every.update(f"{name}\0{_text(name)}\0".encode())
    return every.hexdigest()[:16]


def _versioned() -> str:
    return f"/static/{_version()}"
