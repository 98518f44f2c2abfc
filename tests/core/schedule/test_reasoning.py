"""Why a repo is looked at then: the steps lead to what is told, and the scheduler does what they say."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.schedule.queue import Phase
from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.views import Entry
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.memory import RepoMemory
from evermirror.model.plan import StepCode
from evermirror.model.repo import Host, Priority, RepoKey, RepoSpec
from tests.core.schedule.test_hooked import hooked
from tests.core.schedule.test_scheduler import T0, entry, run, scheduler
from tests.core.schedule.test_scheduler_twin import KEYS, configs, specs

GAPS = {"interval", "policy_gap", "project", "peak", "hooked", "max_gap", "min_gap"}
ALONE = RepoKey("a.org/1")


def check_steps(told):
    """What is told is what the steps come to."""
    times = [step.at for step in told.steps if step.at is not None]
    assert told.next_poll_at == (times[-1] if times else None)
    assert all(step.code in set(StepCode) and step.detail for step in told.steps)
    gaps = [step.s for step in told.steps if step.code in GAPS]
    if gaps:
        assert told.aimed_gap_s == gaps[-1]
    order = list(StepCode)
    places = [order.index(step.code) for step in told.steps if step.code != StepCode.ASKED]
    assert places == sorted(places), "in the order that is documented"
    if told.phase is Phase.WAITING and told.next_poll_at is not None:
        assert told.reason.startswith(told.steps[-1].detail.partition(";")[0])


events = st.one_of(
    st.tuples(st.just("request"), st.sampled_from(KEYS)),
    st.tuples(st.just("forgive"), st.sampled_from(KEYS)),
    st.tuples(st.just("put"), st.tuples(specs, st.booleans())),
    st.tuples(st.just("polled"), st.none()),
    st.tuples(st.just("changed"), st.none()),
    st.tuples(
        st.just("failed"), st.tuples(st.sampled_from(FailureKind), st.sampled_from([None, 5.0, 400.0]))
    ),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 40.0, 700.0, 9_000.0])),
)


@settings(max_examples=150, deadline=None)
@given(configs, st.lists(specs, min_size=1, max_size=8, unique_by=lambda s: s.key), st.lists(events))
def test_whatever_happens_the_steps_lead_to_the_time_and_the_gap_that_are_told(config, known, happened):
    it, now, flying = Scheduler(config), T0, []
    it.add([Entry(spec) for spec in known], now)
    for what, about in happened:
        now += about if what == "wait" else 0.0
        key = RepoKey("{}.org/{}".format(*about)) if what in ("request", "forgive") else None
        if (taken := it.take(now)) is not None:
            flying.append(taken)
        if key is not None:
            getattr(it, what)(key, now)
        elif what == "put":
            it.add([Entry(about[0], quiet=about[1])], now)
        elif flying and what == "failed":
            it.failed(flying.pop(), Failure(about[0], "x", retry_after_s=about[1]), now)
        elif flying and what in ("polled", "changed"):
            getattr(it, what)(flying.pop(), now)
        for name in {spec.key for spec in known}:
            check_steps(it.explain(name, now))


lone = st.builds(
    ScheduleSettings,
    policy=st.sampled_from(["adaptive", "cbrt-age", "fixed"]),
    min_gap_s=st.sampled_from([60.0, 90.0]),
    max_gap_s=st.sampled_from([None, 400.0]),
    polls_per_second=st.sampled_from([None, 2.0]),
    host_rate=st.sampled_from([None, 5.0, 0.005]),
)
fate = st.one_of(
    st.tuples(st.just("polled"), st.none()),
    st.tuples(st.just("forgive"), st.none()),
    st.tuples(st.just("request"), st.none()),
    st.tuples(st.just("hooked"), st.booleans()),
    st.tuples(
        st.just("failed"), st.tuples(st.sampled_from(FailureKind), st.sampled_from([None, 5.0, 4_000.0]))
    ),
)


@settings(max_examples=300, deadline=None)
@given(
    lone,
    st.sampled_from([None, 100.0, 3_600.0]),
    st.lists(fate, min_size=1, max_size=12),
    st.floats(-1.0, 1.0),
    st.floats(0.0, 1.0),
)
def test_a_repo_that_nobody_competes_with_is_taken_when_the_steps_say_and_not_before(
    config, interval, fates, jitter, part
):
    """Were the explanation a reckoning of its own, it would part from the queue's here."""
    it, now = Scheduler(config), T0
    spec = RepoSpec(ALONE, "https://a.org/1", Host("a.org"), Priority.HIGH, interval)
    it.add([Entry(spec)], now)
    for what, about in fates:
        at = it.explain(ALONE, now).next_poll_at
        assert at is not None
        if at > now:
            between = now + (at - now) * part
            assert between >= at or it.take(between) is None
            later = it.explain(ALONE, between).next_poll_at
            assert later == pytest.approx(at, abs=1e-3), "it does not move by waiting"
        now = max(now, at)
        match what:
            case "forgive" | "request":
                getattr(it, what)(ALONE, now)
            case "hooked":
                spec = replace(spec, hooked=about)
                it.add([Entry(spec)], now)
            case _:
                assert it.take(now) == ALONE, it.explain(ALONE, now)
                if what == "polled":
                    it.polled(ALONE, now)
                else:
                    failure = Failure(about[0], "x", retry_after_s=about[1])
                    verdict = it.failed(ALONE, failure, now, jitter=jitter)
                    assert verdict.next_attempt_at == it.explain(ALONE, now).next_poll_at


def test_where_many_compete_each_is_taken_within_a_few_polls_of_its_turn():
    it, keys = scheduler(host_rate=0.1, min_gap_s=0.0), [RepoKey(f"a/{n}") for n in range(20)]
    before = {key: RepoMemory(key, last_poll_at=T0 - 10 * n) for n, key in enumerate(keys)}
    it.add([replace(entry(key), memory=memory) for key, memory in before.items()], T0)
    run(it, T0 + 1_005)
    told = {key: it.explain(key, T0 + 1_005).next_poll_at for key in keys}
    taken = {}
    for at, key in run(it, T0 + 1_400, now=T0 + 1_005):
        taken.setdefault(key, at)
    assert max(abs(taken[key] - at) for key, at in told.items()) <= 20.0, "a poll takes 10 s of this rate"
    assert max(told.values()) - min(told.values()) > 150


def codes(it, key, now):
    return [str(step.code) for step in it.explain(RepoKey(key), now).steps]


def step(it, key, now, code):
    return next(s for s in it.explain(RepoKey(key), now).steps if s.code == code)


def test_a_repo_in_its_turn_says_how_often_and_when():
    it = scheduler("a/1", "a/2", host_rate=0.005, min_gap_s=10.0)
    assert it.take(T0) == "a/1"
    it.polled("a/1", T0)
    assert codes(it, "a/1", T0) == ["pushes", "policy_gap", "last_poll", "turn"]
    told = it.explain(RepoKey("a/1"), T0)
    assert step(it, "a/1", T0, "pushes").s == pytest.approx(86_400 / told.pushes_per_day)
    assert step(it, "a/1", T0, "policy_gap").s == told.aimed_gap_s == pytest.approx(400.0)
    assert step(it, "a/1", T0, "turn").at == told.next_poll_at == pytest.approx(T0 + 400)
    assert codes(it, "a/2", T0)[-1] == "budget", "the host's rate has no poll left before"
    assert it.explain(RepoKey("a/2"), T0).next_poll_at == pytest.approx(T0 + 200)
    assert (told.policy, told.min_gap_s, told.max_gap_s) == ("adaptive", 10.0, None)


def test_hooks_and_both_bounds_are_steps_of_their_own():
    it = scheduler(host_rate=0.01, min_gap_s=60.0, max_gap_s=500.0)
    it.add(hooked("a/h"), T0)
    it.add([entry("a/1")], T0)
    assert it.take(T0) == "a/h"
    it.polled("a/h", T0)
    told = {s.code: s for s in it.explain(RepoKey("a/h"), T0).steps}
    assert told["hooked"].s == pytest.approx(8 * told["policy_gap"].s)
    assert told["max_gap"].s == 500.0
    fast = scheduler(host_rate=None, min_gap_s=60.0)
    fast.add(hooked("a/h"), T0)
    fast.take(T0)
    fast.polled("a/h", T0)
    assert codes(fast, "a/h", T0) == [
        "pushes",
        "policy_gap",
        "hooked",
        "min_gap",
        "last_poll",
        "turn",
        "rest",
    ]
    assert step(fast, "a/h", T0, "min_gap").s == 480.0
    assert step(fast, "a/h", T0 + 470, "rest").at == T0 + 480


def test_the_age_of_the_last_commit_and_a_fixed_interval_take_the_place_of_pushes():
    it = scheduler(policy="cbrt-age")
    it.add([entry("a/1")], T0)
    it.take(T0)
    it.changed("a/1", T0)
    it.take_sync(T0)
    it.synced("a/1", T0, [T0 - 3_000])
    assert step(it, "a/1", T0, "age").s == 3_000
    fixed = scheduler("a/1", policy="fixed")
    assert codes(fixed, "a/1", T0) == ["interval", "due"]
    assert "class" in step(fixed, "a/1", T0, "interval").detail


def test_failures_weather_and_a_host_that_limits_us_come_after_its_turn():
    it = scheduler("a/1")
    it.take(T0)
    it.failed("a/1", Failure(FailureKind.UNKNOWN, "x"), T0)
    told = step(it, "a/1", T0 + 5, "backoff")
    assert (told.s, told.at, told.detail) == (60.0, T0 + 60, "retry after failure 1, UNKNOWN")
    limited = scheduler("a/1")
    limited.take(T0)
    limited.failed("a/1", Failure(FailureKind.RATE_LIMITED, "x", retry_after_s=900.0), T0)
    assert codes(limited, "a/1", T0)[-1] == "limited"
    assert it.request("a/1", T0 + 5)
    assert codes(it, "a/1", T0 + 5) == ["asked"]
    limited.request("a/1", T0 + 5)
    assert codes(limited, "a/1", T0 + 5) == ["asked", "limited"]
    storm = scheduler(*(f"a/{n}" for n in range(5)))
    for key in [storm.take(T0) for _ in range(5)]:
        storm.failed(key, Failure(FailureKind.NETWORK_TIMEOUT, "x"), T0)
    assert codes(storm, "a/1", T0)[-1] == "weather"


def test_what_is_under_way_or_quiet_has_no_time():
    it = scheduler("a/1")
    it.take(T0)
    assert codes(it, "a/1", T0) == ["running"]
    it.changed("a/1", T0)
    assert codes(it, "a/1", T0) == ["slot"]
    it.take_sync(T0)
    assert codes(it, "a/1", T0) == ["running"]
    it.add([replace(entry("a/q"), quiet=True)], T0)
    assert codes(it, "a/q", T0) == ["on_request"]
    assert it.explain(RepoKey("a/q"), T0).next_poll_at is None


def test_a_repo_asked_at_a_fallback_and_one_remembered_say_so():
    it = scheduler()
    spec = replace(entry("a/1").spec, fallbacks=("https://b/1",))
    it.add([Entry(spec, RepoMemory(spec.key, last_poll_at=T0 - 10, verified_at=T0 - 10))], T0)
    assert step(it, "a/1", T0, "last_poll").at == T0 - 10
    it.take(T0 + 100)
    it.failed("a/1", Failure(FailureKind.NOT_FOUND, "x"), T0 + 100)
    assert "b" in step(it, "a/1", T0 + 100, "detour").detail
