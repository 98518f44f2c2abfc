"""When to look at which repo: the one door to queues, limits, retries, weather and git slots.

    waiting --take--> polling --polled---------------------------------------> waiting
                         |------changed--> changed --take_sync--> syncing --synced--^
                         +------failed--------+---------failed------+---------------^

Rules
- A poll taken is finished by exactly one of `polled`, `changed`, `failed`; a sync taken by `synced` or
  `failed`, also after `fetched`. Until then the repo is nowhere else: it is never under way twice. Removal
  in between waits for that end.
- Of all hosts that may be asked now (hosts.py) the best one wins: requests, then deadlines, then the smallest
  priority. `polls_per_second` holds for all but requests, `polls_in_flight` for all.
- Hosts that did not answer at their last try, or were not tried yet, have at most half of `polls_in_flight`:
  what is dead holds up nothing that is alive (slots.py has the same for transfers).
- After a poll: priority = max(priority, the queue's clock) + stride; the first stride is cut (placement.py).
  A newcomer stands where the queue's front is.
- A repo that is remembered from before a restart stands where the rest of its usual gap puts it.
- A failure that is retried, and one that is no fault of the repo, keeps its turn: no stride is added.
- A quiet repo is polled when it is requested, never by itself: no turn, no deadline, no part in the budgets.
- The max gap is kept where budgets allow: at most half of them goes to deadlines.
- A repo with fallbacks may be asked elsewhere (detours.py); it then stands in that host's queue.
- `now` is UTC seconds. One that is a little earlier counts as the latest seen. A clock that was set back
  takes all times here back with it: nobody waits longer for it, and nobody is due for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from evermirror.core.schedule import report
from evermirror.core.schedule.board import Board
from evermirror.core.schedule.bucket import TokenBucket
from evermirror.core.schedule.hosts import HostState, Rank
from evermirror.core.schedule.intensity import learn
from evermirror.core.schedule.placement import Placement
from evermirror.core.schedule.policies import POLICIES, Policy, policy_named
from evermirror.core.schedule.queue import Phase, Tracked
from evermirror.core.schedule.registry import Registry
from evermirror.core.schedule.routing import Routing
from evermirror.core.schedule.setbacks import Setbacks
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.slots import SyncSlots
from evermirror.core.schedule.standing import Standing
from evermirror.core.schedule.views import Entry, Explanation, HostView, ScheduleWarning, Verdict
from evermirror.core.schedule.weather import Weather
from evermirror.core.set_back import SetBack
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.memory import RepoMemory
from evermirror.model.repo import Host, RepoKey

_WAITING, _POLLING, _CHANGED, _SYNCING = Phase.WAITING, Phase.POLLING, Phase.CHANGED, Phase.SYNCING


class Scheduler:
    """See the module's rules."""

    def __init__(self, settings: ScheduleSettings, policies: Mapping[str, Policy] = POLICIES) -> None:
        self._policies = policies
        self._board = Board()
        self._weather = Weather()
        self._known = Registry(self._board, self._weather)
        self._routing = Routing(self._known, self._weather)
        self._slots = SyncSlots(settings.slots)
        placement = Placement(settings, policy_named(settings.policy, policies))
        self._standing = Standing(settings, placement, self._board, self._known, self._slots)
        self._setbacks = Setbacks(self._known, self._weather, self._routing, self._standing)
        self._bucket = TokenBucket(settings.polls_per_second)
        self._polls = 0  # in flight
        self._silent_polls = 0  # those of them at hosts that were silent when they began
        self._set_back = SetBack()
        self._no_room: set[RepoKey] = set()  # failed for lack of it since there last was some

    # Which repos there are

    def add(self, entries: Iterable[Entry], now: float) -> None:
        """Schedule these from now on; one that is here already gets its new configuration."""
        now = self._at(now)
        placed: dict[RepoKey, tuple[Tracked, HostState]] = {}
        for entry in entries:
            repo = self._known.enrol(entry, self._standing.settings, self._standing.clock, now)
            host = self._known.host_of(repo)
            self._standing.placement.assign(repo, host)
            if repo.phase is _WAITING:
                placed[entry.spec.key] = repo, host
        moved = self._standing.bound_gaps()
        self._standing.placement.arrive(placed.values(), now)
        self._standing.settle({*moved, *(host.name for _, host in placed.values())}, now)

    def remove(self, keys: Iterable[RepoKey], now: float) -> None:
        """Schedule these no longer. What is under way ends as usual, and then is forgotten."""
        now = self._at(now)
        touched: set[Host] = set()
        for key in keys:
            repo = self._known.strike(key)
            if repo is None:
                continue
            touched.add(repo.host)
            self._known.host_of(repo).queue.leave(repo)
            self._no_room.discard(key)
            if repo.phase is _CHANGED:
                self._slots.drop(key)
                repo.phase = _WAITING
            if repo.phase is _WAITING:
                self._standing.forget(repo)
            else:
                repo.gone, repo.again = True, False
                self._known.leaving[key] = repo
        self._standing.settle({*self._standing.bound_gaps(), *touched}, now)

    def request(self, key: RepoKey, now: float, *, rank: int | None = None, again: bool = True) -> bool:
        """Somebody wants this repo looked at; one under way is looked at again after. False: not ours.
        Not ``again``: what is under way is enough, and somebody waits for it.

        ``rank`` is the class of the request where it is not the repo's: it counts when slots are scarce."""
        now = self._at(now)
        repo = self._known.repos.get(key)
        if repo is None:
            return False
        if rank is not None:
            repo.rank_asked = rank if repo.rank_asked is None else min(rank, repo.rank_asked)
        if repo.phase is _WAITING:
            host = self._known.host_of(repo)
            self._standing.ask(repo, host)
            self._board.settle(host, now)
        else:
            repo.again = repo.again or again
            self._slots.hasten(key)
        return True

    def reconfigure(self, settings: ScheduleSettings, now: float) -> None:
        """New settings hold from now on; what is under way goes on."""
        now = self._at(now)
        policy = policy_named(settings.policy, self._policies)
        old, self._standing.settings = self._standing.settings, settings
        self._slots.slots = settings.slots
        self._bucket.set_rate(settings.polls_per_second, now=now)
        for host in self._known.hosts.values():
            host.configure(settings, now)
        self._known.bound_gaps(settings)
        if settings.places_as(old):
            self._standing.placement.configure(settings)
        else:
            self._standing.placement = Placement(settings, policy)
            self._standing.placement.rebuild(self._known.emptied(self._standing.clock), now)
        self._standing.settle(self._known.hosts, now)

    def allow_clones(self, allowed: bool) -> None:
        """The disk guard's switch: while it is off first clones wait."""
        self._slots.clones_allowed = allowed

    def room_again(self, now: float) -> None:
        """The disk has room again: who failed for lack of it is due at once."""
        lacked, self._no_room = self._no_room, set()
        for repo in (self._known.repos[key] for key in lacked if key in self._known.repos):
            self._standing.at_once(repo, self._at(now))

    # Polls

    def take(self, now: float) -> RepoKey | None:
        """The repo to poll now, if any; its poll is in flight from here on."""
        now = self._at(now)
        while self._polls < self._standing.settings.polls_in_flight:
            self._board.advance(now)
            best = self._board.best(silent=self._may_ask_silent)
            if best is None:
                return None
            rank, host = best
            if rank is not Rank.REQUEST and self._bucket.ready_at() > now:
                return None
            repo = self._next_of(host, rank)
            if (homeward := self._routing.homeward(repo, now)) is not None:
                self._standing.send(repo, homeward, now)
                continue
            self._bucket.take(now)
            host.bucket.take(now)
            repo.phase = _POLLING
            repo.slow_lane = host.weather.silent
            self._polls += 1
            self._silent_polls += repo.slow_lane
            host.connections.polls += 1
            self._board.settle(host, now)
            return repo.spec.key
        return None

    @property
    def _may_ask_silent(self) -> bool:
        return self._silent_polls < max(1, self._standing.settings.polls_in_flight // 2)

    def _next_of(self, host: HostState, rank: Rank) -> Tracked:
        """The first of that rank in the host's queue, which it leaves."""
        if rank is Rank.STRIDE:
            repo = host.queue.take_front()
            stood = host.offset + repo.priority
            if stood < self._standing.clock:
                host.offset += self._standing.clock - stood
            else:
                self._standing.clock = stood
        elif rank is Rank.DUE:
            repo = host.queue.take_due(host.max_gap_s)
        else:
            repo = host.queue.take_requested()
            repo.urgent = True
        return repo

    def next_wake(self, now: float) -> float | None:
        """When ``take`` or ``take_sync`` can next succeed by time alone; None: only after another event."""
        now = self._at(now)
        at = self._next_sync(now)
        if self._polls < self._standing.settings.polls_in_flight:
            at = min(at, self._next_poll(now))
        return at if at < math.inf else None

    def polled(self, key: RepoKey, now: float) -> None:
        """Upstream was seen, and nothing had changed."""
        now = self._at(now)
        repo, host = self._end(key, _POLLING)
        self._succeed(repo, host, now)
        self._standing.requeue(repo, host, now)

    def changed(self, key: RepoKey, now: float, *, first: bool = False) -> None:
        """Upstream's refs moved: it waits for a git slot; ``first`` where there is no mirror of it yet."""
        now = self._at(now)
        repo, host = self._end(key, _POLLING)
        repo.last_poll_at = repo.since = now
        self._host_succeeded(host, now)
        if repo.gone:
            self._standing.requeue(repo, host, now)
            return
        repo.phase = _CHANGED
        self._slots.want(
            key,
            host.name,
            host.connections,
            rank=repo.spec.priority.rank if repo.rank_asked is None else repo.rank_asked,
            first=first,
            urgent=repo.urgent or repo.again,
        )
        self._board.settle(host, now)

    # Syncs

    def take_sync(self, now: float) -> RepoKey | None:
        """The changed repo to sync now, if any; it holds a git slot from here on."""
        now = self._at(now)
        key = self._slots.take(lambda host: self._may_transfer(self._known.hosts[host], now))
        if key is not None:
            self._known.repos[key].phase = _SYNCING
        self._standing.settle_touched(now)
        return key

    def fetched(self, key: RepoKey, now: float, push_times: Iterable[float] = ()) -> None:
        """The mirror equals upstream again, which is needed no longer; the git slot is, until ``synced``."""
        now = self._at(now)
        repo = self._known.under_way(key, (_SYNCING,))
        host = self._known.host_of(repo)
        self._slots.leave_host(key)
        host.connections.stuck = False
        repo.activity = learn(repo.activity, push_times, after=repo.seen_at, now=now)
        self._succeed(repo, host, now)
        self._board.settle(host, now)

    def synced(self, key: RepoKey, now: float, push_times: Iterable[float] = ()) -> None:
        """The mirror equals upstream again; ``push_times`` are the commit times it brought."""
        self.fetched(key, now, push_times)
        repo, host = self._end(key, _SYNCING)
        self._standing.requeue(repo, host, self._at(now))

    # What was learnt

    def learned(self, key: RepoKey, push_times: Iterable[float], now: float) -> None:
        """Pushes since the repo was last seen became known; its next place takes them into account."""
        now = self._at(now)
        repo = self._known.repos.get(key)
        if repo is None:
            return
        repo.activity = learn(repo.activity, push_times, after=repo.seen_at, now=now)
        if repo.phase is _WAITING:
            host = self._known.host_of(repo)
            self._standing.placement.learnt(repo, host, now)
            self._board.settle(host, now)

    def failed(self, key: RepoKey, failure: Failure, now: float, *, jitter: float = 0.0) -> Verdict:
        """The poll or sync did not succeed; ``jitter`` in [-1, 1] spreads retries."""
        now = self._at(now)
        transferred = self._known.under_way(key, (_POLLING, _CHANGED, _SYNCING)).phase is _SYNCING
        repo, host = self._end(key, _POLLING, _CHANGED, _SYNCING)
        if transferred and failure.kind is FailureKind.NETWORK_TIMEOUT:
            host.connections.stuck = True
        if failure.kind is FailureKind.DISK_FULL:
            self._no_room.add(key)
        verdict = self._setbacks.failed(repo, host, failure, now, jitter)
        if not verdict.diverted and key in self._known.repos:
            verdict = replace(verdict, next_attempt_at=self.explain(key, now).next_poll_at)
        return verdict

    def abandoned(self, key: RepoKey, now: float) -> None:
        """The poll or sync of a removed repo was broken off by us: nobody's failure, and it is forgotten.

        Nothing happens where it is forgotten already."""
        repo = self._known.leaving.get(key)
        if repo is not None:
            _, host = self._end(key, _POLLING, _SYNCING)
            self._standing.requeue(repo, host, self._at(now))

    def forgive(self, key: RepoKey, now: float) -> bool:
        """A person reset this repo's failures: it is due at once. False if it is not ours."""
        now = self._at(now)
        repo = self._known.repos.get(key)
        if repo is None:
            return False
        repo.failures, repo.failure_kind = 0, None
        self._standing.at_once(repo, now)
        return True

    # Readers

    def __len__(self) -> int:
        return len(self._known.repos)

    def __contains__(self, key: RepoKey) -> bool:
        return key in self._known.repos

    @property
    def polls_in_flight(self) -> int:
        return self._polls

    @property
    def syncs_waiting(self) -> int:
        return self._slots.waiting

    @property
    def syncs_running(self) -> int:
        return self._slots.running

    def patience_s(self, key: RepoKey) -> float | None:
        """How long the poll under way is to wait for an answer; None: as long as the settings say."""
        return self._known.host_of(self._known.under_way(key, (_POLLING,))).weather.patience_s

    def is_cloning(self, key: RepoKey, now: float) -> bool:
        """It is being fetched, or waits for nothing but a git slot: its host would let it."""
        repo = self._known.repos.get(key)
        if repo is None or repo.phase is not _CHANGED:
            return repo is not None and repo.phase is _SYNCING
        host = self._known.host_of(repo)
        able = host.connections.may_transfer and not host.connections.stuck
        return able and self._may_transfer(host, self._at(now))

    def can_begin(self, key: RepoKey, now: float) -> bool:
        """Whether the repo is under way, or neither it nor its host has to wait: at most for a budget."""
        repo = self._known.repos.get(key)
        if repo is None or repo.phase is not _WAITING:
            return repo is not None
        now, weather = self._at(now), self._known.host_of(repo).weather
        may_ask = weather.blocked_until <= now and weather.kind is None
        return may_ask and not repo.quiet and repo.not_before <= now

    def memory(self, key: RepoKey) -> RepoMemory:
        """What to write down of the repo; digest and mark are not kept here."""
        return (self._known.repos.get(key) or self._known.leaving[key]).memory()

    def address(self, key: RepoKey) -> str:
        """The URL at which the repo is asked now: its own, or a fallback."""
        return (self._known.repos.get(key) or self._known.leaving[key]).url

    def explain(self, key: RepoKey, now: float) -> Explanation:
        """When the repo is looked at next, and why then."""
        repo = self._known.repos[key]
        host, shares = self._known.host_of(repo), self._standing.placement.shares
        return report.explain(repo, host, shares, self._standing.settings, self._bucket, self._at(now))

    def hosts(self, now: float) -> tuple[HostView, ...]:
        """Every host as it stands."""
        return tuple(report.view(host, self._at(now)) for host in self._known.hosts.values())

    def warnings(self, now: float) -> tuple[ScheduleWarning, ...]:
        """What an operator should know."""
        return report.warnings(
            self._known.hosts.values(),
            self._known.repos.values(),
            self._standing.settings,
            self._weather.network_down,
            self._at(now),
        )

    # Inside

    def _at(self, now: float) -> float:
        if step_s := self._set_back.by_s(now):
            self._bucket.set_back(step_s)
            self._weather.set_back(step_s)
            self._known.set_back(step_s, now)
            self._standing.settle(self._known.hosts, now)
        return self._set_back.latest

    def _end(self, key: RepoKey, *phases: Phase) -> tuple[Tracked, HostState]:
        """Give back what a repo under way had taken."""
        repo = self._known.under_way(key, phases)
        host = self._known.host_of(repo)
        if repo.phase is _POLLING:
            self._polls -= 1
            self._silent_polls -= repo.slow_lane
            host.connections.polls -= 1
        elif repo.phase is _CHANGED:
            self._slots.drop(key)
        else:
            self._slots.done(key)
        return repo, host

    def _succeed(self, repo: Tracked, host: HostState, now: float) -> None:
        repo.last_poll_at = repo.since = repo.seen_at = now
        repo.not_before = 0.0
        if repo.failures:
            repo.failures, repo.failure_kind = 0, None
        if repo.detour is not None:
            at_home = repo.detour.url == repo.spec.url
            repo.detour = None if at_home else replace(repo.detour, tried=())
        self._host_succeeded(host, now)

    def _host_succeeded(self, host: HostState, now: float) -> None:
        if others := self._weather.succeeded(host.name, now):
            self._standing.settle(others, now)

    def _may_transfer(self, host: HostState, now: float) -> bool:
        """In a storm transfers wait for the probe that ends it, if there is a repo left to probe with."""
        weather = host.weather
        return weather.blocked_until <= now and (weather.kind is None or not host.queue.waiting)

    def _next_sync(self, now: float) -> float:
        at = math.inf
        for name in self._slots.held_up():
            host = self._known.hosts[name]
            if self._may_transfer(host, max(now, host.weather.blocked_until)):
                at = min(at, max(now, host.weather.blocked_until))
        return at

    def _next_poll(self, now: float) -> float:
        self._board.advance(now)
        silent = self._may_ask_silent
        best = self._board.best(silent=silent)
        token_at = self._bucket.ready_at()
        if best is None:
            at = self._board.next_alarm(urgent=False, silent=silent)
        else:
            at = now
            if best[0] is Rank.REQUEST:
                return now
        return min(self._board.next_alarm(urgent=True, silent=silent), max(at, token_at, now))
