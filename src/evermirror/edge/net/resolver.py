"""Host names to addresses that were checked and pinned: everything connects to them and to nothing else.

A name is looked up once and *every* address must be public (or allowed): whoever answers with one internal
address among public ones is after the internal one. The poll and git both connect to what is returned here;
neither asks the name system again, so a name cannot point elsewhere between the check and the connection.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_address

from evermirror.model.address import AllowList, forbidden_reason
from evermirror.model.failure import Failure, FailureError, FailureKind

TTL_S = 60.0  # short enough to follow a host that moves, long enough that polls do not wait for names
FAILURE_TTL_S = 5.0  # a storm of polls to a host whose name fails asks once in this time
CACHE_MAX = 10_000  # names; far more hosts than a catalog has, yet only a few MB
LOOKUP_TIMEOUT_S = 15.0  # libc's own default is 2 tries of 5 s on up to 3 servers
THREADS_MAX = 8  # lookups at once; apart from the default pool, which slow name servers must not fill

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a name led to, kept until ``expires`` (monotonic): addresses, or why not."""

    expires: float
    addresses: tuple[str, ...] = ()
    failure: Failure | None = None


class SystemLookup:
    """The system's own resolver (``getaddrinfo``), in threads of its own."""

    def __init__(self, threads: int = THREADS_MAX) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="dns")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Addresses in the system's order of preference; raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._pool, _getaddrinfo, host, port)
        return tuple(dict.fromkeys(found))

    def close(self) -> None:
        """Lookups that still wait are dropped; running ones end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Resolver:
    """Resolves, checks, pins. One lookup at a time for a host, however many ask."""

    def __init__(
        self,
        allow: AllowList,
        *,
        lookup: Lookup | None = None,
        clock: Callable[[], float] = time.monotonic,
        ttl_s: float = TTL_S,
        failure_ttl_s: float = FAILURE_TTL_S,
        cache_max: int = CACHE_MAX,
        timeout_s: float = LOOKUP_TIMEOUT_S,
    ) -> None:
        self._allow = allow
        self._lookup: Lookup = lookup or SystemLookup()
        self._clock = clock
        self._ttl_s = ttl_s
        self._failure_ttl_s = failure_ttl_s
        self._cache_max = cache_max
        self._timeout_s = timeout_s
        self._answers: dict[tuple[str, int], _Answer] = {}  # oldest first
        self._running: dict[tuple[str, int], asyncio.Task[_Answer]] = {}

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        """Addresses to connect to, best first, at least one; raises FailureError.

        ``host`` is canonical (``RepoUrl.host``): a name, or an address without brackets."""
        which = (host, port)
        answer = self._answers.get(which)
        if answer is None or answer.expires <= self._clock():
            answer = await self._ask(which)
        if answer.failure is not None:
            raise FailureError(answer.failure)
        return answer.addresses

    def close(self) -> None:
        """Ends lookups under way; whoever waits for one is cancelled."""
        for task in self._running.values():
            task.cancel()
        if isinstance(self._lookup, SystemLookup):
            self._lookup.close()

    async def _ask(self, which: tuple[str, int]) -> _Answer:
        task = self._running.get(which)
        if task is None:
            task = asyncio.create_task(self._answer(*which), name=f"resolve {which[0]}")
            self._running[which] = task
            task.add_done_callback(lambda _: self._running.pop(which, None))
        # Shielded: one caller that gives up must not take the answer from the others.
        return await asyncio.shield(task)

    async def _answer(self, host: str, port: int) -> _Answer:
        try:
            addresses = await self._addresses(host, port)
            answer = _Answer(self._clock() + self._ttl_s, addresses)
        except FailureError as error:
            answer = _Answer(self._clock() + self._failure_ttl_s, failure=error.failure)
        self._answers.pop((host, port), None)
        while len(self._answers) >= self._cache_max:
            del self._answers[next(iter(self._answers))]
        self._answers[(host, port)] = answer
        return answer

    async def _addresses(self, host: str, port: int) -> tuple[str, ...]:
        try:
            ip_address(host)
            addresses: tuple[str, ...] = (host,)
        except ValueError:
            addresses = await self._look_up(host, port)
        if not self._allow.allows_host(host, port):
            for ip in addresses:
                self._check(host, ip, port)
        return addresses

    async def _look_up(self, host: str, port: int) -> tuple[str, ...]:
        try:
            async with asyncio.timeout(self._timeout_s):
                addresses = tuple(await self._lookup(host, port))
        except TimeoutError:
            raise _unresolved(host, f"no answer in {self._timeout_s:g} s") from None
        except OSError as error:
            raise _unresolved(host, error.strerror or str(error)) from error
        except UnicodeError as error:  # what Python raises for a label that is too long
            raise _unresolved(host, "not a valid host name") from error
        if not addresses:
            raise _unresolved(host, "no address")
        return addresses

    def _check(self, host: str, ip: str, port: int) -> None:
        reason = forbidden_reason(ip)
        if reason is None or self._allow.allows_address(ip, port):
            return
        # The address a name leads to is not told: anybody may read this, and would have a map of our network.
        what = f"upstream address {ip}" if host == ip else f"an address of {host}"
        raise FailureError(
            Failure(
                FailureKind.UNKNOWN,
                f"{what} is internal ({reason})",
                hint=f"If it is to be reached, the operator adds {host} or its network to upstreams.allow",
                context={"address": ip},
            )
        )


def _getaddrinfo(host: str, port: int) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _unresolved(host: str, why: str) -> FailureError:
    return FailureError(
        Failure(
            FailureKind.NETWORK_TIMEOUT,
            f"cannot resolve {host}: {why}",
            hint="Check the spelling of the host, and this machine's name servers",
        )
    )
