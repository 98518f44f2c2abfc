"""Which repos and hosts the schedule knows, and what the max gap comes to on each host.

A repo that is removed while it is under way stays in `leaving` until that ends; one that comes back in
between is the same repo. A host lives as long as it has repos, those that are leaving included, and those
that are asked elsewhere for the time being.
"""

from __future__ import annotations

from collections.abc import Iterable

from evermirror.core.schedule.board import Board
from evermirror.core.schedule.detours import Detour
from evermirror.core.schedule.hosts import HostState
from evermirror.core.schedule.queue import Phase, Tracked
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.views import Entry
from evermirror.core.schedule.weather import Weather
from evermirror.model.repo import Host, RepoKey

# Deadlines may claim this part of a budget; the rest goes by stride, so that busy repos are not forgotten.
_DEADLINE_SHARE = 0.5


class Registry:
    """Keeps the books; places and settles nothing."""

    __slots__ = ("_board", "_weather", "flexible", "hosts", "leaving", "quiet", "repos")

    def __init__(self, board: Board, weather: Weather) -> None:
        self._board = board
        self._weather = weather
        self.repos: dict[RepoKey, Tracked] = {}
        self.leaving: dict[RepoKey, Tracked] = {}
        self.hosts: dict[Host, HostState] = {}
        self.quiet = 0  # of ``repos``; budgets are not for them
        # Those of ``repos`` that have another address, by the host that they are asked at.
        self.flexible: dict[Host, dict[RepoKey, None]] = {}

    def host_of(self, repo: Tracked) -> HostState:
        return self.hosts[repo.host]

    def under_way(self, key: RepoKey, phases: tuple[Phase, ...]) -> Tracked:
        """The repo of that name, which is in one of these phases; anything else is the caller's error."""
        repo = self.repos.get(key) or self.leaving.get(key)
        if repo is None or repo.phase not in phases:
            raise ValueError(f"{key} is {'unknown' if repo is None else repo.phase.value}")
        return repo

    def enrol(self, entry: Entry, settings: ScheduleSettings, clock: float, now: float) -> Tracked:
        """The repo of this entry, new or with its new configuration; it stands in no queue."""
        spec = entry.spec
        repo = self.leaving.pop(spec.key, None) or self.repos.get(spec.key)
        if repo is None:
            repo = Tracked(spec, entry.memory, now)
            host = self._host(spec.host, settings, clock)
            host.repos += 1
        else:
            host = self.host_of(repo)
            if spec.key in self.repos:
                self.quiet -= repo.quiet
            host.queue.leave(repo)
            repo.spec, repo.weight, repo.gone = spec, spec.priority.weight, False
        host.quiet += entry.quiet - repo.quiet
        self.quiet += entry.quiet
        repo.quiet = entry.quiet
        self.repos[spec.key] = repo
        self._note(repo)
        return repo

    def _host(self, name: Host, settings: ScheduleSettings, clock: float) -> HostState:
        host = self.hosts.get(name)
        if host is None:
            host = self.hosts[name] = HostState(name, settings, self._weather.of(name), clock)
            self._board.put()
        return host

    def move(self, repo: Tracked, detour: Detour | None, settings: ScheduleSettings, clock: float) -> Tracked:
        """The repo is asked elsewhere from now on; the one returned takes its place, and stands nowhere."""
        old, home = self.host_of(repo), self.hosts[repo.spec.host]
        self._unnote(repo)
        old.queue.leave(repo)
        home.away -= old is not home
        moved = self.repos[repo.spec.key] = repo.gone_to(detour)
        host = self._host(moved.host, settings, clock)
        home.away += host is not home
        for side, sign in ((old, -1), (host, 1)):
            side.repos += sign
            side.quiet += sign * repo.quiet
        self._note(moved)
        self._drop_if_empty(old)
        return moved

    def _note(self, repo: Tracked) -> None:
        if repo.spec.fallbacks or repo.detour is not None:
            self.flexible.setdefault(repo.host, {})[repo.spec.key] = None
        else:
            self._unnote(repo)

    def _unnote(self, repo: Tracked) -> None:
        there = self.flexible.get(repo.host)
        if there is not None:
            there.pop(repo.spec.key, None)
            if not there:
                del self.flexible[repo.host]

    def strike(self, key: RepoKey) -> Tracked | None:
        """The repo of that name, which is not scheduled from now on, and is not forgotten yet."""
        repo = self.repos.pop(key, None)
        if repo is not None:
            self.quiet -= repo.quiet
            self._unnote(repo)
        return repo

    def forget(self, repo: Tracked) -> None:
        """The repo is neither scheduled nor under way any more."""
        self.leaving.pop(repo.spec.key, None)
        host, home = self.host_of(repo), self.hosts[repo.spec.host]
        host.repos -= 1
        host.quiet -= repo.quiet
        self._drop_if_empty(host)
        if host is not home:
            home.away -= 1
            self._drop_if_empty(home)

    def _drop_if_empty(self, host: HostState) -> None:
        if not host.repos and not host.away:
            del self.hosts[host.name]
            self._weather.forget(host.name)
            self._board.drop(host)

    def emptied(self, clock: float) -> list[tuple[Tracked, HostState]]:
        """Empty every queue; returns all repos, which stand nowhere now and have no stride."""
        for host in self.hosts.values():
            host.queue = host.queue.emptied()
            host.offset = clock
            host.rate_sum = 0.0
        everybody = [*self.repos.values(), *self.leaving.values()]
        for repo in everybody:
            # Also of one under way: its priority is a time of the old queue, and the new one starts at zero.
            repo.priority = repo.stride = 0.0
            repo.ticket, repo.in_oldest, repo.fresh = 0, False, True
        return [(repo, self.host_of(repo)) for repo in everybody]

    def set_back(self, step_s: float, now: float) -> None:
        """The clock was, by so much; whoever calls settles all hosts."""
        for repo in (*self.repos.values(), *self.leaving.values()):
            repo.set_back(step_s, now)
        for host in self.hosts.values():
            host.bucket.set_back(step_s)
            host.queue.set_back(step_s)

    def bound_gaps(self, settings: ScheduleSettings) -> Iterable[Host]:
        """Set what the max gap comes to within the budgets; returns the hosts for which it moved."""
        moved = []
        for host in self.hosts.values():
            gap = settings.max_gap_s
            if gap is not None and host.rate is not None:
                gap = max(gap, (host.repos - host.quiet) / (host.rate * _DEADLINE_SHARE))
            if gap is not None and settings.polls_per_second is not None:
                gap = max(gap, (len(self.repos) - self.quiet) / (settings.polls_per_second * _DEADLINE_SHARE))
            if gap != host.max_gap_s:
                host.max_gap_s = gap
                moved.append(host.name)
        return moved
