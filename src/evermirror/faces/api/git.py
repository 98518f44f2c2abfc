"""Mirrors served to git clients: read-only smart HTTP, streamed both ways.

Errors are plain text: git prints that as ``remote: …``; it does not show problem documents.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from evermirror.edge.git.serve_request import BadRequest, RequestTooLarge, bounded_body
from evermirror.faces.api.auth import PUBLIC, Caller, git_token_needed
from evermirror.faces.api.context import CallerDep, GitApi, GitApiDep
from evermirror.faces.api.git_service import GitBusy, GitService, NotHereYet, ServedRepo
from evermirror.faces.api.limits import limited_by
from evermirror.faces.api.problems import NO_CACHE, ApiProblem, Kind
from evermirror.faces.api.text import iso
from evermirror.faces.web import pages
from evermirror.model.access import Role
from evermirror.model.failure import FailureError
from evermirror.model.printable import one_line

_MAX_PROTOCOL = 100  # characters of the Git-Protocol header; "version=2" has 9
_MENDED_SOON = {"Retry-After": "30"}  # seconds: a check and a fetch of a small repository take less
_READ_ONLY = "This is a read-only mirror: push to the upstream repository instead.\n"

router = APIRouter(include_in_schema=False)


@router.get("/git/{key:path}/info/refs")
async def info_refs(
    key: str, request: Request, api: GitApiDep, caller: CallerDep, service: str = ""
) -> Response:
    """The first request of every clone, fetch and push."""
    if service == "git-receive-pack":
        return _say(403, _READ_ONLY)
    if service != "git-upload-pack":
        return _say(403, "Only git's smart HTTP protocol is served here (git 1.6.6 or later).\n")
    if api.git is None:
        return await _elsewhere(api, caller, key)
    repo = await _open(api, api.git, caller, key)
    if isinstance(repo, Response):
        return repo
    chunks = api.git.advertise(repo, _protocol(request), _client(request))
    return await _streamed(
        repo, chunks, "application/x-git-upload-pack-advertisement", None, api.settings.git_silence_s
    )


@router.post("/git/{key:path}/git-upload-pack")
async def upload_pack(key: str, request: Request, api: GitApiDep, caller: CallerDep) -> Response:
    """What is wanted and had comes in, a pack goes out."""
    if request.headers.get("content-type") != "application/x-git-upload-pack-request":
        return _say(415, "Expected a git-upload-pack request.\n")
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip", "x-gzip"):
        return _say(415, "Only gzip is understood as Content-Encoding.\n")
    if api.git is None:
        return await _elsewhere(api, caller, key)
    repo = await _open(api, api.git, caller, key, begun=True)
    if isinstance(repo, Response):
        return repo
    body = _Body(request, zipped=encoding != "identity", max_bytes=api.settings.limits.git_body.max_bytes)
    chunks = api.git.upload_pack(repo, body.chunks(), _protocol(request), _client(request))
    return await _streamed(
        repo, chunks, "application/x-git-upload-pack-result", body, api.settings.git_silence_s
    )


@router.post("/git/{key:path}/git-receive-pack")
async def receive_pack(key: str) -> Response:
    """Refused: mirrors follow their upstream only."""
    return _say(403, _READ_ONLY)


@router.get("/git/{key:path}")
async def show(key: str, request: Request, api: GitApiDep, caller: CallerDep) -> Response:
    """A person who opens a clone address in a browser is told what to do with it."""
    if api.git is None:
        return await _elsewhere(api, caller, key)
    repo = await _open(api, api.git, caller, key)
    if isinstance(repo, Response):
        return repo
    return pages.clone_page(request, repo.key, repo.verified_at, private=repo.private)


async def _open(
    api: GitApi, git: GitService, caller: Caller, key: str, *, begun: bool = False
) -> ServedRepo | Response:
    """The mirror, or what the client is told instead."""
    may = caller.may(Role.READER)
    try:
        repo = await git.open(key.strip("/").removesuffix(".git"), begun=begun, private=may)
    except NotHereYet as not_yet:
        return _say(
            503, f"{one_line(not_yet.reason)}\n", {"Retry-After": str(int(not_yet.retry_after_s) + 1)}
        )
    return await _not_here(api, caller) if repo is None or (repo.private and not may) else repo


def _protocol(request: Request) -> str:
    value = request.headers.get("git-protocol", "")
    fine = len(value) <= _MAX_PROTOCOL and all(c.isalnum() or c in "=:._-" for c in value) and value.isascii()
    return value if fine else ""


def _client(request: Request) -> str:
    return limited_by(request.scope)


def _say(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    return PlainTextResponse(text, status, headers={**NO_CACHE, **(headers or {})})


async def _elsewhere(api: GitApi, caller: Caller, key: str) -> Response:
    """No mirror is here at all; of one that the fleet has, its aggregators are named."""
    name = key.strip("/").removesuffix(".git")
    if api.aggregators is None or (found := await api.aggregators(name, caller)) is None:
        return await _not_here(api, caller)
    where = f"from an aggregator: {', '.join(found)}" if found else "from an aggregator, once there is one"
    return _say(404, f"This coordinator holds no mirrors. Clone {where}.\n")


async def _not_here(api: GitApi, caller: Caller) -> Response:
    """Of an unknown repo and of one that the caller is not to know of. Who has no token is asked for one: git
    sends its credentials only then."""
    if caller == PUBLIC and await api.hides_repos():
        raise git_token_needed("This repository is not mirrored here, or it is private")
    return _say(404, "This repository is not mirrored here.\n")


async def _streamed(
    repo: ServedRepo, chunks: AsyncIterator[bytes], media_type: str, body: _Body | None, silence_s: float
) -> Response:
    """Waits for the first chunk, so that what fails early is still told by a status."""
    try:
        first = await anext(chunks, b"")
    except GitBusy as busy:
        return _say(
            503, "Too many clients now; try again soon.\n", {"Retry-After": str(int(busy.retry_after_s) + 1)}
        )
    except FailureError as error:  # git ended before its first byte
        if body is None or error.failure.corrupt:
            return _say(503, "This mirror cannot be read now; it is checked and mended.\n", _MENDED_SOON)
        return _say(400, "git cannot read this request.\n")
    except BaseException:
        await _close(chunks)
        raise
    headers = dict(NO_CACHE)
    if repo.verified_at is not None:
        headers["X-Evermirror-Verified-At"] = iso(repo.verified_at)
    return _GitStream(first, chunks, media_type, headers, body, silence_s)


async def _close(chunks: AsyncIterator[bytes]) -> None:
    if isinstance(chunks, AsyncGenerator):
        await chunks.aclose()


class _Body:
    """The request's body, unzipped where git zipped it; bounded also after unzipping."""

    def __init__(self, request: Request, *, zipped: bool, max_bytes: int) -> None:
        self._pieces = bounded_body(request.stream(), max_bytes, gzipped=zipped)
        self.ended = asyncio.Event()

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._pieces:
                yield piece
        except RequestTooLarge as error:
            raise ApiProblem(Kind.TOO_LARGE, error.message, headers={"Connection": "close"}) from None
        except BadRequest as error:
            raise ApiProblem(Kind.MALFORMED, error.message) from None
        except ClientDisconnect:  # as many may do in the midst of it as like: not worth a line in the log
            raise ApiProblem(Kind.MALFORMED, "The body was not sent to its end") from None
        self.ended.set()


class _GitStream(Response):
    """Sends git's output as it comes, and ends git as soon as the client has left.

    Only one may read from the connection: the body first, then the watch for the client's leaving."""

    def __init__(
        self,
        first: bytes,
        chunks: AsyncIterator[bytes],
        media_type: str,
        headers: Mapping[str, str],
        body: _Body | None,
        silence_s: float,
    ) -> None:
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers(headers)
        self._first = first
        self._chunks = chunks
        self._request_body = body
        self._silence_s = silence_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(self._send_all(send))
                leaving = group.create_task(self._client_left(receive))
                sending.add_done_callback(lambda _: leaving.cancel())
                leaving.add_done_callback(lambda _: sending.cancel())
        finally:
            await _close(self._chunks)

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async with asyncio.timeout(self._silence_s):
                await send({"type": "http.response.body", "body": self._first, "more_body": True})
            async for chunk in self._chunks:
                async with asyncio.timeout(self._silence_s):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except (TimeoutError, ApiProblem, FailureError):
            # The client is too slow, or sent no good request to its end; or the mirror is damaged.
            return  # the answer stays incomplete, which ends the connection
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _client_left(self, receive: Receive) -> None:
        if self._request_body is not None:
            await self._request_body.ended.wait()
        while (await receive())["type"] != "http.disconnect":
            pass
