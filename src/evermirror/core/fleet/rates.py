"""The fleet's rates, given out to its workers: which hosts need a split, who is told what, and when.

   counts (polled.py) ──▶ a budget for each busy host, and one for all (shares.py) ──▶ SetLimits

Rules
- A host is *busy* when its repos, each polled once in ``min_gap_s``, could ask for more than half of the
  host's rate. Only busy hosts are split: of the others nobody can ask for too much, so the message stays
  small. Half, as a repo may have two pollers for a while: the old holder and the new one. It is busy no more
  below a quarter.
- At most HOSTS_MAX hosts are split, the largest. If there are more, every worker gets an even part of the
  rate for each host that is not named.
- A host that becomes busy is told before any command about its repos that goes out with the same decision.
- A worker that was told nothing about a busy host uses no more of it than its repos can ask for.
- Shares are looked at on ticks, after a count that is at most one in COUNT_EVERY_S; of SPLIT_MAX workers on
  each. A worker is told again once it has taken in what it was told last.
- A host all of whose repos are for trusted workers only is shared by these and named to nobody else.
- After a restart nobody knows what the last process gave. Each worker brings its own; those that are not back
  yet hold the rest of the rate until they are, or are down.
- What a worker claims counts up to what this process ever told it, or up to the whole rate where it told
  nothing yet: an honest one really uses that, and less would let the sum exceed the rate after a restart.
- A worker that is alive and has not obeyed for HEED_S counts with what it was told, or with its aim: others
  do not starve because one says that it uses everything. A new session or silence gives it no new time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet import polled
from evermirror.core.fleet.crew import Crew, Member
from evermirror.core.fleet.decisions import SetLimits
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.hostnames import HostNames
from evermirror.core.fleet.settings import FleetSettings
from evermirror.core.fleet.shares import FULL, RATIO, Budget
from evermirror.core.fleet.table import FleetTable
from evermirror.model.messages import ApplySettings
from evermirror.model.repo import Host
from evermirror.model.worker import Duty, Liveness, WorkerId

BUSY = 0.5  # of a host's rate
BUSY_NO_MORE = 0.25
HOSTS_MAX = 256  # named in one message, of some 10 kB then
SPLIT_MAX = 200  # workers told in one tick
COUNT_EVERY_S = 5.0
HEED_S = 600.0  # honest workers obey within seconds; at the start of a large fleet within minutes
HEED_EVERY_S = 30.0  # between two looks at who has not

DOWN = Liveness.DOWN.value  # as histories have it

ALL = -1  # in place of a host's number: the rate over all hosts

Mask = NDArray[np.bool_]


class FleetRates:
    """Told by the machine what happens; sends through the draft."""

    def __init__(self, settings: FleetSettings, table: FleetTable, crew: Crew) -> None:
        self._host_rate = settings.host_rate
        self._whole_rate = settings.polls_per_second
        self._min_gap_s = settings.min_gap_s
        self.on = self._host_rate is not None or self._whole_rate is not None
        self._table = table
        self._crew = crew
        self._names = HostNames(table)
        self._budgets: dict[int, Budget] = {}  # by number of the host, or ALL
        self._public = np.zeros(0, np.bool_)  # by number of the host: others than trusted workers may know it
        self._crowded = False  # more hosts are busy than can be named
        self._unheard: set[WorkerId] = set()  # since a restart
        self._lost: set[WorkerId] = set()  # went down, and were told nothing since
        self._heedless: set[WorkerId] = set()  # went down, and have obeyed nothing since
        self._flying: dict[WorkerId, int] = {}  # number of the command that was not acknowledged yet
        self._told: dict[WorkerId, ApplySettings] = {}
        self._told_here: set[WorkerId] = set()  # by this process
        self._heed_by: dict[WorkerId, float] = {}  # by when each is to have obeyed, of those who have not
        self._heed_at = 0.0  # the next look at these
        self._repos = np.zeros(0, np.int64)  # of each host, at least; exact after a look
        self._all_repos = 0
        self._width = 0
        self._own_all = np.zeros(0, np.int64)
        self._own = np.zeros((0, 0), np.int64)  # by budget, in their order, and worker
        self._look_due = self._count_due = False
        self._counted_at = float("-inf")
        self._lived_s = 0.0  # as of the last tick
        self._to_visit = 0  # workers whose shares are to be looked at
        self._next = 0  # the first of them

    # What happens

    def restored(self) -> None:
        """A process before this one gave something to those who are not down."""
        if not self.on:
            return
        self._unheard = {m.id for m in self._crew if m.record.liveness is not Liveness.DOWN}
        self._lost = {m.id for m in self._crew} - self._unheard
        self._heedless = set(self._lost)
        self._look()
        self._count()
        if self._unheard:
            for budget in self._budgets.values():
                budget.reserve = budget.rate
                for worker in range(self._width):
                    budget.forget(worker)

    def began(self, member: Member, brought: ApplySettings | None) -> None:
        """A fresh session: what it was told last, by its own word."""
        if not self.on:
            return
        self._widen()
        self._flying.pop(member.id, None)
        if (0.0 if brought is None else brought.told_at) <= _fell_at(member):
            self._lost.add(member.id)  # what it was told since, if anything, is lost
            self._heedless.add(member.id)
        if brought is None:
            self._told.pop(member.id, None)
        else:
            self._told[member.id] = brought
        reach = polled.on_worker(self._table, self._names, member.id)
        rates = {} if brought is None else dict(brought.host_rates)
        for host, budget in self._budgets.items():
            if host == ALL:
                known = None if brought is None else brought.polls_per_second
                asks = self._asks(int(reach.sum()), budget)
            else:
                known, asks = rates.get(self._names[host]), self._asks(int(reach[host]), budget)
            if known is not None:
                known = min(known, self._most_told(member.id, budget))
            budget.has(member.id, asks if known is None else known, told=known is not None)
            if known is not None and member.id in self._unheard and member.id not in self._lost:
                budget.reserve = max(budget.reserve - float(budget.bound[member.id]), 0.0)
        self._heed_by.setdefault(member.id, self._lived_s + HEED_S)
        self._heard(member.id)

    def _most_told(self, worker: WorkerId, budget: Budget) -> float:
        """The most that it can have been told."""
        return float(budget.bound[worker]) if worker in self._told_here else budget.rate

    def ready(self, member: Member, now_s: float, draft: Draft) -> None:
        """Commands may be sent to it: its limits come before any other."""
        if not self.on:
            return
        self._widen()
        only = np.zeros(self._width, np.bool_)
        only[member.id] = self._can_tell(member, draft)
        self._split(only, now_s, draft)

    def acked(self, member: Member) -> None:
        """It took in some commands."""
        flying = self._flying.get(member.id)
        if flying is not None and member.outbox.last - len(member.outbox) >= flying:
            del self._flying[member.id]
            self._heed_by.pop(member.id, None)
            self._heedless.discard(member.id)
            for budget in self._budgets.values():
                budget.obeyed(member.id)
            self._to_visit = self._width  # there may be room now

    def gone(self, worker: WorkerId) -> None:
        """Down: what it used is free."""
        self._heard(worker)
        self._lost.add(worker)
        self._heedless.add(worker)
        self._to_visit = self._width

    def forget(self, worker: WorkerId) -> None:
        """It retired; its id may be another's."""
        self._heard(worker)
        self._lost.discard(worker)
        self._heedless.discard(worker)
        self._flying.pop(worker, None)
        self._told.pop(worker, None)
        self._told_here.discard(worker)
        self._heed_by.pop(worker, None)
        for budget in self._budgets.values():
            if worker < len(budget.given):
                budget.forget(worker)

    def listed(self, rows: NDArray[np.int32], now_s: float, draft: Draft) -> None:
        """Repos were added to the catalog; a host may be busy from now on."""
        if not self.on:
            return
        self._look_due = True
        self._names.note(rows)
        hosts = self._names.of_row[rows]
        more = np.bincount(hosts, minlength=len(self._names))
        more[: len(self._repos)] += self._repos
        self._repos = more
        self._all_repos += len(rows)
        if self._newly_busy():
            self._look()
            self._count()
            everybody = np.zeros(self._width, np.bool_)
            everybody[[m.id for m in self._crew if self._can_tell(m, draft)]] = True
            self._split(everybody, now_s, draft)

    def changed(self) -> None:
        """Something did: copies may be elsewhere, workers may be there or gone."""
        self._count_due = self._look_due = True

    def tick(self, lived_s: float, now_s: float, draft: Draft) -> None:
        if not self.on:
            return
        self._lived_s = lived_s
        if lived_s - self._counted_at >= COUNT_EVERY_S and (self._count_due or self._look_due):
            self._counted_at = lived_s
            self._look()
            self._count()
            self._to_visit = self._width
        self._widen()
        if lived_s >= self._heed_at:
            self._look_who_heeds(lived_s - self._heed_at + HEED_EVERY_S, draft)
            self._heed_at = lived_s + HEED_EVERY_S
        if self._to_visit > 0:
            self._split(self._next_to_tell(draft), now_s, draft)

    def _look_who_heeds(self, since_s: float, draft: Draft) -> None:
        """``since_s``: seconds since the last look."""
        late: list[WorkerId] = []
        for worker, by_s in list(self._heed_by.items()):
            member = self._crew.get(worker)
            if member is None or member.record.liveness is not Liveness.ALIVE:
                self._heed_by[worker] = by_s + since_s  # cut off, it really uses what it has
            elif by_s <= self._lived_s:
                del self._heed_by[worker]
                if worker in self._flying or not self._can_tell(member, draft):
                    late.append(worker)  # else it may keep what it has, and was told nothing
        if not late:
            return
        sharing = self._sharing()
        for slot, (host, budget) in enumerate(self._budgets.items()):
            aims = budget.aims(self._own_all if host == ALL else self._own[slot], sharing)
            for worker in late:
                told = float(budget.given[worker]) if worker in self._flying else float(aims[worker])
                budget.unheeded(worker, told)
        self._to_visit = self._width

    # What others see

    def told(self, worker: WorkerId) -> ApplySettings | None:
        """What it was told last, or brought."""
        return self._told.get(worker)

    def in_use(self) -> dict[str, tuple[float, float]]:
        """For each rate that is split, by host and "" for all: the most that may be in use, and the rate."""
        if not self._budgets:
            return {}
        sharing = self._sharing()
        return {
            "" if host == ALL else self._names[host]: (
                budget.reserve + float(budget.bound[: len(sharing)][sharing[: len(budget.bound)]].sum()),
                budget.rate,
            )
            for host, budget in self._budgets.items()
        }

    # Which hosts are split

    def _asks(self, repos: int, budget: Budget) -> float:
        """The most that so many repos can ask for."""
        if not repos:
            return 0.0
        return min(repos / self._min_gap_s, budget.rate) if self._min_gap_s > 0 else budget.rate

    def _limit(self, rate: float, share: float) -> float:
        return rate * self._min_gap_s * share

    def _newly_busy(self) -> bool:
        whole = self._whole_rate
        if whole is not None and ALL not in self._budgets and self._all_repos > self._limit(whole, BUSY):
            return True
        if self._host_rate is None:
            return False
        busy = np.flatnonzero(self._repos > self._limit(self._host_rate, BUSY)).tolist()
        return len(busy) <= HOSTS_MAX and any(host not in self._budgets for host in busy)

    def _look(self) -> None:
        """Which rates need a split now; exact."""
        self._look_due = False
        self._repos = polled.per_host(self._table, self._names)
        self._all_repos = int(self._repos.sum())
        self._public = polled.public_hosts(self._table, self._names)
        wanted: list[tuple[int, float]] = []
        if self._whole_rate is not None and self._is_busy(ALL, self._all_repos, self._whole_rate):
            wanted.append((ALL, self._whole_rate))
        if self._host_rate is not None:
            near = np.flatnonzero(self._repos > self._limit(self._host_rate, BUSY_NO_MORE))
            near = near[np.argsort(-self._repos[near], kind="stable")]
            busy = [h for h in near.tolist() if self._is_busy(h, int(self._repos[h]), self._host_rate)]
            self._crowded = len(busy) > HOSTS_MAX
            wanted += [(host, self._host_rate) for host in busy[:HOSTS_MAX]]
        if {host for host, _ in wanted} != set(self._budgets):
            self._set_budgets(wanted)

    def _is_busy(self, host: int, repos: int, rate: float) -> bool:
        return repos > self._limit(rate, BUSY_NO_MORE if host in self._budgets else BUSY)

    def _set_budgets(self, wanted: list[tuple[int, float]]) -> None:
        self._widen()
        before, self._budgets = self._budgets, {}
        for host, rate in wanted:
            budget = before.get(host)
            if budget is None:
                budget = Budget(rate, self._width)
                self._believe(host, budget)
            self._budgets[host] = budget
        self._own = np.zeros((len(self._budgets), self._width), np.int64)
        self._count_due = True
        self._to_visit = self._width

    def _believe(self, host: int, budget: Budget) -> None:
        """Nobody was told a share of it: what they have can ask for so much."""
        if host == ALL:
            reach = np.zeros(self._width, np.int64)
            for member in self._crew:
                reach[member.id] = int(polled.on_worker(self._table, self._names, member.id).sum())
        else:
            reach = polled.of_host(self._table, self._names, host, self._width)
        for worker in np.flatnonzero(reach).tolist():
            budget.has(worker, self._asks(int(reach[worker]), budget), told=False)

    # Who is told what

    def _count(self) -> None:
        self._count_due = False
        self._widen()
        slot_of_host = np.full(self._names.seen(), -1, np.int32)
        for slot, host in enumerate(self._budgets):
            if host != ALL:
                slot_of_host[host] = slot
        self._own_all, self._own = polled.per_worker(
            self._table, self._names, slot_of_host, len(self._budgets), self._width
        )

    def _split(self, tellable: Mask, now_s: float, draft: Draft) -> None:
        sharing, changed = self._sharing(), np.zeros(self._width, np.bool_)
        back = np.zeros(self._width, np.bool_)
        back[list(self._lost)] = True
        trusted = np.zeros(self._width, np.bool_)
        trusted[[m.id for m in self._crew if m.record.facts.trusted]] = True
        for slot, (host, budget) in enumerate(self._budgets.items()):
            own = self._own_all if host == ALL else self._own[slot]
            if self._is_public(host):
                changed |= budget.split(own, sharing, tellable, back)
            else:
                changed |= budget.split(own, sharing & trusted, tellable & trusted, back)
        usual = self._usual()
        for worker in map(WorkerId, np.flatnonzero(tellable).tolist()):
            if changed[worker] or self._is_outdated(worker, usual):
                self._tell(self._crew[worker], now_s, draft)

    def _is_public(self, host: int) -> bool:
        return host == ALL or bool(self._public[host])

    def _named_to(self, worker: WorkerId) -> Iterator[tuple[Host, Budget]]:
        """Hosts whose rate is split, as far as this worker may know of them."""
        trusted = self._crew[worker].record.facts.trusted
        for host, budget in self._budgets.items():
            if host != ALL and (trusted or self._is_public(host)):
                yield self._names[host], budget

    def _is_outdated(self, worker: WorkerId, usual: float | None) -> bool:
        """What it was told of rates that are not split is not so any more."""
        told = self._told.get(worker)
        if told is None:
            return len(self._crew) > 1  # alone it has its own settings
        if ALL not in self._budgets and told.polls_per_second != self._whole_rate:
            return True
        if (told.host_rate is None) != (usual is None):
            return True
        if told.host_rate is not None and usual is not None and abs(told.host_rate / usual - 1.0) > RATIO:
            return True
        names = {name for name, _ in self._named_to(worker)} if told.host_rates else set()
        return any(name not in names for name, _ in told.host_rates)

    def _tell(self, member: Member, now_s: float, draft: Draft) -> None:
        limits = self._limits(member.id, now_s)
        self._told[member.id] = limits
        self._lost.discard(member.id)
        draft.send(member, SetLimits(limits))
        self._told_here.add(member.id)
        self._flying[member.id] = member.outbox.last
        self._heed_by.setdefault(member.id, self._lived_s + HEED_S)

    def _limits(self, worker: WorkerId, now_s: float) -> ApplySettings:
        whole, usual = self._budgets.get(ALL), self._usual()
        named = [
            (name, float(budget.given[worker]))
            for name, budget in self._named_to(worker)
            if usual is not None and float(budget.given[worker]) != usual
        ]
        return ApplySettings(
            polls_per_second=self._whole_rate if whole is None else float(whole.given[worker]),
            host_rate=usual,
            host_rates=tuple(sorted(named)),
            told_at=now_s,
        )

    def _usual(self) -> float | None:
        """For hosts that are not named."""
        if self._host_rate is None or not self._crowded:
            return self._host_rate
        return self._host_rate * FULL / max(int(np.count_nonzero(self._sharing())), 1)

    def _sharing(self) -> Mask:
        sharing = np.zeros(self._width, np.bool_)
        sharing[[m.id for m in self._crew if m.record.liveness is not Liveness.DOWN]] = True
        return sharing

    def _next_to_tell(self, draft: Draft) -> Mask:
        """Some of those that can be told something now; of whom an acknowledgement is awaited, not."""
        tellable = np.zeros(self._width, np.bool_)
        visited = min(SPLIT_MAX, self._to_visit, self._width)
        for n in range(visited):
            worker = WorkerId((self._next + n) % self._width)
            member = self._crew.get(worker)
            if member is not None and worker not in self._flying:
                tellable[worker] = self._can_tell(member, draft)
        self._next = (self._next + visited) % max(self._width, 1)
        self._to_visit -= visited
        return tellable

    def _can_tell(self, member: Member, draft: Draft) -> bool:
        return member.record.duty is not Duty.QUARANTINED and draft.takes_for(member)

    def _heard(self, worker: WorkerId) -> None:
        if worker in self._unheard:
            self._unheard.discard(worker)
            if not self._unheard:
                for budget in self._budgets.values():
                    budget.reserve = 0.0
                self._to_visit = self._width

    def _widen(self) -> None:
        width = self._crew.width
        if width <= self._width:
            return
        more = width - self._width
        for budget in self._budgets.values():
            budget.widen(width)
        self._own_all = np.append(self._own_all, np.zeros(more, np.int64))
        self._own = np.hstack((self._own, np.zeros((len(self._budgets), more), np.int64)))
        self._width = width
        self._to_visit = width


def _fell_at(member: Member) -> float:
    """When it was last declared down, UTC; as long ago as can be where that is not remembered."""
    return max((at for at, word in member.record.history if word == DOWN), default=float("-inf"))
