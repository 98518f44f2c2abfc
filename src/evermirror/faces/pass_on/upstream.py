"""The coordinator over HTTP: a request goes out exactly as it came, an answer comes back as a stream."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx2
import structlog

from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.faces.api.via import FOR, UNKNOWN, VIA
from evermirror.faces.pass_on.headers import AUTHORIZATION, Pairs, answered, value_of
from evermirror.model.client_address import is_address

log = structlog.get_logger(__name__)

CONNECT_S = 5.0
SILENCE_S = 330.0  # the longest wait for a task that the API allows is 300 s
IDLE_S = 3.0  # an idle connection is kept so long: the coordinator ends it after 5 s
CONNECTIONS_MAX = 1_000
IDLE_MAX = 100
_NOTHING_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_OWN_WORDS = (b"application/json", b"application/problem+json")  # what the API speaks, also of trouble


class CoordinatorAway(Exception):
    """It did not get the request, or (of a read) gave no answer; the text says why."""


class AnswerLost(CoordinatorAway):
    """It may have got the request, and done what it asks."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A client's request; ``target`` is path and query as they were sent."""

    method: str
    target: bytes
    headers: Pairs
    client: str | None

    @property
    def reads(self) -> bool:
        return self.method in ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True)
class Opened:
    """An answer whose body is still to be read; close it."""

    status: int
    headers: Pairs
    length: int | None  # of the body, where it was told
    body: AsyncIterator[bytes]
    close: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class HttpState:
    """Whether the coordinator answered last (None: never asked), since when (UTC), and why not."""

    answers: bool | None = None
    since: float = 0.0
    reason: str = ""


def http_client(ca_file: Path | None = None) -> httpx2.AsyncClient:
    """Adds nothing to requests, follows nothing, unpacks nothing."""
    client = httpx2.AsyncClient(
        trust_env=False,
        verify=ssl.create_default_context(cafile=ca_file),
        follow_redirects=False,
        timeout=httpx2.Timeout(SILENCE_S, connect=CONNECT_S, pool=CONNECT_S),
        limits=httpx2.Limits(
            max_connections=CONNECTIONS_MAX, max_keepalive_connections=IDLE_MAX, keepalive_expiry=IDLE_S
        ),
    )
    client.headers = httpx2.Headers({"Accept-Encoding": "identity"})
    return client


class Upstream:
    """``url`` and ``pass_`` are empty while they are not known. ``heard`` is told what the coordinator thinks
    of an Authorization header."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        url: Callable[[], str],
        pass_: Callable[[], str],
        utc: Callable[[], float] = time.time,
        heard: Callable[[str, bool], None] = lambda authorization, accepted: None,
    ) -> None:
        self._client = client
        self._url = url
        self._pass = pass_
        self._utc = utc
        self._heard = heard
        self.state = HttpState()

    def own_headers(self) -> dict[str, str]:
        """For what the aggregator asks for itself."""
        sealed = self._pass()
        return {VIA: sealed} if sealed else {}

    async def ask(
        self, asked: Asked, body: AsyncIterator[bytes] | None = None, within_s: float = SILENCE_S
    ) -> Opened:
        """Raises CoordinatorAway. A read whose connection broke is asked once more, nothing else is."""
        try:
            opened = await self._tried(asked, body, within_s, again=asked.reads and body is None)
        except CoordinatorAway as away:
            self._noted(False, str(away))
            raise
        self._noted(True)
        shown = value_of(asked.headers, AUTHORIZATION).decode("latin-1")
        if shown and (opened.status < 400 or opened.status == 401):
            self._heard(shown, opened.status < 400)
        return opened

    async def _tried(
        self, asked: Asked, body: AsyncIterator[bytes] | None, within_s: float, *, again: bool
    ) -> Opened:
        request = self._request(asked, body)
        try:
            async with asyncio.timeout(within_s):
                answer = await self._client.send(request, stream=True)
        except _NOTHING_SENT as error:
            raise CoordinatorAway(_said(error)) from None
        except httpx2.LocalProtocolError:
            raise ApiProblem(Kind.MALFORMED, "The request cannot be passed on as it is") from None
        except (httpx2.TransportError, TimeoutError) as error:
            if again and not isinstance(error, TimeoutError | httpx2.TimeoutException):
                return await self._tried(asked, body, within_s, again=False)
            raise AnswerLost(_said(error)) from None
        if VIA in answer.headers:
            await answer.aclose()
            raise CoordinatorAway("it does not accept this aggregator's pass")
        headers = answered(answer.headers.raw)
        if answer.status_code >= 500 and not value_of(headers, b"content-type").startswith(_OWN_WORDS):
            await answer.aclose()  # by a proxy in front of it, or a server that is being stopped
            raise AnswerLost(f"something in its place answered {answer.status_code}")
        length = answer.headers.get("content-length", "")
        return Opened(
            answer.status_code,
            headers,
            int(length) if length.isascii() and length.isdigit() else None,
            _body(answer),
            answer.aclose,
        )

    def _request(self, asked: Asked, body: AsyncIterator[bytes] | None) -> httpx2.Request:
        url, sealed = self._url(), self._pass()
        if not url:
            raise CoordinatorAway("its HTTP address is not known")
        if not sealed:
            raise CoordinatorAway("it has given this aggregator no pass yet, or the pass has ended")
        client = asked.client if asked.client and is_address(asked.client) else UNKNOWN
        headers = [*asked.headers, (VIA.encode(), sealed.encode()), (FOR.encode(), client.encode())]
        request = self._client.build_request(asked.method, url, headers=headers, content=body)
        # Set apart from the URL: that would be brought into another form, and lead somewhere else.
        request.extensions["target"] = asked.target
        return request

    def _noted(self, answers: bool, reason: str = "") -> None:
        if self.state.answers is not answers:
            self.state = HttpState(answers, self._utc(), reason)
            if not answers:
                log.warning("the coordinator does not answer HTTP requests", reason=reason)


async def _body(answer: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.aiter_raw():
            yield chunk
    except httpx2.TransportError as error:
        raise AnswerLost(_said(error)) from None


def _said(error: Exception) -> str:
    if isinstance(error, httpx2.ConnectError):
        return "it cannot be reached"
    if isinstance(error, TimeoutError | httpx2.TimeoutException):
        return "it does not answer in time"
    return "the connection to it broke"
