"""The dumb twin of the scheduler: it keeps lists and scans all of them.

It shares with the real one only formulas and weather. It says which repos may be taken now and when that
changes by itself; among equals it follows the real one's choice.
"""

from __future__ import annotations

import math

from evermirror.core.schedule.intensity import learn
from evermirror.core.schedule.placement import first_part
from evermirror.core.schedule.policies import HOOKED_RARER, POLICIES
from evermirror.core.schedule.retry import BACKOFF_STEPS, RETRY_RULES, Wait, retry_delay_s
from evermirror.core.schedule.weather import Weather
from evermirror.model.activity import Activity
from evermirror.model.failure import FailureKind

CLOSE = 1e-9  # sums are added in another order than in the real one


class Repo:
    def __init__(self, spec, now):
        self.spec, self.since, self.last_poll, self.seen_at = spec, now, 0.0, 0.0
        self.activity, self.failures, self.not_before = Activity(), 0, 0.0
        self.priority = self.stride = self.due_at = 0.0
        self.phase, self.request, self.again = "waiting", 0, False
        self.urgent, self.first, self.arrived = False, False, 0  # of the sync it waits for
        self.quiet = False  # polled on request alone
        self.fresh = True  # its next stride is its first
        self.at_silent_host = False  # when its poll began
        self.excused = False  # it is due as soon as its min gap is over, whatever its hooks


class Bucket:
    """Tokens counted one by one: the times at which each token taken comes back."""

    def __init__(self, rate):
        self.rate, self.full_at = rate, -math.inf

    def set_rate(self, rate, now):
        """What is owed comes back at the new rate, and is no more than the new bucket holds."""
        if rate is None:
            self.full_at = -math.inf
        elif self.rate not in (None, rate) and self.full_at > now:
            owed = (self.full_at - now) * self.rate
            self.full_at = now + min(owed, max(1.0, rate)) / rate
        self.rate = rate

    def ready_at(self):
        return -math.inf if self.rate is None else self.full_at - (max(1.0, self.rate) - 1.0) / self.rate

    def take(self, now):
        if self.rate is not None and self.ready_at() <= now:
            self.full_at = max(self.full_at, now) + 1.0 / self.rate


class Twin:
    def __init__(self, settings):
        self.s, self.policy = settings, POLICIES[settings.policy]
        self.repos, self.leaving, self.buckets, self.clock, self.offset = {}, {}, {}, {}, {}
        self.bucket, self.weather, self.top, self.requests = (
            Bucket(settings.polls_per_second),
            Weather(),
            0.0,
            0,
        )
        self.arrivals, self.clones_allowed = 0, True
        self.firsts = 0  # first strides since all were placed
        self.stuck = set()  # hosts whose last transfer got no answer

    # Helpers

    def forget_host(self, host):
        self.weather.forget(host)
        self.stuck.discard(host)

    def everyone(self):
        return [*self.repos.values(), *self.leaving.values()]

    def on(self, host):
        return [r for r in self.repos.values() if r.spec.host == host]

    def under_way(self, phase, host=None):
        return [r for r in self.everyone() if r.phase == phase and host in (None, r.spec.host)]

    def max_gap(self, host):
        if self.s.max_gap_s is None:
            return None
        gap = self.s.max_gap_s
        on_host = sum(r.spec.host == host and not r.quiet for r in self.everyone())
        if self.s.host_rate:
            gap = max(gap, 2 * on_host / self.s.host_rate)
        if self.s.polls_per_second:
            loud = sum(not r.quiet for r in self.repos.values())
            gap = max(gap, 2 * loud / self.s.polls_per_second)
        return gap

    def interval(self, repo):
        return None if repo.quiet else self.policy.interval_s(repo.spec)

    def rarer(self, repo):
        told = repo.spec.hooked and self.interval(repo) is None and not repo.quiet
        return HOOKED_RARER if told else 1.0

    def rest(self, repo):
        """How long it is left alone after a success; after a failure it is the min gap."""
        longest = math.inf if self.s.max_gap_s is None else self.s.max_gap_s
        return max(self.s.min_gap_s, min(self.s.min_gap_s * self.rarer(repo), longest))

    def pace(self, host):
        """How long a stride of 1 lasts: as long as the budget that is scarcest makes it."""
        strided = [r for r in self.everyone() if r.stride]
        budgets = [(strided, self.s.polls_per_second)]
        budgets.append(([r for r in strided if r.spec.host == host], self.s.host_rate))
        return max((sum(1 / r.stride for r in some) / rate for some, rate in budgets if rate), default=0.0)

    def new_stride(self, repo, now):
        total = sum(1 / r.stride for r in self.everyone() if r.stride)
        weight, pace = repo.spec.priority.weight, self.pace(repo.spec.host)
        stride = self.policy.stride(weight, repo.failures, repo.activity, now, pace)
        if self.policy.gap_cap and total:
            stride = min(stride, self.policy.gap_cap * sum(1 for r in self.everyone() if r.stride) / total)
        return stride * self.rarer(repo)

    def eligible_at(self, repo):
        if repo.quiet:
            return math.inf
        if self.interval(repo) is not None:
            return repo.due_at
        calm = repo.seen_at >= repo.last_poll and not repo.excused
        rest = self.rest(repo) if calm else self.s.min_gap_s
        return max(repo.not_before, repo.last_poll + rest if repo.last_poll else 0.0)

    def standing(self, repo):
        return max(repo.priority, self.clock[repo.spec.host])

    def deadline(self, repo):
        if repo.quiet:
            return math.inf
        if self.interval(repo) is not None:
            return repo.due_at
        gap = self.max_gap(repo.spec.host)
        return math.inf if gap is None else max(repo.since + gap, self.eligible_at(repo))

    # Events

    def add(self, entries, now):
        placed = []
        for spec, quiet in entries:
            if not any(r.spec.host == spec.host for r in self.everyone()):
                self.buckets[spec.host], self.clock[spec.host] = Bucket(self.s.host_rate), 0.0
                self.offset[spec.host] = self.top
                self.forget_host(spec.host)
                self.weather.of(spec.host)
            repo = self.leaving.pop(spec.key, None) or self.repos.get(spec.key) or Repo(spec, now)
            self.repos[spec.key] = repo
            repo.spec, repo.quiet = spec, quiet
            if self.interval(repo) is not None or quiet:
                repo.stride, repo.fresh = 0.0, True
            if repo.phase == "waiting":
                placed.append(repo)
        self.place(placed, now)

    def place(self, placed, now):
        """Those who stand nowhere: strides for all of them first, then their places."""
        placed = [r for r in placed if not r.quiet]
        strided = [r for r in placed if self.interval(r) is None]
        for repo in strided:
            stride = self.policy.stride(repo.spec.priority.weight, repo.failures, repo.activity, now)
            repo.stride, repo.excused = stride * self.rarer(repo), False
        members = [r for r in self.everyone() if r.stride]
        if self.policy.gap_cap and members:
            cap = self.policy.gap_cap * len(members) / sum(1 / r.stride for r in members)
            for repo in strided:
                repo.stride = min(repo.stride, cap * self.rarer(repo))
        fronts = {}
        for repo in placed:
            others = [
                self.standing(r)
                for r in self.on(repo.spec.host)
                if r not in placed and r.phase == "waiting" and r.stride and self.eligible_at(r) <= now
            ]
            fronts[repo.spec.host] = min(others, default=self.clock[repo.spec.host])
        for repo in placed:
            gap = self.aimed_gap(repo)
            if self.interval(repo) is not None:
                repo.due_at = max(repo.last_poll + gap if repo.last_poll else now, repo.not_before)
            elif repo.last_poll:
                part = min(1.0, max(0.0, 1.0 - (now - repo.last_poll) / gap)) if gap else 0.0
                repo.priority = self.clock[repo.spec.host] + repo.stride * part
                if part > 1e-6:
                    repo.fresh = False
            else:
                repo.priority = fronts[repo.spec.host]

    def aimed_gap(self, repo):
        gap = self.interval(repo)
        if gap is None:
            gap, everyone = 0.0, self.everyone()
            if self.s.polls_per_second:
                total = sum(1 / r.stride for r in everyone if r.stride)
                gap = repo.stride * total / self.s.polls_per_second
            if self.s.host_rate:
                here = sum(1 / r.stride for r in everyone if r.stride and r.spec.host == repo.spec.host)
                gap = max(gap, repo.stride * here / self.s.host_rate)
        return max(min(gap, self.max_gap(repo.spec.host) or math.inf), self.rest(repo))

    def reconfigure(self, settings, now):
        old, self.s, self.policy = self.s, settings, POLICIES[settings.policy]
        self.bucket.set_rate(settings.polls_per_second, now)
        for host in {r.spec.host for r in self.everyone()}:
            self.buckets[host].set_rate(settings.host_rate, now)
        if settings.places_as(old):
            return
        for repo in self.everyone():  # as after a restart
            repo.stride, repo.priority, repo.fresh = 0.0, 0.0, True
            self.clock[repo.spec.host], self.offset[repo.spec.host] = 0.0, self.top
        self.firsts = 0
        self.place([r for r in self.repos.values() if r.phase == "waiting"], now)

    def remove(self, key):
        repo = self.repos.pop(key, None)
        if repo is not None and repo.phase in ("polling", "syncing"):
            self.leaving[key], repo.again = repo, False
        if repo is not None and not any(r.spec.host == repo.spec.host for r in self.everyone()):
            self.forget_host(repo.spec.host)

    def request(self, key):
        repo = self.repos[key]
        if repo.phase != "waiting":
            repo.again = repo.urgent = True
        elif not repo.request:
            self.requests += 1
            repo.request = self.requests

    def candidates(self, now):
        """Every repo that may be taken now, as (rank, key) -> repo; smaller goes first."""
        found = []
        if len(self.under_way("polling")) >= self.s.polls_in_flight:
            return found
        for repo in self.repos.values():
            host, weather = repo.spec.host, self.weather.of(repo.spec.host)
            polls = len(self.under_way("polling", host)) + len(self.under_way("syncing", host))
            silent = sum(r.at_silent_host for r in self.under_way("polling"))
            if weather.silent and silent >= max(1, self.s.polls_in_flight // 2):
                continue
            if repo.phase != "waiting" or polls >= self.s.host_connections or weather.blocked_until > now:
                continue
            if repo.request:
                found.append((0, repo.request, repo))
                continue
            if any(r.request for r in self.on(host) if r.phase == "waiting"):
                continue
            if self.buckets[host].ready_at() > now or self.bucket.ready_at() > now:
                continue
            if weather.stormy and (polls or weather.probe_at > now):
                continue
            if self.eligible_at(repo) > now:
                continue
            if self.deadline(repo) <= now:
                # The real one orders by since + gap: what held a repo back does not make it later.
                gap = self.max_gap(host)
                due = repo.due_at if self.interval(repo) is not None else repo.since + gap
                found.append((1, due, repo))
            else:
                found.append((2, self.offset[host] + self.standing(repo), repo))
        return found

    def best(self, now):
        """The repos one of which must be taken now: equals, within rounding."""
        found = self.candidates(now)
        if not found:
            return []
        rank, key, _ = min(found, key=lambda f: f[:2])
        return [f for f in found if f[0] == rank and abs(f[1] - key) <= CLOSE * max(1.0, abs(key))]

    def took(self, choice, now):
        rank, stood, repo = choice
        host = repo.spec.host
        if rank == 2:
            self.clock[host] = self.standing(repo)
            if stood < self.top:
                self.offset[host] += self.top - stood
            else:
                self.top = stood
        repo.urgent = rank == 0
        repo.at_silent_host = self.weather.of(host).silent
        repo.priority, repo.phase, repo.request = self.clock[host], "polling", 0
        self.bucket.take(now)
        self.buckets[host].take(now)

    def moments(self, now):
        """Every time after now at which something may change by itself."""
        times = [self.bucket.ready_at(), *(b.ready_at() for b in self.buckets.values())]
        for repo in self.repos.values():
            weather = self.weather.of(repo.spec.host)
            times += [self.eligible_at(repo), self.deadline(repo), weather.blocked_until, weather.probe_at]
        return sorted({t for t in times if now < t < math.inf})

    def next_wake(self, now):
        times = [now, *self.moments(now)]
        return next((t for t in times if self.candidates(t) or self.next_sync(t) is not None), None)

    # Syncs

    def changed(self, key, first, now):
        repo = self.of(key)
        repo.last_poll = repo.since = now
        self.weather.succeeded(repo.spec.host, now)
        if key in self.leaving:
            self.finish(repo, now)
            return
        self.arrivals += 1
        repo.phase, repo.first, repo.arrived = "changed", first, self.arrivals
        repo.rank = repo.spec.priority.rank

    def next_sync(self, now):
        """The repo that gets a git slot now, if any."""
        if len(self.under_way("syncing")) >= self.s.slots:
            return None
        able = []
        for repo in self.under_way("changed"):
            host, weather = repo.spec.host, self.weather.of(repo.spec.host)
            transfers = len(self.under_way("syncing", host))
            connections = transfers + len(self.under_way("polling", host))
            if repo.first and not self.clones_allowed:
                continue
            if host in self.stuck:
                trying = sum(len(self.under_way("syncing", other)) for other in self.stuck)
                if transfers or trying >= max(1, self.s.slots // 4):
                    continue
            if transfers >= self.s.host_transfers or connections >= self.s.host_connections:
                continue
            in_queue = any(r.phase == "waiting" and not r.quiet for r in self.on(host))
            if weather.blocked_until > now or (weather.stormy and in_queue):
                continue
            able.append((not repo.urgent, repo.rank, repo.arrived, repo))
        return min(able, key=lambda a: a[:3])[3] if able else None

    def synced(self, key, pushes, now):
        repo = self.of(key)
        self.stuck.discard(repo.spec.host)
        repo.activity = learn(repo.activity, pushes, after=repo.seen_at, now=now)
        self.succeed(repo, now)

    def finish(self, repo, now, *, keeps_turn=False):
        repo.phase, repo.urgent, repo.excused, host = "waiting", False, False, repo.spec.host
        if repo.spec.key in self.leaving:
            del self.leaving[repo.spec.key]
            if not any(r.spec.host == host for r in self.everyone()):
                self.forget_host(host)
            return
        interval = self.interval(repo)
        if repo.quiet:
            pass
        elif interval is not None:
            repo.due_at = repo.not_before or now + (self.s.min_gap_s if keeps_turn else self.aimed_gap(repo))
        else:
            repo.stride = self.new_stride(repo, now)
            repo.priority = max(repo.priority, self.clock[host])
            if not keeps_turn:
                repo.priority += repo.stride * (first_part(self.firsts) if repo.fresh else 1)
                self.firsts, repo.fresh = self.firsts + repo.fresh, False
        if repo.again:
            repo.again = False
            self.request(repo.spec.key)

    def of(self, key):
        return self.repos.get(key) or self.leaving[key]

    def polled(self, key, pushes, now):
        repo = self.of(key)
        if key in self.repos:
            repo.activity = learn(repo.activity, pushes, after=repo.seen_at, now=now)
        self.succeed(repo, now)

    def succeed(self, repo, now):
        repo.last_poll = repo.since = repo.seen_at = now
        repo.failures, repo.not_before = 0, 0.0
        self.weather.succeeded(repo.spec.host, now)
        self.finish(repo, now)

    def failed(self, key, failure, now):
        repo = self.of(key)
        if repo.phase == "syncing" and failure.kind is FailureKind.NETWORK_TIMEOUT:
            self.stuck.add(repo.spec.host)
        rule, judgement = (
            RETRY_RULES[failure.kind],
            self.weather.failed(repo.spec.host, key, failure, now, seen_before=repo.seen_at > 0.0),
        )
        repo.last_poll = repo.since = now
        if failure.kind is FailureKind.RATE_LIMITED:
            self.weather.of(repo.spec.host).block(failure.retry_after_s, now)
        repo.failures += rule.counted and judgement.own
        delay = retry_delay_s(
            rule.wait, repo.failures, max_gap_s=self.max_gap(repo.spec.host), interval_s=self.interval(repo)
        )
        repo.not_before = now + delay if delay is not None and judgement.own else 0.0
        tired = rule.wait is Wait.BACKOFF and repo.failures >= BACKOFF_STEPS
        self.finish(repo, now, keeps_turn=not judgement.own or not (tired or rule.wait is Wait.NORMAL))
        for _, other in judgement.uncounted:
            it = self.repos.get(other)
            if it is not None and it.failures:
                it.failures -= 1
                if it.phase == "waiting":
                    it.not_before, it.priority, it.excused = 0.0, self.clock[it.spec.host], True
                    it.due_at = max(now, it.last_poll + self.s.min_gap_s)
