"""The scheduler against its dumb twin, on random events."""

import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.views import Entry
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import Host, Priority, RepoKey, RepoSpec
from tests.core.schedule.twin import Twin

START = 1_700_000_000.0
KEYS = [(h, n) for h in "abc" for n in range(6)]


def spec(which, priority=Priority.NORMAL, interval=None, hooked=False):
    host, n = which
    key = RepoKey(f"{host}.org/{n}")
    return RepoSpec(key, f"https://{key}", Host(f"{host}.org"), priority, interval, hooked=hooked)


specs = st.builds(
    spec,
    st.sampled_from(KEYS),
    st.sampled_from(Priority),
    st.sampled_from([None, None, None, 90.0, 600.0]),
    st.booleans(),
)
configs = st.builds(
    ScheduleSettings,
    policy=st.sampled_from(["adaptive", "cbrt-age", "fixed"]),
    slots=st.sampled_from([1, 3]),
    min_gap_s=st.sampled_from([0.0, 60.0]),
    max_gap_s=st.sampled_from([None, 120.0, 7200.0]),
    polls_per_second=st.sampled_from([None, 0.05, 2.0]),
    host_rate=st.sampled_from([None, 0.02, 5.0]),
    host_connections=st.sampled_from([1, 3, 4]),
    polls_in_flight=st.sampled_from([2, 100]),
)
kinds = st.sampled_from([*FailureKind, FailureKind.NETWORK_TIMEOUT, FailureKind.NETWORK_TIMEOUT])
events = st.one_of(
    st.tuples(
        st.just("add"),
        st.lists(
            st.tuples(specs, st.sampled_from([False, False, True])),
            min_size=1,
            max_size=8,
            unique_by=lambda e: e[0].key,
        ),
    ),
    st.tuples(st.just("reconfigure"), configs),
    st.tuples(st.just("allow_clones"), st.booleans()),
    st.tuples(st.just("changed"), st.booleans()),
    st.tuples(st.just("changed"), st.booleans()),
    st.tuples(st.just("synced"), st.lists(st.floats(-100, 5000), max_size=3)),
    st.tuples(st.just("remove"), st.sampled_from(KEYS)),
    st.tuples(st.just("request"), st.sampled_from(KEYS)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.3, 7.0, 61.0, 700.0, 90_000.0])),
    st.tuples(st.just("wake"), st.none()),
    st.tuples(st.just("take"), st.none()),
    st.tuples(st.just("take"), st.none()),
    st.tuples(st.just("polled"), st.lists(st.floats(-100, 5000), max_size=3)),
    st.tuples(st.just("failed"), st.tuples(kinds, st.sampled_from([None, 5.0, 1e9]))),
)


class Pair:
    """Both schedulers, given the same events; every answer is compared."""

    def __init__(self, config):
        self.real, self.twin, self.now = Scheduler(config), Twin(config), START
        self.flying, self.syncing = [], []
        self.add([(spec(which), False) for which in KEYS[::2]])

    def add(self, what):
        self.real.add([Entry(s, quiet=quiet) for s, quiet in what], self.now)
        self.twin.add(what, self.now)

    def reconfigure(self, config):
        self.real.reconfigure(config, self.now)
        self.twin.reconfigure(config, self.now)

    def allow_clones(self, allowed):
        self.real.allow_clones(allowed)
        self.twin.clones_allowed = allowed

    def remove(self, which):
        key = spec(which).key
        self.real.remove([key], self.now)
        self.twin.remove(key)

    def request(self, which):
        key = spec(which).key
        assert self.real.request(key, self.now) == (key in self.twin.repos)
        if key in self.twin.repos:
            self.twin.request(key)

    def wait(self, seconds):
        self.now += seconds

    def wake(self, _):
        wake = self.real.next_wake(self.now)
        if wake is not None:
            self.now = wake
            self.take(None)

    def take(self, _):
        best = self.twin.best(self.now)
        key = self.real.take(self.now)
        if key is None:
            assert not best, [(b[0], b[1], b[2].spec.key) for b in best]
            return
        chosen = [b for b in best if b[2].spec.key == key]
        assert chosen, (key, [(b[0], b[1], b[2].spec.key) for b in best])
        self.twin.took(chosen[0], self.now)
        self.flying.append(key)

    def polled(self, ages):
        if self.flying:
            key, pushes = self.flying.pop(0), [self.now - age for age in ages]
            self.real.learned(key, pushes, self.now)
            self.real.polled(key, self.now)
            self.twin.polled(key, pushes, self.now)

    def changed(self, first):
        if self.flying:
            key = self.flying.pop(0)
            self.real.changed(key, self.now, first=first)
            self.twin.changed(key, first, self.now)

    def start_syncs(self):
        """As an engine does after every event."""
        while True:
            expected = self.twin.next_sync(self.now)
            key = self.real.take_sync(self.now)
            assert key == (None if expected is None else expected.spec.key)
            if key is None:
                return
            expected.phase = "syncing"
            self.syncing.append(key)

    def synced(self, ages):
        if self.syncing:
            key, pushes = self.syncing.pop(0), [self.now - age for age in ages]
            self.real.synced(key, self.now, pushes)
            self.twin.synced(key, pushes, self.now)

    def failed(self, what):
        running = self.syncing if self.syncing and (what[1] is None or not self.flying) else self.flying
        if running:
            key, failure = running.pop(0), Failure(what[0], "x", retry_after_s=what[1])
            verdict = self.real.failed(key, failure, self.now)
            self.twin.failed(key, failure, self.now)
            if key in self.twin.repos:
                assert verdict.failures == self.twin.repos[key].failures
                assert verdict.next_attempt_at is None or verdict.next_attempt_at >= self.now

    def check(self):
        assert len(self.flying) == len(set(self.flying)) == self.real.polls_in_flight
        assert len(self.syncing) == len(set(self.syncing)) == self.real.syncs_running
        assert self.real.syncs_waiting == len(self.twin.under_way("changed"))
        assert len(self.real) == len(self.twin.repos)
        mine, theirs = self.real.next_wake(self.now), self.twin.next_wake(self.now)
        assert (mine is None) == (theirs is None), (mine, theirs)
        if mine is not None:
            assert math.isclose(mine, theirs, rel_tol=0, abs_tol=1e-6), (mine - self.now, theirs - self.now)
        for key, repo in self.twin.repos.items():
            memory = self.real.memory(key)
            assert (memory.failures, memory.activity, memory.last_poll_at) == (
                repo.failures,
                repo.activity,
                repo.last_poll,
            )


@settings(max_examples=250, deadline=None)
@given(configs, st.lists(events, max_size=60))
def test_it_chooses_what_the_dumb_twin_would_choose_and_wakes_when_it_would(config, script):
    pair = Pair(config)
    for name, argument in script:
        getattr(pair, name)(argument)
        pair.start_syncs()
        pair.check()


def random_settings(chance):
    return ScheduleSettings(
        policy=chance.choice(["adaptive", "cbrt-age", "fixed"]),
        slots=chance.choice([1, 3]),
        min_gap_s=chance.choice([0.0, 60.0]),
        max_gap_s=chance.choice([None, 120.0, 7200.0]),
        polls_per_second=chance.choice([None, 0.05, 2.0]),
        host_rate=chance.choice([None, 0.02, 5.0]),
        host_connections=chance.choice([1, 3, 4]),
        polls_in_flight=chance.choice([2, 100]),
    )


def random_event(chance):
    """Weighted so that polls go on between rare changes; short scripts of hypothesis seldom get this far."""
    match chance.choices(
        [
            "take",
            "wake",
            "polled",
            "failed",
            "wait",
            "request",
            "add",
            "remove",
            "changed",
            "synced",
            "reconfigure",
            "allow_clones",
        ],
        [30, 20, 20, 10, 10, 4, 3, 2, 7, 7, 1, 1],
    )[0]:
        case "polled" | "synced" as name:
            return name, [chance.uniform(-100, 5000) for _ in range(chance.choice([0, 0, 0, 1, 3]))]
        case "changed" | "allow_clones" as name:
            return name, chance.random() < 0.5
        case "reconfigure":
            return "reconfigure", random_settings(chance)
        case "failed":
            kind = chance.choice([FailureKind.NETWORK_TIMEOUT] * 4 + list(FailureKind))
            return "failed", (kind, chance.choice([None, 5.0, 1e9]))
        case "wait":
            return "wait", chance.choice([0.3, 7.0, 61.0, 700.0])
        case "request" | "remove" as name:
            return name, chance.choice(KEYS)
        case "add":
            which = chance.sample(KEYS, 3)
            return "add", [
                (
                    spec(
                        w,
                        chance.choice(list(Priority)),
                        chance.choice([None, None, 90.0, 600.0]),
                        chance.random() < 0.4,
                    ),
                    chance.random() < 0.3,
                )
                for w in which
            ]
        case name:
            return name, None


@settings(max_examples=60, deadline=None)
@given(configs, st.integers(0, 2**32))
def test_it_agrees_with_the_dumb_twin_over_long_runs(config, seed):
    pair, chance = Pair(config), random.Random(seed)
    for _ in range(250):
        name, argument = random_event(chance)
        getattr(pair, name)(argument)
        pair.start_syncs()
        pair.check()
