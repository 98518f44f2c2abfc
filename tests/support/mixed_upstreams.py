"""Upstreams as a real list has them: most are alive, some are dead, each dead one in one of six ways.

One process serves thousands of URLs. Every address 127.A.B.C is a host of its own, so that limits for each
host are as real as on the internet. What lives is answered by ``git http-backend``; its repositories do not
change, so that short answers are remembered and 2,000 repositories cost as much as four.

    alive   small, empty, slow (each answer waits), huge (a blob of ``huge_bytes``)
    dead    gone (404), refused (nobody listens), hanging (accepts, and never answers or stops in the head),
            redirecting (inward, in a loop, to a login page), malformed (HTML with 200, cut off, garbage),
            tls (expired, signed by nobody, another host's name)

As on real forges, gone, redirecting and malformed URLs share their hosts with live ones; what is dead as a
whole (refused, hanging, tls) has hosts of its own. On leaving, no thread, socket or process is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import random
import socket
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import trustme

from tests.support.backend import Behaviour, Reply, Request, run_backend
from tests.support.gitrepo import UpstreamRepo, read_refs

REMEMBERED_BYTES_MAX = 256 * 1024  # of one answer; longer ones are git's each time
SLOW_S = 1.0
START_S = 30.0
REQUEST_BYTES_MAX = 4 << 20  # of one request's head, or body: what a git sends is far below
ADVERTISEMENT = "application/x-git-upload-pack-advertisement"


class Alive(Enum):
    SMALL = "small"
    EMPTY = "empty"
    SLOW = "slow"
    HUGE = "huge"


class Dead(Enum):
    GONE = "gone"
    REFUSED = "refused"
    HANGING = "hanging"
    REDIRECTING = "redirecting"
    MALFORMED = "malformed"
    TLS = "tls"


VARIETIES = {
    Dead.HANGING: ("silent", "half"),
    Dead.REDIRECTING: ("inward", "loop", "login"),
    Dead.MALFORMED: ("html", "cut", "garbage"),
    Dead.TLS: ("expired", "selfsigned", "otherhost"),
}
# Lines of a list that name no repository: a typo, a browser's address, what must never be run.
MALFORMED_LINES = (
    "not-a-url",
    "https://",
    "https://example.com",
    "https://example.com/a/../../b",
    "https://exa mple.com/a/b",
    "https://example.com:99999/a/b",
    "https://someone:pass%77ord@example.com/a/b",
    "ext::sh -c true",
    "file:///etc/passwd",
    "ftp://example.com/a/b.git",
)


@dataclass(frozen=True, slots=True)
class Url:
    """One line of the list, and what is behind it."""

    url: str
    kind: Alive | Dead

    @property
    def key(self) -> str:
        return self.url.partition("://")[2].removesuffix(".git")

    @property
    def alive(self) -> bool:
        return isinstance(self.kind, Alive)


class MixedUpstreams:
    """``with MixedUpstreams(folder) as world``: ``live`` and ``dead`` name as many URLs as are wanted."""

    def __init__(self, folder: Path, *, hosts: int = 8, huge_bytes: int = 20_000_000) -> None:
        self.folder = folder
        self.hosts = hosts  # that live URLs are spread over
        self.asked: Counter[str] = Counter()  # requests by path, and handshakes by variety
        self._serials: Counter[Alive | Dead] = Counter()
        self._make_repos(huge_bytes)
        self.ca_file = folder / "ca.pem"
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(str(self.ca_file))
        self._sockets = {name: _listening() for name in ("plain", *VARIETIES[Dead.TLS])}
        self._nobody = _reserved()
        self._ports = {name: int(s.getsockname()[1]) for name, s in self._sockets.items()}
        self._ports["refused"] = int(self._nobody.getsockname()[1])
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="mixed-upstreams")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(START_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._nobody.close()

    # What there is

    def live(self, count: int, kind: Alive = Alive.SMALL) -> list[Url]:
        return [self._url(kind, "plain", kind.value, self._serial(kind)) for _ in range(count)]

    def dead(self, count: int, way: Dead, *, hosts: int = 4) -> list[Url]:
        """``hosts``: how many hosts of their own those share that are dead as a whole."""
        varieties = VARIETIES.get(way, (way.value,))
        urls = []
        for _ in range(count):
            n = self._serial(way)
            variety = varieties[n % len(varieties)]
            own = way in (Dead.REFUSED, Dead.HANGING, Dead.TLS)
            port = variety if way is Dead.TLS else "refused" if way is Dead.REFUSED else "plain"
            urls.append(self._url(way, port, variety, n, hosts if own else None))
        return urls

    def dead_in_all_ways(self, count: int) -> list[Url]:
        return [url for n, way in enumerate(Dead) for url in self.dead((count + 5 - n) // 6, way)]

    def mixed(self, live: int, dead: int, seed: int) -> list[Url]:
        """Of those alive some are empty, some slow and one is huge; all are shuffled."""
        some = max(1, live // 20)
        alive = self.live(live - 2 * some - 1) + self.live(some, Alive.EMPTY) + self.live(some, Alive.SLOW)
        urls = alive + self.live(1, Alive.HUGE) + self.dead_in_all_ways(dead)
        random.Random(seed).shuffle(urls)
        return urls

    def write_list(self, urls: Iterable[Url], file: Path, *, malformed: bool = False) -> Path:
        """One URL a line; with ``malformed`` every tenth line or so is none."""
        lines: list[str] = []
        for n, url in enumerate(urls):
            if malformed and n % 10 == 0:
                lines.append(MALFORMED_LINES[n // 10 % len(MALFORMED_LINES)])
            lines.append(url.url)
        file.write_text("\n".join(lines) + "\n")
        return file

    def refs(self, kind: Alive) -> dict[str, str]:
        """What a mirror of such a repository must have."""
        return read_refs(self.folder / f"{kind.value}.git")

    @property
    def settings(self) -> dict[str, str]:
        """What ``evermirror`` needs in its environment to reach them."""
        return {
            "EVERMIRROR_UPSTREAMS__SCHEMES": '["http", "https"]',
            "EVERMIRROR_UPSTREAMS__ALLOW": json.dumps(["127.0.0.0/8"]),
            "EVERMIRROR_UPSTREAMS__CA_FILE": str(self.ca_file),
        }

    def tried(self, url: Url) -> bool:
        """Whether anybody asked for it; of TLS, whether anybody knocked at such a host."""
        if url.kind is Dead.REFUSED:
            raise ValueError("nobody listens there, so nobody knows")
        path = urlsplit(url.url).path
        return self.asked[path.split("/")[1] if url.kind is Dead.TLS else path] > 0

    def _serial(self, kind: Alive | Dead) -> int:
        self._serials[kind] += 1
        return self._serials[kind] - 1

    def _url(self, kind: Alive | Dead, port: str, name: str, n: int, own: int | None = None) -> Url:
        """Hosts of their own are 127.2–7.x.y, one number for each way of being dead; all others 127.1.x.y."""
        first = 1 if own is None else 2 + list(Dead).index(Dead(kind.value))
        host = n % (self.hosts if own is None else own)
        scheme = "https" if port in VARIETIES[Dead.TLS] else "http"
        address = f"127.{first}.{host // 250}.{host % 250 + 1}:{self._ports[port]}"
        return Url(f"{scheme}://{address}/{name}/{n:05d}.git", kind)

    def _make_repos(self, huge_bytes: int) -> None:
        for kind in Alive:
            repo = UpstreamRepo.init(self.folder / f"{kind.value}.git", kind.value, "")
            if kind is not Alive.EMPTY:
                repo.bulk_commits(3)
                repo.tag("v1.0", annotated=True)
            if kind is Alive.HUGE:
                repo.big_blob(huge_bytes)

    # Serving, in a thread of its own

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(lambda _loop, _context: None)  # clients that leave are no news
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        front = _Front(self.folder, self.asked)
        contexts = self._tls_contexts()
        servers = [
            await asyncio.start_server(
                front.talk, sock=sock, ssl=contexts.get(name), limit=REQUEST_BYTES_MAX, backlog=4096
            )
            for name, sock in self._sockets.items()
        ]
        self._started.set()
        await self._stop.wait()
        for server in servers:
            server.close()
        await front.close()

    def _tls_contexts(self) -> dict[str, ssl.SSLContext]:
        """Their hosts are addresses; the good one of a name that is not asked for is another host's."""
        hosts = [f"127.7.0.{n + 1}" for n in range(250)]
        past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
        certificates = {
            "expired": self._authority.issue_cert(*hosts, not_after=past),
            "selfsigned": trustme.CA().issue_cert(*hosts),
            "otherhost": self._authority.issue_cert("git.example.com"),
        }
        contexts = {}
        for name, certificate in certificates.items():
            contexts[name] = context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate.configure_cert(context)
            context.sni_callback = self._knocked(name)
        return contexts

    def _knocked(self, name: str):  # type: ignore[no-untyped-def]
        def count(_socket: object, _host: object, _context: object) -> None:
            self.asked[name] += 1

        return count


def _listening() -> socket.socket:
    """At every loopback address, and at no other."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
    return _bound(sock)


def _reserved() -> socket.socket:
    """A port that nobody listens at, and nobody else gets."""
    return _bound(socket.socket())


def _bound(sock: socket.socket) -> socket.socket:
    for port in random.sample(range(20000, 32768), 50):
        with contextlib.suppress(OSError):
            sock.bind(("0.0.0.0", port))
            return sock
    raise RuntimeError("no free port found")


class _Front:
    """Answers kept-alive HTTP/1.1 requests by what the path's first part says."""

    def __init__(self, folder: Path, asked: Counter[str]) -> None:
        self._folder = folder
        self._asked = asked
        self._known: dict[tuple[str, str, bytes], bytes] = {}
        self._talks: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()

    async def close(self) -> None:
        self._closing.set()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        try:
            while await self._one(reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, asyncio.CancelledError):
            return  # the client is done, or the test is
        finally:
            self._talks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; False where the connection ends with it."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (h.partition(":") for h in head[1:] if h)}
        body = await _read_body(reader, headers)
        method, target, _ = head[0].split(" ")
        name, _, service = target.partition(".git")
        self._asked[f"{name}.git"] += 1
        variety = name.split("/")[1]
        if variety in {kind.value for kind in Alive}:
            if variety == Alive.SLOW.value:
                await asyncio.sleep(SLOW_S)
            async for data in self._by_git(variety, method, service, headers, body):
                writer.write(data)
                await writer.drain()
            return True
        if variety in VARIETIES[Dead.HANGING]:
            writer.write(b"" if variety == "silent" else b"HTTP/1.1 200 OK\r\nContent-Type: applica")
            await self._closing.wait()
            return False
        answer, stays = _dead_answer(variety, name, service)
        writer.write(answer)
        return stays

    async def _by_git(
        self, name: str, method: str, service: str, headers: dict[str, str], body: bytes
    ) -> AsyncIterator[bytes]:
        key = (name + service, headers.get("git-protocol", ""), body)
        if key in self._known:
            yield self._known[key]
            return
        request = Request(method, f"/{name}.git{service}", headers, body, 0)
        reply = await asyncio.to_thread(run_backend, Behaviour(self._folder, True, False, {}), request, body)
        try:
            content = b""
            while len(content) < REMEMBERED_BYTES_MAX and (
                data := await asyncio.to_thread(next, reply.body, b"")
            ):
                content += data
            if len(content) < REMEMBERED_BYTES_MAX:
                self._known[key] = _head(reply, f"Content-Length: {len(content)}") + content
                yield self._known[key]
                return
            yield _head(reply, "Transfer-Encoding: chunked") + _chunk(content)
            while data := await asyncio.to_thread(next, reply.body, b""):
                yield _chunk(data)
            yield b"0\r\n\r\n"
        finally:
            close = getattr(reply.body, "close", None)
            if close is not None:
                await asyncio.to_thread(close)


def _dead_answer(variety: str, name: str, service: str) -> tuple[bytes, bool]:
    """What is said, and whether the connection stays."""
    page = b"<!DOCTYPE html><html><body>Please sign in.</body></html>\n"
    match variety:
        case "inward":
            return _answer("302 Found", b"", f"Location: http://169.254.169.254{name}.git{service}"), True
        case "loop":
            return _answer("301 Moved", b"", f"Location: {name}.git{service}"), True
        case "login":
            return _answer("302 Found", b"", "Location: /html/sign-in.git"), True
        case "html":
            return _answer("200 OK", page, "Content-Type: text/html; charset=utf-8"), True
        case "cut":
            said = _answer("200 OK", b"001e# service=git-upload-pack\n0000", f"Content-Type: {ADVERTISEMENT}")
            return said[:-10], False
        case "garbage":
            return _answer("200 OK", b"zzzz\x00\xff" * 50, f"Content-Type: {ADVERTISEMENT}"), True
        case _:
            return _answer("404 Not Found", b"Not Found\n", "Content-Type: text/plain"), True


def _answer(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _head(reply: Reply, length: str) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status} Whatever",
        *(f"{name}: {value}" for name, value in reply.headers),
        length,
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", ""):
        return await reader.readexactly(int(headers.get("content-length", "0")))
    parts = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(parts)
