"""What the prober learns of servers and repos, and the requests it builds from that. Bounded, not persisted.

Rules of the way (see probe.py):
    a server starts on DIRECT; the first way that works is the server's, until a day has passed or it fails;
    on a server that understood DIRECT before, a repo that does not is an exception, and remembered by itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar
from urllib.parse import SplitResult

from evermirror.edge.git.connection import Origin
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.repo import RepoSpec
from evermirror.model.url import DEFAULT_PORTS

SERVERS_MAX = 4096  # about 2 KiB each; a forgotten one is learnt anew
REPOS_MAX = 20_000  # only those that differ from their server and their URL
WAY_KEPT_S = 86_400.0  # then the better way is tried again: servers are upgraded now and then

K = TypeVar("K")
V = TypeVar("V")


class Way(IntEnum):
    """How refs are asked for, best first."""

    DIRECT = 1
    HANDSHAKE = 2
    GIT = 3


@dataclass(slots=True)
class Server:
    """One origin: what it understands, and the part of requests that is the same for all its repos."""

    origin: Origin
    authority: str
    post_rest: Mapping[str, bytes]  # by object format: headers and body of a POST, after the request line
    ask_rest: bytes  # the headers of any other POST, without its length
    get_rest: bytes
    way: Way = Way.DIRECT
    way_until: float = 0.0
    understands_direct: bool = False


@dataclass(frozen=True, slots=True)
class Learnt:
    """How a repo differs from what its URL and server let expect."""

    twin: bool = False  # it answers to the other spelling of its URL
    object_format: str = "sha1"
    way: Way = Way.DIRECT
    way_until: float = 0.0


_AS_EXPECTED = Learnt()


class Visit:
    """One probe under way: which spelling and object format it uses now, and what it received."""

    __slots__ = (
        "_authorization",
        "_path",
        "addresses",
        "asked_format",
        "learnt",
        "object_format",
        "received_bytes",
        "redirected",
        "server",
        "spec",
        "twin",
        "twin_tried",
    )

    def __init__(
        self,
        spec: RepoSpec,
        server: Server,
        path: str,
        addresses: tuple[str, ...],
        authorization: str | None,
        learnt: Learnt,
    ) -> None:
        self.spec = spec
        self.server = server
        self.addresses = addresses
        self.learnt = learnt
        self.object_format = self.asked_format = learnt.object_format
        self.received_bytes = 0
        self.twin = learnt.twin
        self.twin_tried = self.redirected = False
        self._path = path
        self._authorization = authorization

    @property
    def authenticated(self) -> bool:
        return self._authorization is not None

    @property
    def path(self) -> str:
        return other_spelling(self._path) if self.twin else self._path

    @property
    def url(self) -> str:
        """The spelling in use now."""
        return f"{self.server.origin.scheme}://{self.server.authority}{self.path}"

    def turn(self) -> None:
        """To the other spelling."""
        self.twin = not self.twin
        self.twin_tried = True

    def is_other_spelling(self, target: SplitResult) -> bool:
        """Whether ``target`` is this repo, spelt the other way, on the same server."""
        origin = self.server.origin
        port = target.port or DEFAULT_PORTS.get(target.scheme)
        same = (target.scheme, target.hostname, port) == (origin.scheme, origin.host, origin.port)
        return same and "@" not in target.netloc and target.path == other_spelling(self.path)

    def post(self) -> bytes:
        """The `ls-refs` request."""
        rest = self.server.post_rest[self.object_format]
        return b"".join(
            (b"POST ", self.path.encode("ascii"), b"/git-upload-pack HTTP/1.1\r\n", self._login(), rest)
        )

    def ask(self, body: bytes) -> bytes:
        """A request with another command than `ls-refs`."""
        length = b"Content-Length: %d\r\n\r\n" % len(body)
        line = b"/git-upload-pack HTTP/1.1\r\n"
        parts = (b"POST ", self.path.encode("ascii"), line, self._login(), self.server.ask_rest, length, body)
        return b"".join(parts)

    def get(self) -> bytes:
        """The request for capabilities, or for the refs of an older server."""
        line = b"/info/refs?service=git-upload-pack HTTP/1.1\r\n"
        return b"".join((b"GET ", self.path.encode("ascii"), line, self._login(), self.server.get_rest))

    def _login(self) -> bytes:
        if self._authorization is None:
            return b""
        return b"Authorization: %b\r\n" % self._authorization.encode("ascii")


class ProbeMemory:
    """Servers and repos, least recently used forgotten first."""

    def __init__(self, agent: str, bodies: Mapping[str, bytes]) -> None:
        self._agent = agent
        self._bodies = bodies
        self._servers: _Bounded[tuple[str, str], Server] = _Bounded(SERVERS_MAX)
        self._repos: _Bounded[str, Learnt] = _Bounded(REPOS_MAX)  # by their URL

    def server(self, scheme: str, authority: str) -> Server:
        found = self._servers.get((scheme, authority))
        if found is None:
            found = self._new_server(scheme, authority)
            self._servers.put((scheme, authority), found)
        return found

    def _new_server(self, scheme: str, authority: str) -> Server:
        host, port = split_authority(scheme, authority)
        # Forges know git by this name, and answer others with a web page.
        common = f"Host: {authority}\r\nUser-Agent: git/{self._agent}\r\nGit-Protocol: version=2\r\n"
        common += "Accept-Encoding: identity\r\n"  # unpacking costs more than it saves on a list of hashes
        post = common + "Content-Type: application/x-git-upload-pack-request\r\n"
        post += "Accept: application/x-git-upload-pack-result\r\n"
        return Server(
            origin=Origin(scheme, host, port),
            authority=authority,
            post_rest={
                name: f"{post}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body
                for name, body in self._bodies.items()
            },
            ask_rest=post.encode("ascii"),
            get_rest=f"{common}Accept: */*\r\n\r\n".encode("ascii"),
        )

    def learnt(self, url: str) -> Learnt:
        return self._repos.get(url) or _AS_EXPECTED

    def way(self, visit: Visit, now: float) -> Way:
        """How to ask; ``now`` is monotonic."""
        if now < visit.learnt.way_until:
            return visit.learnt.way
        return visit.server.way if now < visit.server.way_until else Way.DIRECT

    def remember(self, visit: Visit, way: Way, now: float) -> None:
        """``way`` worked just now, with the visit's spelling and object format."""
        server, before = visit.server, visit.learnt
        own_way, own_until = Way.DIRECT, 0.0
        if way is Way.DIRECT:
            server.way, server.way_until = Way.DIRECT, 0.0
        elif way is Way.HANDSHAKE and visit.object_format != visit.asked_format:
            pass  # only the object format was wrong: with the right one the direct way will do
        elif server.understands_direct:
            kept = before.way is way and now < before.way_until
            own_way, own_until = way, before.way_until if kept else now + WAY_KEPT_S
        elif server.way is not way or now >= server.way_until:
            server.way, server.way_until = way, now + WAY_KEPT_S
        self._store(visit, Learnt(visit.twin, visit.object_format, own_way, own_until))

    def forget_way(self, visit: Visit) -> None:
        """The remembered way failed: begin with the best one next time."""
        visit.server.way, visit.server.way_until = Way.DIRECT, 0.0
        self._store(visit, Learnt(visit.learnt.twin, visit.learnt.object_format))

    def _store(self, visit: Visit, learnt: Learnt) -> None:
        if learnt == visit.learnt:
            return
        if learnt == _AS_EXPECTED:
            self._repos.drop(visit.spec.url)
        else:
            self._repos.put(visit.spec.url, learnt)


class _Bounded(Generic[K, V]):
    """A mapping that forgets what was used least recently."""

    __slots__ = ("_items", "_max")

    def __init__(self, most: int) -> None:
        self._max = most
        self._items: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        value = self._items.get(key)
        if value is not None:
            self._items.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self._max:
            self._items.popitem(last=False)

    def drop(self, key: K) -> None:
        self._items.pop(key, None)


def split_url(url: str) -> tuple[str, str, str]:
    """Scheme, authority and path of a re-serialised URL; a local path has neither of the first two."""
    scheme, separator, rest = url.partition("://")
    if not separator or url.startswith("/"):
        return "", "", url
    if not url.isascii() or not url.isprintable() or " " in url:  # would end a header line
        raise FailureError(Failure(FailureKind.UNKNOWN, "the URL is not in its canonical form"))
    authority, slash, path = rest.partition("/")
    return scheme, authority, slash + path


def split_authority(scheme: str, authority: str) -> tuple[str, int]:
    """Host (without brackets) and port."""
    rest = authority.rpartition("@")[2]
    host, colon, port = rest.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = rest, ""
    return host.strip("[]"), int(port) if port else DEFAULT_PORTS[scheme]


def other_spelling(path: str) -> str:
    """The same repository with `.git` added or taken away."""
    if path.endswith("/.git"):
        return path[:-5]
    return path[:-4] if path.endswith(".git") else path + ".git"
