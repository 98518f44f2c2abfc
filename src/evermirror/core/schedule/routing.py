"""Where a repo goes on that has several addresses: reads weather and queues, moves nothing itself.

The rules are those of detours.py; the scheduler carries out what is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator

from evermirror.core.schedule.detours import Detour, Tried, gone_to, next_address, sends_elsewhere
from evermirror.core.schedule.hosts import HostState
from evermirror.core.schedule.queue import Phase, Tracked
from evermirror.core.schedule.registry import Registry
from evermirror.core.schedule.weather import Weather
from evermirror.model.failure import Failure
from evermirror.model.repo import Host


class Routing:
    """Decides for one repo, or for all that should leave a host."""

    __slots__ = ("_known", "_weather")

    def __init__(self, known: Registry, weather: Weather) -> None:
        self._known = known
        self._weather = weather

    def concerns(self, repo: Tracked, failure: Failure) -> bool:
        """Whether this failure is one that other addresses are there for."""
        if repo.gone or self._weather.network_down or not (repo.spec.fallbacks or repo.detour):
            return False
        return sends_elsewhere(failure, polling=repo.phase is Phase.POLLING)

    def onward(self, repo: Tracked, tried: tuple[Tried, ...], now: float) -> Detour | None:
        """Where an attempt goes on after ``tried``; None: there is no address left."""
        url = next_address(repo.spec, tuple(t.url for t in tried), lambda host: self._is_open(host, now))
        return None if url is None else gone_to(url, repo.spec, repo.detour, tried, now)

    def homeward(self, repo: Tracked, now: float) -> Detour | None:
        """A repo that is about to be asked at a fallback may first try its own URL again."""
        detour, spec = repo.detour, repo.spec
        if detour is None or detour.url == spec.url or detour.tried:
            return None
        due = now >= detour.home_due_at and self._is_open(spec.host, now)
        return gone_to(spec.url, spec, detour, (), now) if due or detour.url not in spec.fallbacks else None

    def leaving(self, host: HostState, now: float) -> Iterator[tuple[Tracked, Detour]]:
        """Who waits at a host in a storm, and where else to ask."""
        if host.weather.kind is None or self._weather.network_down:
            return
        for key in list(self._known.flexible.get(host.name, ())):
            repo = self._known.repos[key]
            if repo.phase is not Phase.WAITING or repo.quiet:
                continue
            tried = repo.detour.tried if repo.detour is not None else ()
            past = (repo.url, *(t.url for t in tried))
            url = next_address(repo.spec, past, lambda name: self._is_open(name, now))
            if url is not None:
                yield repo, gone_to(url, repo.spec, repo.detour, tried, now)

    def _is_open(self, name: Host, now: float) -> bool:
        """A host in a storm takes one more repo when nobody else is there to probe it with."""
        host = self._known.hosts.get(name)
        if host is None:
            return True
        weather = host.weather
        if weather.blocked_until > now:
            return False
        idle = not host.queue.waiting and not host.connections.polls
        return weather.kind is None or (idle and weather.probe_at <= now)
