"""Who is asking, and may they: bearer tokens with roles, and what is possible without one.

               token given?                                  (hooks of forges: by their signature, not here)
      yes ──────────┴────────── no
       │                         │  Host header must name this server (DNS rebinding)
known? ── no → 401, counted      │
       │  (many wrong → 429)  client is this machine, and no token is required?
       │                         │  (never: by an aggregator, by a proxy)
a node's → 403          yes ─────┴───── no
       │                 │               │
the token's role    "local", admin;   write → 401
                    a web page of      read → "public", or 401 by setting
                    another site → 403
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Protocol

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from evermirror.faces.api.buckets import Buckets, Rate
from evermirror.faces.api.client import client_address, is_forwarded
from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.faces.api.via import Via, via_of
from evermirror.model.access import Role, TokenRecord
from evermirror.model.client_address import client_network, is_loopback

_TOKEN_TTL_S = 3.0  # a revoked token must be refused within 5 s
_ANY_TTL_S = 1.0  # the first token created must count soon
_GUESSES_AT_ONCE = (
    8  # lookups for addresses that have used up their guesses: the rest of the store is others'
)
_GUESS_WAIT_S = 5.0  # in line for one of these, and for its answer
_MAX_CACHED = 1024  # tokens in use at once; more only cost a look into the store
_MAX_TOKEN_CHARS = 512  # ours have 50 to 60
_FAILED_ATTEMPTS = Rate(per_s=1 / 6, burst=10.0)  # wrong tokens per client: ten at once, then ten a minute

_RANKS = {Role.READER: 1, Role.SUBMITTER: 2, Role.OPERATOR: 3, Role.ADMIN: 4}
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_OPEN_PATHS = frozenset({"/healthz", "/readyz"})  # probes know neither our name nor a token
_HOOKS_BELOW = "/api/webhooks/"
_PLAIN_PATHS = frozenset({"/", "/docs", "/openapi.json"})  # hold no data of the catalog


class TokenLookup(Protocol):
    """What is asked of the store of tokens. ``find_token`` compares hashes and knows no revoked token;
    ``any_user_token`` counts no node's and no revoked one."""

    async def find_token(self, plain: str) -> TokenRecord | None: ...

    async def any_user_token(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """``listen_host`` is the address listened on; ``hosts`` are further names this server is known by."""

    tokens_required: Literal["auto"] | bool = "auto"
    public_reads: bool = True
    listen_host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks; ``rank`` orders the roles, 0 being the public."""

    name: str
    rank: int

    def may(self, role: Role) -> bool:
        return self.rank >= _RANKS[role]

    def need(self, role: Role) -> None:
        """Refuses a caller whose role is lower; the public is asked for a token."""
        if self.rank == PUBLIC.rank:
            raise _token_needed("This needs a token and none was given")
        if not self.may(role):
            raise ApiProblem(
                Kind.FORBIDDEN,
                f"This needs the role {role.value} or a higher one",
                hint=f"Use a token made by: evermirror token create --role {role.value}",
            )


LOCAL = Caller("local", _RANKS[Role.ADMIN])
PUBLIC = Caller("public", 0)


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a request decides about access."""

    method: str
    path: str
    client: str | None
    host: str
    authorization: str | None
    origin: str | None
    fetch_site: str | None
    via: Via | None = None
    forwarded: bool = False  # by a proxy, trusted or not
    again: bool = False  # it was let in before

    @property
    def git(self) -> bool:
        return self.path.startswith("/git/")

    @property
    def hook(self) -> bool:
        return is_hook(self.method, self.path)

    @property
    def write(self) -> bool:
        return self.method not in _READS and not self.git  # git's POSTs only read

    @property
    def on_this_machine(self) -> bool:
        # A proxy on this machine asks for others: whoever comes by one is not taken for its user.
        return self.via is None and not self.forwarded and is_loopback(self.client)

    @property
    def counted(self) -> bool:
        # An aggregator counts its clients' wrong tokens itself. Who was let in guesses nothing: that others
        # at his address do must neither end his stream nor hide that his token was revoked.
        return not self.again and (self.via is None or not self.via.own)


def is_hook(method: str, path: str) -> bool:
    """A forge's hook: it knows neither our name nor a token, and is signed."""
    return method == "POST" and path.startswith(_HOOKS_BELOW)


def asked_of(scope: Scope) -> Asked:
    """The deciding parts of an ASGI scope."""
    headers = Headers(scope=scope)
    return Asked(
        method=scope["method"],
        path=scope["path"],
        client=client_address(scope),
        host=headers.get("host", ""),
        authorization=headers.get("authorization"),
        origin=headers.get("origin"),
        fetch_site=headers.get("sec-fetch-site"),
        via=via_of(scope),
        forwarded=is_forwarded(headers),
    )


async def _yes() -> bool:
    return True


class Auth:
    """Decides for each request who asks, or raises the problem that refuses it."""

    def __init__(
        self,
        tokens: TokenLookup,
        settings: AuthSettings,
        *,
        any_private: Callable[[], Awaitable[bool]] = _yes,  # whether a private repo is known here
        on_used: Callable[[TokenRecord], None] | None = None,  # at most once per token and cache time
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = tokens
        self._settings = settings
        self._any_private = any_private
        self._on_used = on_used
        self._clock = clock
        self._failed = Buckets(_FAILED_ATTEMPTS, clock)
        self._guesses = asyncio.Semaphore(_GUESSES_AT_ONCE)
        self._known: OrderedDict[bytes, tuple[TokenRecord, float]] = OrderedDict()  # by hash; until when
        self._any: tuple[bool, float] = (False, float("-inf"))
        names = ("localhost", settings.listen_host, *settings.hosts)
        self._hosts = frozenset(_host_name(name) for name in names if name)

    async def identify(self, asked: Asked) -> Caller:
        """The caller, or an ApiProblem (401, 403, 429)."""
        if asked.path in _OPEN_PATHS or asked.hook:
            return PUBLIC
        if asked.authorization is not None:
            return await self._bearer(asked, _token_in(asked))
        if asked.via is None:
            self.check_host(asked)
        if asked.on_this_machine and not await self._required():
            if asked.write:
                _check_same_site(asked)
            return LOCAL
        plain = asked.path in _PLAIN_PATHS or asked.path.startswith("/static/")
        if asked.write or not (self._settings.public_reads or plain):
            raise _unauthorized(asked, "This needs a token and none was given")
        return PUBLIC

    async def identify_again(self, asked: Asked) -> Caller:
        """The same of one that was let in, and goes on for long: is it still good?"""
        return await self.identify(replace(asked, again=True))

    async def token_holder(self, asked: Asked) -> str | None:
        """A name for the token that ``asked`` shows, different for each; None where it shows none. Raises as
        ``identify`` does where the token is wrong."""
        if asked.authorization is None or asked.path in _OPEN_PATHS or asked.hook:
            return None
        token = _token_in(asked)
        await self._record(asked, token)
        return _digest(token).hex()

    async def _bearer(self, asked: Asked, token: str) -> Caller:
        record = await self._record(asked, token)
        if record.role not in _RANKS:
            raise token_of_node()
        return Caller(record.name, _RANKS[record.role])

    async def _record(self, asked: Asked, token: str) -> TokenRecord:
        """Of a token that is good. It is looked up first: wrong ones from the same address slow down wrong
        ones only, never the holder of a good one."""
        digest = _digest(token)
        record, until = self._known.get(digest, (None, 0.0))
        if record is not None and until >= self._clock():
            return record
        seen = self._known.pop(digest, None) is not None
        client = client_network(asked.client)
        wait_s = self._failed.wait_s(client) if asked.counted else 0.0
        guessed = wait_s > 0 and not seen
        record = await (self._find_guess(token) if guessed else self._tokens.find_token(token))
        if record is None:
            if asked.counted:
                self._failed.spend(client)
            if wait_s > 0:
                raise too_many(wait_s, "Too many wrong tokens from this address")
            raise _unauthorized(asked, "The token is not known here, or was revoked")
        self._known[digest] = (record, self._clock() + _TOKEN_TTL_S)
        if len(self._known) > _MAX_CACHED:
            self._known.popitem(last=False)
        if self._on_used is not None:
            self._on_used(record)
        return record

    async def _find_guess(self, token: str) -> TokenRecord | None:
        """As ``find_token``, for an address whose tokens were wrong lately; few of these at a time."""
        try:
            async with asyncio.timeout(_GUESS_WAIT_S), self._guesses:
                return await self._tokens.find_token(token)
        except TimeoutError:
            raise too_many(_GUESS_WAIT_S, "Too many wrong tokens from this address") from None

    async def _required(self) -> bool:
        setting = self._settings.tokens_required
        if setting != "auto":
            return setting
        # Nodes' tokens open no API: they must not lock the user of this machine out.
        return not self._listens_on_loopback() or await self._any_user_token()

    async def hides_repos(self) -> bool:
        """Whether who has no token may be asked for one: some repo is private, and some token opens it.

        A client is then told the same of a private repo as of an unknown one."""
        return await self._any_user_token() and await self._any_private()

    async def _any_user_token(self) -> bool:
        known, until = self._any
        if until < self._clock():
            known = await self._tokens.any_user_token()
            self._any = (known, self._clock() + _ANY_TTL_S)
        return known

    def _listens_on_loopback(self) -> bool:
        name = _host_name(self._settings.listen_host)
        return name == "localhost" or is_loopback(name)

    def check_host(self, asked: Asked) -> None:
        """Refuses a request, without a token, that meant another server."""
        # A browser led here by DNS rebinding sends the attacker's name. It can only come from this machine
        # or reach a loopback address; others see no more than what is public anyway.
        if not (is_loopback(asked.client) or self._listens_on_loopback() or self._settings.hosts):
            return
        name = _host_name(asked.host)
        if name not in self._hosts and not is_loopback(name):
            raise ApiProblem(
                Kind.WRONG_HOST,
                "The Host header names another server",
                hint="Use the address this server listens on, or a token",
            )


class Gate:
    """The first thing that looks at a request: puts its Caller into the scope, or refuses it."""

    def __init__(self, app: ASGIApp, auth: Auth) -> None:
        self._app = app
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = asked_of(scope)
        try:
            caller = await self._auth.identify(asked)
        except ApiProblem as problem:
            await problem.response()(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["caller"] = caller
        state["identify"] = partial(self._auth.identify_again, asked)  # for long answers
        await self._app(scope, receive, send)


def token_of_node() -> ApiProblem:
    """The 403 of a token that is good, but no person's."""
    return ApiProblem(
        Kind.FORBIDDEN,
        "This token is for a worker or an aggregator: it opens neither the API nor private repositories",
        hint="Use a token with the role admin, operator, submitter or reader",
    )


def too_many(wait_s: float, detail: str) -> ApiProblem:
    """A 429 that says how long to wait."""
    seconds = max(1, int(wait_s + 0.999))
    return ApiProblem(
        Kind.TOO_MANY, detail, hint=f"Try again in {seconds} s", headers={"Retry-After": str(seconds)}
    )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _token_in(asked: Asked) -> str:
    scheme, _, rest = (asked.authorization or "").partition(" ")
    rest = rest.strip()
    token = ""
    if scheme.lower() == "bearer":
        token = rest
    elif scheme.lower() == "basic" and asked.git:  # git itself can only send a user name and a password
        try:
            token = base64.b64decode(rest, validate=True).decode().partition(":")[2]
        except (binascii.Error, ValueError):
            token = ""
    if not token or len(token) > _MAX_TOKEN_CHARS or not token.isascii():
        raise _unauthorized(asked, "The Authorization header holds no token")
    return token.partition(".")[0]  # a node's token has the CA's fingerprint behind a dot


def _unauthorized(asked: Asked, detail: str) -> ApiProblem:
    return git_token_needed(detail) if asked.git else _token_needed(detail)


def git_token_needed(detail: str) -> ApiProblem:
    """The 401 that makes git send its credentials, or ask for them."""
    return ApiProblem(
        Kind.UNAUTHORIZED,
        detail,
        hint="Sign in with any user name and a token as the password; an operator makes one by: "
        "evermirror token create --role reader",
        headers={"WWW-Authenticate": 'Basic realm="evermirror: a token as the password", charset="UTF-8"'},
    )


def _token_needed(detail: str) -> ApiProblem:
    return ApiProblem(
        Kind.UNAUTHORIZED,
        detail,
        hint="Send the header Authorization: Bearer TOKEN; make one by: evermirror token create",
        headers={"WWW-Authenticate": 'Bearer realm="evermirror"'},
    )


def _check_same_site(asked: Asked) -> None:
    """Browsers say where a write comes from; without a token, no other site's page (nor a file) may write."""
    foreign = asked.fetch_site is not None and asked.fetch_site not in ("same-origin", "none")
    if asked.origin is not None:
        scheme, _, authority = asked.origin.partition("://")
        foreign = foreign or scheme not in ("http", "https") or authority.lower() != asked.host.lower()
    if foreign:
        raise ApiProblem(
            Kind.CROSS_SITE,
            "A web page of another site may not write here without a token",
            hint="Send a token in the Authorization header",
        )


def _host_name(host: str) -> str:
    """``Host`` without port, brackets, letter case and final dot."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return (host.rpartition(":")[0] if host.count(":") == 1 else host).rstrip(".")
