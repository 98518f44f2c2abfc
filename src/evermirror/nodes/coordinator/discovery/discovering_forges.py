"""Forges for discovery: opened with a named credential, and asked with patience.

Weather and short waits are the client's own business (edge/forge/http.py). A rate limit that lasts longer is
waited for here, where people can see it, for a few minutes in all: whoever waits keeps others from running.
What is left is a ``FailureError``, and the run goes on from there another time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from evermirror.edge.forge.api import ForgeApi
from evermirror.edge.git.credentials import Credential, Credentials
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.forge import Forge
from evermirror.model.repo import Host, RepoKey, RepoSpec

LIMIT_WAIT_S = 60.0  # where a forge does not say how long its limit lasts
LIMIT_WAIT_MAX_S = 90.0  # a longer wait ends the run, which goes on later
LIMIT_WAITS_S = 300.0  # in all; what waits longer ends the run, too
LIMIT_WAITS_MAX = 20  # for one question
OUR_MISTAKE = "this is a mistake of evermirror's; the log has more"

T = TypeVar("T")


class ClosableForge(ForgeApi, Protocol):
    async def close(self) -> None: ...


OpenForge = Callable[[Forge, str, Credential | None], ClosableForge]


class Forges:
    """Opens them; ``make`` knows how."""

    def __init__(self, make: OpenForge, credentials: Credentials) -> None:
        self._make = make
        self._credentials = credentials

    def credential(self, name: str | None, base_url: str) -> Credential | None:
        """The one of that name, if it may be sent there; raises FailureError."""
        host = Host(urlsplit(base_url).netloc)
        return self._credentials.find(RepoSpec(RepoKey(host), base_url, host, credential=name))

    @contextlib.asynccontextmanager
    async def opened(self, forge: Forge, base_url: str, credential: str | None) -> AsyncIterator[ForgeApi]:
        api = self._make(forge, base_url, self.credential(credential, base_url))
        try:
            yield api
        finally:
            await api.close()


class Patience:
    """That of one run: asks, and asks again. ``waiting`` is told how long it waits for a limit, and 0 when
    that is over."""

    def __init__(
        self,
        waiting: Callable[[float], None] = lambda seconds: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        in_all_s: float = LIMIT_WAITS_S,
        each_s: float = LIMIT_WAIT_MAX_S,
    ) -> None:
        self._waiting = waiting
        self._each_s = each_s
        self._in_all_s = in_all_s
        self._sleep = sleep
        self._waited_s = 0.0

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        for _ in range(LIMIT_WAITS_MAX):
            try:
                return await question()
            except FailureError as error:
                failure = error.failure
                wait_s = LIMIT_WAIT_S if failure.retry_after_s is None else failure.retry_after_s
                too_long = wait_s > self._each_s or self._waited_s + wait_s > self._in_all_s
                if failure.kind is not FailureKind.RATE_LIMITED or too_long:
                    raise
            await self._wait(wait_s)
        return await question()

    async def _wait(self, seconds: float) -> None:
        self._waited_s += seconds
        self._waiting(seconds)
        try:
            await self._sleep(seconds)
        finally:
            self._waiting(0.0)


def our_mistake() -> Failure:
    """What nobody foresaw, told as weather: it is tried again, and others go on."""
    return Failure(FailureKind.UNKNOWN, OUR_MISTAKE, hint="Report it, with the lines of the log")
