"""One look at upstream's refs: one round trip on a kept-alive connection, no process where it can be helped.

    direct      POST ls-refs (protocol v2) straight to …/git-upload-pack, body hashed, equal to the mark: done
       │ not understood
    handshake   GET info/refs first: v2 → POST with what the server needs; v0 and v1 → the refs are in it
       │ not understood
    git         `git ls-remote`; always for ssh and local paths

Which way works is remembered per host, and for a single repo where its host is known to understand more;
the better way is tried again after a day, or once the remembered one fails. Also learnt per repo: whether
`.git` belongs at the end of its URL, and its object format. All of it is bounded; losing it costs requests.

The *mark* is what the next poll compares with: a hash of the raw `ls-refs` answer, or the refs digest where
the raw answer holds what changes by itself (a v0 server's session id). Equal marks mean equal refs; different
marks mean that the refs must be looked at.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from evermirror import __version__
from evermirror.edge.git import answers, lsrefs
from evermirror.edge.git.connection import HttpLimits, Response, malformed
from evermirror.edge.git.credentials import Redactor
from evermirror.edge.git.environment import PACK_BYTES_MAX, Asker
from evermirror.edge.git.httpclient import HttpClient, tls_context
from evermirror.edge.git.probe_memory import ProbeMemory, Server, Visit, Way, split_authority, split_url
from evermirror.errors import EnvironmentUnfit
from evermirror.model.address import AllowList
from evermirror.model.failure import Failure, FailureError, FailureKind, ls_remote_command
from evermirror.model.printable import one_line
from evermirror.model.refs import PUBLIC_PREFIXES, RefSnapshot
from evermirror.model.repo import RepoSpec

MARK_VERSION = 1
MARK_HASH_BYTES = 16  # against chance; an upstream that finds a collision fools itself only
PARSE_APART_BYTES = 500_000  # a longer answer is read in a thread: 5,000 refs take some 10 ms
AGENT = f"evermirror/{__version__}"

# Statuses by which servers say that they do not understand the question, not that something is missing.
_ODD = frozenset({400, 405, 406, 411, 415, 422, 426, 501})
# The same of a server that never understood a direct question before; one that did means what it says.
_ODD_FROM_STRANGERS = _ODD | {404, 410, 500}
# Answers after which the URL's other spelling, with or without .git, is worth one more request.
_SPELLING = frozenset({200, 400, 401, 404, 405, 410, 422})
# First bytes of a mark: version, and what was hashed.
_RAW = bytes([MARK_VERSION, 1])
_DIGEST = bytes([MARK_VERSION, 2])

T = TypeVar("T")


class Resolving(Protocol):
    """Names to addresses that may be reached; raises FailureError for those that may not."""

    async def resolve(self, host: str, port: int) -> tuple[str, ...]: ...


class Authorizing(Protocol):
    """The value of a repo's Authorization header, where it has one; and what removes it from what is told."""

    redactor: Redactor

    def authorization(self, spec: RepoSpec) -> str | None: ...


class LsRemote(Protocol):
    """git itself, for what we do not speak."""

    async def ls_remote(self, spec: RepoSpec, addresses: tuple[str, ...]) -> RefSnapshot: ...


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """``allow``: hosts of the operator's own network, which may get credentials over plain http too."""

    http: HttpLimits = field(default_factory=HttpLimits)
    ca_file: str | None = None
    refs_extra: tuple[str, ...] = ()
    allow: AllowList = field(default_factory=AllowList)


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Upstream's refs are those that the mark stands for."""

    mark: bytes


@dataclass(frozen=True, slots=True)
class Seen:
    """Upstream's refs now. ``url`` is the spelling that upstream answers to: what git should fetch."""

    snapshot: RefSnapshot
    mark: bytes
    received_bytes: int
    url: str


@dataclass(frozen=True, slots=True)
class ProbeStats:
    """Counts since the start."""

    polls: int
    unchanged: int
    requests: int
    git_calls: int
    connections_opened: int
    connections_reused: int
    connections_idle: int
    received_bytes: int


class Prober:
    """Looks at upstreams. One event loop, any number of probes at once; the caller keeps hosts' limits."""

    def __init__(
        self,
        resolver: Resolving,
        credentials: Authorizing,
        git: LsRemote,
        settings: ProbeSettings,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        utc: Callable[[], float] = time.time,
    ) -> None:
        self._resolver = resolver
        self._credentials = credentials
        self._git = git
        self._allow = settings.allow
        self._monotonic = monotonic
        self._utc = utc
        self._prefixes = tuple(dict.fromkeys((*PUBLIC_PREFIXES, *settings.refs_extra)))
        try:
            tls = tls_context(settings.ca_file)
        except (OSError, ssl.SSLError) as e:
            raise EnvironmentUnfit(f"upstreams.ca_file {settings.ca_file} cannot be used: {e}") from e
        self._http = HttpClient(settings.http, tls)
        bodies = {f: lsrefs.request_body(self._prefixes, AGENT, f) for f in lsrefs.OID_BYTES}
        self._memory = ProbeMemory(AGENT, bodies)
        # Other prefixes make other snapshots of the same bytes, so marks depend on them.
        self._hash = hashlib.sha256("\n".join(self._prefixes).encode("utf-8", "surrogateescape") + b"\0")
        self._polls = self._unchanged = self._git_calls = 0

    @property
    def stats(self) -> ProbeStats:
        http = self._http.stats
        return ProbeStats(
            polls=self._polls,
            unchanged=self._unchanged,
            requests=http.requests,
            git_calls=self._git_calls,
            connections_opened=http.opened,
            connections_reused=http.reused,
            connections_idle=self._http.idle,
            received_bytes=http.received_bytes,
        )

    async def close(self) -> None:
        """Ends all connections; probes under way fail."""
        await self._http.close()

    async def probe(self, spec: RepoSpec, mark: bytes | None) -> Unchanged | Seen:
        """Upstream's refs, or that they are still what ``mark`` (of the last sync) stands for.

        Raises FailureError for everything else, with the kind that policy acts on, and the command by which
        a person sees the same."""
        self._polls += 1
        try:
            return await self._probe(spec, mark)
        except FailureError as error:
            command = error.failure.git_command or one_line(ls_remote_command(spec.url))
            told = replace(error.failure, git_command=command)
            raise FailureError(self._credentials.redactor.clean_failure(told)) from None

    async def _probe(self, spec: RepoSpec, mark: bytes | None) -> Unchanged | Seen:
        scheme, authority, path = split_url(spec.url)
        if scheme not in ("https", "http"):
            return await self._ask_git(spec, await self._addresses(scheme, authority), mark)
        server = self._memory.server(scheme, authority)
        addresses = await self._resolver.resolve(server.origin.host, server.origin.port)
        outcome = await self._visit(self._visit_of(spec, server, path, addresses), mark)
        if outcome.__class__ is Unchanged:
            self._unchanged += 1
        return outcome

    def _visit_of(self, spec: RepoSpec, server: Server, path: str, addresses: tuple[str, ...]) -> Visit:
        authorization = self._credentials.authorization(spec)
        if authorization is not None and server.origin.scheme == "http":
            self._check_plain(server, addresses)
        return Visit(spec, server, path, addresses, authorization, self._memory.learnt(spec.url))

    def asker(self, spec: RepoSpec) -> Asker:
        """For a small change (short_fetch.py): one question over the connections of the polls. Nothing is
        answered where polls do not ask upstream directly either, and where git must find words for it."""

        async def ask(body: bytes) -> AsyncGenerator[bytes, None]:
            scheme, authority, path = split_url(spec.url)
            if scheme not in ("https", "http"):
                return
            server = self._memory.server(scheme, authority)
            try:
                addresses = await self._resolver.resolve(server.origin.host, server.origin.port)
            except FailureError:
                return
            visit = self._visit_of(spec, server, path, addresses)
            way = self._memory.way(visit, self._monotonic())
            if way is not Way.DIRECT or not visit.server.understands_direct:
                return
            try:
                response = await self._http.request(
                    visit.server.origin, visit.addresses, visit.ask(body), PACK_BYTES_MAX
                )
            except FailureError:
                return
            if answers.is_git(response):
                yield response.body
            elif (refusal := self._failed(visit, response)).failure.kind is FailureKind.RATE_LIMITED:
                raise refusal  # who is asked to stay away does not ask again by git

        return ask

    async def _visit(self, visit: Visit, mark: bytes | None) -> Unchanged | Seen:
        way = self._memory.way(visit, self._monotonic())
        if way is Way.DIRECT:
            outcome = await self._ask_directly(visit, mark)
            if outcome is not None:
                return outcome
        try:
            outcome = await self._ask_with_handshake(visit, mark) if way is not Way.GIT else None
            worked = Way.HANDSHAKE
            if outcome is None:
                spec = replace(visit.spec, url=visit.url) if visit.twin else visit.spec
                outcome = await self._ask_git(spec, visit.addresses, mark)
                worked = Way.GIT
        except FailureError as e:
            if way is not Way.DIRECT and e.failure.kind is FailureKind.UNKNOWN:
                self._memory.forget_way(visit)
            raise
        self._memory.remember(visit, worked, self._monotonic())
        return outcome

    # The three ways. None: not understood, the next way may be.

    async def _ask_directly(self, visit: Visit, mark: bytes | None) -> Unchanged | Seen | None:
        response = await self._send(visit, visit.post)
        if response.status == 200:
            raw = self._raw_mark(response.body)
            if raw == mark:
                return Unchanged(raw)
        if not answers.is_git(response):
            response = await self._try_spelling(visit, response, visit.post)
        if response.status != 200:
            known = visit.server.understands_direct
            if response.status in (_ODD if known else _ODD_FROM_STRANGERS):
                return None
            raise self._failed(visit, response)
        outcome = await self._read(visit, response, mark)
        if outcome is not None:
            visit.server.understands_direct = True
            self._memory.remember(visit, Way.DIRECT, self._monotonic())
        return outcome

    async def _ask_with_handshake(self, visit: Visit, mark: bytes | None) -> Unchanged | Seen | None:
        response = await self._send(visit, visit.get)
        if not answers.is_git(response):
            response = await self._try_spelling(visit, response, visit.get)
        if response.status != 200:
            if response.status in _ODD:
                return None
            raise self._failed(visit, response)
        content_type = response.header("content-type")
        page = answers.not_git(content_type, authenticated=visit.authenticated)
        if page is not None:
            raise self._answered(page, response)
        if lsrefs.is_dumb(content_type, response.body):
            raise self._answered(answers.dumb(), response)
        if not answers.is_git(response):  # git would read it as the dumb protocol: most texts list no refs
            raise self._answered(answers.foreign(response, self._credentials.redactor.clean), response)
        told = await self._parse(
            visit, response, lambda: lsrefs.parse_advertisement(response.body, self._prefixes)
        )
        if told is None:
            return None
        if isinstance(told, RefSnapshot):
            return self._by_digest(visit.url, told, response.received_bytes, mark)
        visit.object_format = told.object_format
        response = await self._send(visit, visit.post)
        if response.status != 200:
            if response.status in _ODD:
                return None
            raise self._failed(visit, response)
        return await self._read(visit, response, mark)

    async def _ask_git(
        self, spec: RepoSpec, addresses: tuple[str, ...], mark: bytes | None
    ) -> Unchanged | Seen:
        self._git_calls += 1
        snapshot = await self._git.ls_remote(spec, addresses)
        return self._by_digest(spec.url, snapshot, 0, mark)

    # Asking and reading

    async def _send(self, visit: Visit, request: Callable[[], bytes]) -> Response:
        response = await self._http.request(visit.server.origin, visit.addresses, request())
        visit.received_bytes += response.received_bytes
        return response

    async def _try_spelling(self, visit: Visit, response: Response, request: Callable[[], bytes]) -> Response:
        """The URL's other spelling, once, where the answer leaves room for it; a redirect there is obeyed."""
        if answers.is_redirect(response):
            target = answers.redirect_url(response, visit.url)
            if visit.redirected or target is None or not visit.is_other_spelling(target):
                return response
            visit.redirected = True
            visit.turn()
            return await self._send(visit, request)
        settled = visit.twin_tried or (response.status == 401 and visit.authenticated)
        if settled or response.status not in _SPELLING:
            return response
        visit.turn()
        other = await self._send(visit, request)
        if answers.is_git(other):
            return other
        visit.turn()
        return response

    async def _read(self, visit: Visit, response: Response, mark: bytes | None) -> Unchanged | Seen | None:
        raw = self._raw_mark(response.body)
        if raw == mark:
            return Unchanged(raw)
        if not answers.is_git(response):
            return None
        object_format = visit.object_format
        snapshot = await self._parse(
            visit, response, lambda: lsrefs.parse_answer(response.body, self._prefixes, object_format)
        )
        return None if snapshot is None else Seen(snapshot, raw, visit.received_bytes, visit.url)

    async def _parse(self, visit: Visit, response: Response, parse: Callable[[], T]) -> T | None:
        try:
            apart = len(response.body) > PARSE_APART_BYTES
            return await asyncio.to_thread(parse) if apart else parse()
        except lsrefs.NotUnderstood:
            return None
        except lsrefs.Lying as e:
            raise self._answered(malformed(str(e)), response) from None
        except lsrefs.Refused as e:
            failure = answers.refused(str(e), authenticated=visit.authenticated, url=visit.url)
            if failure is None:
                return None
            raise self._answered(failure, response) from None

    def _failed(self, visit: Visit, response: Response) -> FailureError:
        if answers.is_redirect(response):
            clean = self._credentials.redactor.clean
            failure = answers.moved(response, answers.redirect_url(response, visit.url), clean)
        else:
            failure = answers.failure_of(
                response, authenticated=visit.authenticated, now=self._utc(), url=visit.url
            )
        return self._answered(failure, response)

    def _answered(self, failure: Failure, response: Response) -> FailureError:
        return FailureError(answers.with_answer(failure, response, self._credentials.redactor.clean))

    def _raw_mark(self, body: bytes) -> bytes:
        state = self._hash.copy()
        state.update(body)
        return _RAW + state.digest()[:MARK_HASH_BYTES]

    def _by_digest(
        self, url: str, snapshot: RefSnapshot, received: int, mark: bytes | None
    ) -> Unchanged | Seen:
        if snapshot.head is not None and not snapshot.head.startswith("refs/heads/"):
            snapshot = RefSnapshot(
                snapshot.refs, None
            )  # as lsrefs has it: a mirror's HEAD follows branches only
        own = _DIGEST + bytes.fromhex(snapshot.digest())[:MARK_HASH_BYTES]
        return Unchanged(own) if own == mark else Seen(snapshot, own, received, url)

    # Where a request may go, and what with

    async def addresses(self, spec: RepoSpec) -> tuple[str, ...]:
        """The checked addresses of a repo's host: where git may connect to."""
        scheme, authority, _ = split_url(spec.url)
        return await self._addresses(scheme, authority)

    async def _addresses(self, scheme: str, authority: str) -> tuple[str, ...]:
        if not authority:
            return ()  # a local path
        host, port = split_authority(scheme, authority)
        return await self._resolver.resolve(host, port)

    def _check_plain(self, server: Server, addresses: tuple[str, ...]) -> None:
        """A secret crosses the open only on the way to the operator's own hosts."""
        host, port = server.origin.host, server.origin.port
        if self._allow.allows_host(host, port) or all(self._allow.allows_address(a, port) for a in addresses):
            return
        raise FailureError(
            Failure(
                FailureKind.AUTH_FAILED,
                "a credential is not sent over plain http",
                hint="use https, or name the host in upstreams.allow",
            )
        )
