"""Requests to a forge's API: paced, tried again where that is harmless, and every trouble as a ``Failure``.

| what                            | a read (GET)                   | a write                            |
|---------------------------------|--------------------------------|------------------------------------|
| not connected                   | again, ``attempts`` in all     | the same: nothing was sent         |
| 429, a rate limit's 403         | again after the wait asked for | the same: nothing was done         |
| 5xx, cut off, no answer in time | again                          | ``UnclearError``: the caller looks |
| anything else                   | told at once                   | told at once                       |

A wait longer than ``wait_max_s`` is not sat out: RATE_LIMITED with ``retry_after_s``.
"""

from __future__ import annotations

import asyncio
import math
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import urlencode, urlsplit

import httpx2

from evermirror.edge.forge.pinned import Answer, Pinned, TooLongError
from evermirror.edge.forge.words import SAID_MAX, WORDS_MAX, refusal
from evermirror.edge.git.credentials import Redactor
from evermirror.errors import InvalidUrl
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.printable import one_line

RETRY_AFTER_MAX_S = 86_400.0  # what a forge may ask for; more is taken for a mistake
COUNT_DIGITS_MAX = 18
_MOVED = (301, 302, 303, 307, 308)
_CONFLICTS = (400, 409, 422)


@dataclass(frozen=True, slots=True)
class Patience:
    """How a forge is asked. GitHub asks for a second between writes; all for few at once."""

    attempts: int = 5
    timeout_s: float = 30.0  # of one attempt
    wait_max_s: float = 60.0  # of one wait
    backoff_s: float = 1.0  # the first; each next one is twice as long
    gap_s: float = 0.1  # between requests to an instance
    write_gap_s: float = 0.1  # after a write
    unsaid_wait_s: float = 60.0  # for a rate limit that says nothing about its end
    answer_bytes_max: int = 8_000_000  # a page of 100 projects has about 1 MB


class UnclearError(FailureError):
    """A write that may have been done or not: the answer did not arrive, or was the server's trouble."""


class Pace:
    """The turns of requests to one instance; shared by all clients of it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._free_at = -math.inf

    async def turn(self, gap_s: float, wait_max_s: float) -> None:
        now = self._clock()
        begin = max(now, self._free_at)
        if begin - now > wait_max_s:
            raise FailureError(limited("the forge's rate limit is used up", begin - now))
        self._free_at = begin + gap_s
        if begin > now:
            await asyncio.sleep(begin - now)

    def hold(self, seconds: float) -> None:
        """Nothing is asked for so long."""
        self._free_at = max(self._free_at, self._clock() + seconds)


class ForgeHttp:
    """One instance's API, asked with one login."""

    def __init__(
        self,
        api_url: str,
        headers: Mapping[str, str],
        pinned: Pinned,
        redactor: Redactor,
        pace: Pace,
        patience: Patience,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._api_url = api_url
        self._headers = headers
        self._pinned = pinned
        self._redactor = redactor
        self._pace = pace
        self._patience = patience
        self._wall_clock = wall_clock
        self._client: httpx2.AsyncClient | None = None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def get(self, path: str, query: Mapping[str, str | int] | None = None) -> Answer:
        """``path`` is encoded already. Any answer but 200 is a ``FailureError``."""
        url = f"{self._api_url}{path}" + (f"?{urlencode(query)}" if query else "")
        return await self._ask("GET", url, None)

    async def write(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Answer:
        return await self._ask(method, f"{self._api_url}{path}", body)

    async def _ask(self, method: str, url: str, body: Mapping[str, object] | None) -> Answer:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._once(method, url, body)
            except FailureError as error:
                failure = error.failure
                wait_s = self._wait_before_next(failure, attempt)
                if isinstance(error, UnclearError) and method != "GET":
                    raise
                if wait_s is None:
                    raise
            await asyncio.sleep(wait_s)

    def _wait_before_next(self, failure: Failure, attempt: int) -> float | None:
        """None: it is not tried again."""
        if attempt >= self._patience.attempts:
            return None
        if failure.kind is FailureKind.RATE_LIMITED:
            wait_s = failure.retry_after_s or 0.0
            return None if wait_s > self._patience.wait_max_s else wait_s
        if failure.kind is not FailureKind.NETWORK_TIMEOUT:
            return None
        return min(self._patience.wait_max_s, self._patience.backoff_s * float(2 ** (attempt - 1)))

    async def _once(self, method: str, url: str, body: Mapping[str, object] | None) -> Answer:
        gap_s = self._patience.gap_s if method == "GET" else self._patience.write_gap_s
        await self._pace.turn(gap_s, self._patience.wait_max_s)
        what = f"{method} {urlsplit(url)._replace(query='').geturl()}"
        try:
            async with asyncio.timeout(self._patience.timeout_s):
                answer = await self._send(method, url, body)
        except TimeoutError:
            raise self._unclear(what, f"no answer within {self._patience.timeout_s:g} s") from None
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise self._not_connected(what, error) from error
        except (httpx2.TransportError, OSError) as error:
            raise self._unclear(what, f"the answer was cut off: {_words(error)}") from error
        except (TooLongError, httpx2.HTTPError, InvalidUrl, ValueError) as error:
            raise self._error(FailureKind.UNKNOWN, what, _words(error)) from error
        self._mind_limits(answer)
        if 200 <= answer.status < 300:
            return answer
        raise self._refused(what, answer)

    async def _send(self, method: str, url: str, body: Mapping[str, object] | None) -> Answer:
        if self._client is None:
            made = await self._pinned.client(self._patience.timeout_s)
            if self._client is None:
                self._client = made
            else:  # another request was faster
                await made.aclose()
        bytes_max = self._patience.answer_bytes_max
        return await self._pinned.send(self._client, method, url, self._headers, body, bytes_max)

    # Limits

    def _mind_limits(self, answer: Answer) -> None:
        """The last request of a window was answered: the next one waits for the next window."""
        if answer.status < 400 and _left(answer) == 0 and (wait_s := self._reset_s(answer)) is not None:
            self._pace.hold(wait_s)

    def _reset_s(self, answer: Answer) -> float | None:
        """Seconds until the window ends, as GitLab and GitHub tell it: by the clock."""
        told = answer.headers.get("ratelimit-reset") or answer.headers.get("x-ratelimit-reset") or ""
        try:
            seconds = float(told) - self._wall_clock()
        except ValueError:
            return None
        return seconds if 0 < seconds < RETRY_AFTER_MAX_S else None

    def _retry_after_s(self, answer: Answer) -> float:
        told = answer.headers.get("retry-after", "")
        try:
            seconds: float | None = float(told)
        except ValueError:
            seconds = self._until(told)
        if seconds is None or not 0 <= seconds < RETRY_AFTER_MAX_S:
            seconds = self._reset_s(answer)
        return self._patience.unsaid_wait_s if seconds is None else seconds

    def _until(self, date: str) -> float | None:
        try:
            return max(0.0, parsedate_to_datetime(date).timestamp() - self._wall_clock())
        except (ValueError, OverflowError):
            return None

    # Failures

    def _refused(self, what: str, answer: Answer) -> FailureError:
        status, said = answer.status, refusal(answer.data)
        if status == 429 or (status == 403 and is_limit(answer, said)):
            wait_s = self._retry_after_s(answer)
            self._pace.hold(wait_s)
            return FailureError(limited(self._clean(f"HTTP {status}: {said}"), wait_s, status))
        if status >= 500:
            return self._unclear(what, f"HTTP {status}: {said}", status)
        if status in _MOVED:
            said = f"redirected to {answer.headers.get('location', '?')[:SAID_MAX]}, which is not followed"
        kind, hint = _KINDS.get(status, (FailureKind.UNKNOWN, ""))
        return self._error(kind, what, f"HTTP {status}: {said}", hint, status)

    def _not_connected(self, what: str, error: Exception) -> FailureError:
        if isinstance(error.__cause__, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY" in str(error):
            hint = "upstreams.ca_file names the certificates that are trusted"
            return self._error(FailureKind.UNKNOWN, what, f"certificate refused: {_words(error)}", hint)
        return self._error(FailureKind.NETWORK_TIMEOUT, what, f"not connected: {_words(error)}")

    def _unclear(self, what: str, said: str, status: int = 0) -> UnclearError:
        return UnclearError(self._failure(FailureKind.NETWORK_TIMEOUT, what, said, "", status))

    def _error(
        self, kind: FailureKind, what: str, said: str, hint: str = "", status: int = 0
    ) -> FailureError:
        return FailureError(self._failure(kind, what, said, hint, status))

    def _failure(self, kind: FailureKind, what: str, said: str, hint: str, status: int) -> Failure:
        context = {"request": self._clean(what), **({"status": str(status)} if status else {})}
        return Failure(kind, self._clean(said), hint=hint, context=context)

    def _clean(self, words: str) -> str:
        return one_line(self._redactor.clean(words))[: 2 * WORDS_MAX]


_KINDS: Mapping[int, tuple[FailureKind, str]] = {
    401: (
        FailureKind.AUTH_FAILED,
        "The token is wrong, expired or revoked: put a new one into its credential",
    ),
    403: (
        FailureKind.PERMISSION_DENIED,
        "The token needs a scope (GitLab: read_api to look, api to change; Gitea: read or write:repository "
        "and organization; GitHub: repo), its owner a role (Maintainer, Owner) there",
    ),
    404: (FailureKind.NOT_FOUND, "Check the path, and that the token's owner may see it"),
    **dict.fromkeys(_CONFLICTS, (FailureKind.CONFLICT, "")),
}


def limited(said: str, wait_s: float, status: int = 0) -> Failure:
    hint = "It goes on by itself; ask less often, or have the forge's limit for this user raised"
    context = {"status": str(status)} if status else {}
    return Failure(FailureKind.RATE_LIMITED, said, hint=hint, retry_after_s=wait_s, context=context)


def status_of(error: FailureError) -> int:
    """Of the answer that it is about; 0: there was none."""
    return int(error.failure.context.get("status", "0"))


def was_moved(error: FailureError) -> bool:
    return status_of(error) in _MOVED


def links_on(answer: Answer) -> bool | None:
    """Is there a page after this one? None: the forge does not say."""
    link = answer.headers.get("link")
    if link is None:
        following = answer.headers.get("x-next-page")
        return None if following is None else bool(following)
    return 'rel="next"' in link or "rel=next" in link


def count_in(answer: Answer, *names: str) -> int | None:
    """None: the forge does not say, or says what no count is."""
    told = next((answer.headers[name] for name in names if name in answer.headers), "")
    return int(told) if len(told) <= COUNT_DIGITS_MAX and told.isascii() and told.isdigit() else None


def _left(answer: Answer) -> int | None:
    return count_in(answer, "ratelimit-remaining", "x-ratelimit-remaining")


def is_limit(answer: Answer, said: str) -> bool:
    """GitHub's 403 for its primary limit has nothing left, for its secondary ones says so."""
    return _left(answer) == 0 or "retry-after" in answer.headers or "rate limit" in said.lower()


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
