"""A worker's link is shared: what flows adds up, however clones begin, end and are stopped."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet.decisions import Assignment
from evermirror.model.repo import RepoKey
from evermirror.sim.clock import VirtualTime
from evermirror.sim.fleet.clones import CLONE_MIN_S, SharedClones, Traffic
from evermirror.sim.fleet.world import name

RATE = 10.0


class Bench:
    """One worker with a link, and when each of its clones was done."""

    def __init__(self, slots: int = 10, mean_mb: float = 50.0) -> None:
        self.time = VirtualTime()
        self.traffic = Traffic(self.time, mean_mb)
        self.traffic.rate_mb_s = RATE
        self.done: dict[RepoKey, float] = {}
        world = SimpleNamespace(time=self.time, worker=lambda id: self)
        worker = SimpleNamespace(world=world, cloned=self._cloned)
        self.clones = SharedClones(worker, slots, self.traffic)  # type: ignore[arg-type]

    def serves(self, key: RepoKey) -> bool:
        return True

    def _cloned(self, key: RepoKey, *, relayed: bool) -> None:
        self.done[key] = self.time.now

    def ask(self, number: int, *, relayed: bool = False) -> RepoKey:
        key = name(number)
        self.clones.ask(Assignment(key, primary=True, source=1 if relayed else None))  # type: ignore[arg-type]
        self.clones.fill_slots()
        return key

    def run(self) -> None:
        self.time.run(1e9)
        self.traffic.catch_up()


def test_one_clone_has_the_link_for_itself():
    bench = Bench()
    key = bench.ask(1)
    bench.run()
    assert bench.done[key] == pytest.approx(CLONE_MIN_S + bench.traffic.size_mb(key) / RATE)


def test_two_clones_share_the_link_until_the_smaller_is_done():
    bench = Bench()
    small, large = sorted((bench.ask(1), bench.ask(2)), key=bench.traffic.size_mb)
    bench.run()
    small_mb, large_mb = bench.traffic.size_mb(small), bench.traffic.size_mb(large)
    assert small_mb < large_mb
    assert bench.done[small] == pytest.approx(CLONE_MIN_S + 2 * small_mb / RATE)
    assert bench.done[large] == pytest.approx(CLONE_MIN_S + (small_mb + large_mb) / RATE)


def test_the_sizes_have_the_mean_that_was_asked_for():
    traffic = Traffic(VirtualTime(), 80.0)
    assert sum(traffic.size_mb(name(n)) for n in range(50_000)) / 50_000 == pytest.approx(80, rel=0.03)


def test_bytes_that_take_no_time_are_not_counted():
    bench = Bench()
    bench.traffic.rate_mb_s = float("inf")
    key = bench.ask(1)
    bench.run()
    assert bench.done[key] == CLONE_MIN_S
    assert (bench.traffic.upstream_mb, bench.traffic.relay_mb, bench.traffic.peak_mb_s) == (0, 0, 0)


def test_a_clone_that_is_stopped_leaves_its_share_to_the_others():
    bench = Bench(mean_mb=5000.0)
    stays, stopped = bench.ask(1), bench.ask(2)
    bench.time.run(CLONE_MIN_S + 1.0)
    bench.clones.stop(stopped)
    bench.run()
    assert list(bench.done) == [stays]
    assert bench.done[stays] == pytest.approx(CLONE_MIN_S + 0.5 + bench.traffic.size_mb(stays) / RATE)
    assert bench.traffic.upstream_mb == pytest.approx(bench.traffic.size_mb(stays) + RATE / 2)
    assert bench.traffic.flowing == 0


STEP = st.one_of(
    st.tuples(st.just("ask"), st.integers(1, 30), st.booleans()),
    st.tuples(st.just("stop"), st.integers(1, 30), st.booleans()),
    st.tuples(st.just("wait"), st.integers(1, 30), st.booleans()),
    st.tuples(st.just("clear"), st.just(0), st.just(False)),
)


@given(st.lists(STEP, max_size=40), st.integers(1, 5))
def test_the_link_is_never_overfull_and_every_byte_is_counted_once(steps, slots):
    bench = Bench(slots)
    traffic = bench.traffic
    stopped = False
    for what, number, flag in steps:
        if what == "ask" and name(number) not in bench.done:
            bench.ask(number, relayed=flag)
        elif what == "stop":
            stopped = stopped or name(number) in bench.clones.jobs
            bench.clones.stop(name(number))
            bench.clones.fill_slots()
        elif what == "wait":
            bench.time.run(bench.time.now + number)
        elif what == "clear":
            stopped = stopped or bool(bench.clones.jobs)
            bench.clones.clear()
    bench.run()
    done_mb = sum(map(traffic.size_mb, bench.done))
    moved_mb = traffic.upstream_mb + traffic.relay_mb
    assert traffic.peak_mb_s <= RATE * 1.000001
    assert moved_mb == pytest.approx(traffic.busy_s * RATE, abs=1e-3)  # the link is full, or idle
    assert moved_mb >= done_mb - 1e-3 if stopped else moved_mb == pytest.approx(done_mb, abs=1e-3)
    assert (traffic.flowing, bench.clones.running, bench.clones.jobs) == (0, 0, {})
