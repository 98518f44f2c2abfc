"""The page people look at, the API's reference, and their files: all from this process, nothing else's.

Files hold no data of the catalog; scripts fetch that from the API and show it as text only.
"""

from __future__ import annotations

import hashlib
import html
from functools import cache
from importlib.resources import files
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
_STATIC = frozenset({"dashboard.js", "docs.js", "style.css", "words.js", "icon.svg"})
_MAX_LANGUAGES = 20  # of an Accept-Language header

router = APIRouter(include_in_schema=False)


@router.get("/")
async def dashboard(request: Request) -> Response:
    return _page(request, "dashboard.html")


@router.get("/docs")
async def docs(request: Request) -> Response:
    return _page(request, "docs.html")


@router.get("/static/{name}")
async def static(name: str, request: Request) -> Response:
    if name not in _STATIC:
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


def clone_page(request: Request, key: RepoKey, verified_at: float | None) -> Response:
    """For a person who opened a clone address: the command to type."""
    lang = language(request)
    base = f"{request.url.scheme}://{request.url.netloc}"
    words = _CLONE_WORDS[lang]
    filled = Template(_text("clone.html")).substitute(
        lang=lang,
        title=html.escape(printable(key)),
        say=words["say"],
        command=html.escape(f"git clone {base}/git/{printable(key)}"),
        fresh=html.escape(words["fresh"].format(iso(verified_at)) if verified_at else words["never"]),
    )
    return Response(filled, media_type=_TYPES["html"], headers={"Vary": "Accept-Language"})


_CLONE_WORDS = {
    "en": {
        "say": "A read-only mirror. Clone it by:",
        "fresh": "Equal to its upstream at {}",
        "never": "Not yet compared with its upstream",
    },
    "zh": {"say": "只读镜像。克隆命令：", "fresh": "与上游一致的时间：{}", "never": "尚未与上游比对"},
}


def _page(request: Request, name: str) -> Response:
    text = _text(name).replace('<html lang="en">', f'<html lang="{language(request)}">', 1)
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
    return files("evermirror.faces.web").joinpath("static", name).read_text("utf-8")
