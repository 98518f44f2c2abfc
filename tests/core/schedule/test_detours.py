"""Repos with several addresses: which one is asked, when, and at whose cost."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.schedule.detours import HOME_FIRST_S, HOME_LAST_S, Detour, Tried, at, judged
from evermirror.core.schedule.queue import Phase
from evermirror.core.schedule.weather import PROBE_FIRST_S, STORM_REPOS
from evermirror.model.address import AllowList
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import Host
from evermirror.model.url import LOCAL_HOST, UrlRules, host_in, parse_url
from tests.core.schedule.test_scheduler import SILENT, T0, entry, run, scheduler

GONE = Failure(FailureKind.NOT_FOUND, "HTTP 404")
HOME, FIRST, SECOND = "https://a/1", "https://b/1", "https://c/1"


def with_fallbacks(key="a/1", *urls):
    plain = entry(key)
    return replace(plain, spec=replace(plain.spec, fallbacks=urls))


def two_addresses(**settings):
    it = scheduler(**settings)
    it.add([with_fallbacks("a/1", FIRST)], T0)
    return it


def hosts(it, now=T0):
    return {view.host: view for view in it.hosts(now)}


def failed_at_home(it, now=T0, failure=GONE):
    assert it.take(now) == "a/1"
    assert it.address("a/1") == HOME
    return it.failed("a/1", failure, now)


# Where an attempt goes on


@pytest.mark.parametrize(
    "kind", [FailureKind.NETWORK_TIMEOUT, FailureKind.NOT_FOUND, FailureKind.AUTH_FAILED]
)
@pytest.mark.parametrize("while_syncing", [False, True])
def test_what_is_not_there_or_not_reachable_is_asked_elsewhere_at_once(kind, while_syncing):
    it = two_addresses(min_gap_s=3600.0)
    assert it.take(T0) == "a/1"
    if while_syncing:
        it.changed("a/1", T0)
        assert it.take_sync(T0) == "a/1"
    verdict = it.failed("a/1", Failure(kind, "no"), T0)
    assert (verdict.diverted, verdict.counted, verdict.failures) == (True, False, 0)
    assert it.take(T0) == "a/1"
    assert it.address("a/1") == FIRST


@pytest.mark.parametrize(
    "failure",
    [
        Failure(FailureKind.RATE_LIMITED, "slow down"),
        Failure(FailureKind.CONFLICT, "held"),
        Failure(FailureKind.DISK_FULL, "full"),
        Failure(FailureKind.PERMISSION_DENIED, "a target"),
        Failure(FailureKind.NETWORK_TIMEOUT, "damage here", corrupt=True),
    ],
)
def test_limits_guards_and_our_own_trouble_stay_where_they_are(failure):
    it = two_addresses()
    verdict = failed_at_home(it, failure=failure)
    assert not verdict.diverted
    assert it.address("a/1") == HOME


def test_an_answer_that_is_not_understood_counts_for_the_poll_and_not_for_the_transfer():
    odd = Failure(FailureKind.UNKNOWN, "odd")
    it = two_addresses()
    assert failed_at_home(it, failure=odd).diverted
    it = two_addresses()
    it.take(T0)
    it.changed("a/1", T0)
    it.take_sync(T0)
    assert not it.failed("a/1", odd, T0).diverted


def test_addresses_are_tried_in_their_order_each_once_and_then_the_attempt_has_failed_at_home():
    it = scheduler()
    it.add([with_fallbacks("a/1", FIRST, SECOND)], T0)
    asked = []
    verdict = None
    for _ in range(3):
        assert it.take(T0) == "a/1"
        asked.append(it.address("a/1"))
        verdict = it.failed("a/1", GONE, T0)
    assert asked == [HOME, FIRST, SECOND]
    assert (verdict.diverted, verdict.counted, verdict.failures) == (False, True, 1)
    assert it.take(T0) is None
    assert it.address("a/1") == HOME
    assert all(url in verdict.failure.context["addresses"] for url in asked)
    assert set(hosts(it)) == {"a"}, "hosts that nobody is at are forgotten"


def test_an_attempt_that_failed_everywhere_is_retried_as_soon_as_its_mildest_failure_allows():
    it = two_addresses()
    failed_at_home(it)
    it.take(T0)
    verdict = it.failed("a/1", SILENT, T0)
    assert verdict.failure.kind is FailureKind.NETWORK_TIMEOUT
    assert T0 < verdict.next_attempt_at <= T0 + 70
    assert judged((Tried(HOME, GONE, True), Tried(FIRST, SILENT, True))).message == SILENT.message
    assert judged((Tried(HOME, GONE, True),)) is GONE


def test_a_repo_without_fallbacks_is_as_before():
    it = scheduler("a/1")
    verdict = failed_at_home(it)
    assert (verdict.diverted, verdict.counted, verdict.failure) == (False, True, GONE)


# Living at a fallback, and going home


def test_it_lives_at_the_fallback_that_answered_and_its_failures_are_over():
    it = two_addresses()
    failed_at_home(it)
    it.take(T0)
    it.polled("a/1", T0 + 1)
    assert it.address("a/1") == FIRST
    assert it.explain("a/1", T0 + 1).failures == 0
    polls = run(it, T0 + HOME_FIRST_S - 1, now=T0 + 1, poll_s=1.0)
    assert polls
    assert it.address("a/1") == FIRST


def test_home_is_tried_first_again_and_wins_when_it_is_back():
    it = two_addresses(min_gap_s=60.0)
    failed_at_home(it)
    it.take(T0)
    it.polled("a/1", T0)
    assert it.take(T0 + HOME_FIRST_S) == "a/1"
    assert it.address("a/1") == HOME
    it.polled("a/1", T0 + HOME_FIRST_S)
    assert it.take(T0 + HOME_FIRST_S + 60) == "a/1"
    assert it.address("a/1") == HOME
    assert set(hosts(it)) == {"a"}


def test_home_that_stays_away_is_asked_more_and_more_rarely_within_a_bound():
    it = two_addresses(min_gap_s=60.0)
    asked = []

    def answer(it, key, now):
        if it.address(key) == HOME:
            asked.append(now)
            it.failed(key, GONE, now)
        else:
            it.polled(key, now)

    run(it, T0 + 5 * 86400, outcome=answer)
    gaps = [b - a for a, b in pairwise(asked)]
    assert gaps[0] == pytest.approx(HOME_FIRST_S, abs=61)
    assert max(gaps) == pytest.approx(HOME_LAST_S, abs=61)
    assert gaps == sorted(gaps)


def test_a_fallback_that_fails_sends_the_attempt_home():
    it = two_addresses()
    failed_at_home(it)
    it.take(T0)
    it.polled("a/1", T0)
    it.take(T0 + 1)
    assert it.address("a/1") == FIRST
    assert it.failed("a/1", SILENT, T0 + 1).diverted
    assert it.take(T0 + 1) == "a/1"
    assert it.address("a/1") == HOME


def test_a_fallback_that_was_taken_away_is_left_at_the_next_poll():
    it = two_addresses()
    failed_at_home(it)
    it.take(T0)
    it.polled("a/1", T0)
    it.add([entry("a/1")], T0 + 1)
    assert it.take(T0 + 1) == "a/1"
    assert it.address("a/1") == HOME
    it.polled("a/1", T0 + 1)
    assert set(hosts(it)) == {"a"}


def test_a_repo_that_leaves_while_it_lives_elsewhere_leaves_nothing_behind():
    it = two_addresses()
    failed_at_home(it)
    it.remove(["a/1"], T0)
    assert (len(it), hosts(it)) == (0, {})
    it = two_addresses()
    failed_at_home(it)
    it.take(T0)
    it.remove(["a/1"], T0)
    it.abandoned("a/1", T0)
    assert (len(it), hosts(it), it.polls_in_flight) == (0, {}, 0)


def test_the_pause_before_home_is_tried_again_has_no_overflow():
    assert Detour(FIRST, Host("b"), T0, times=10_000).home_due_at == T0 + HOME_LAST_S


# Whose budget


def test_the_rate_is_that_of_the_host_that_is_asked():
    it = scheduler(host_rate=1.0, max_gap_s=None)
    keys = [f"a{n}/x" for n in range(40)]  # every one has a host of its own, and one fallback for all
    it.add([with_fallbacks(key, f"https://b/{n}") for n, key in enumerate(keys)], T0)
    asked = []

    def answer(it, key, now):
        if it.address(key).startswith("https://b/"):
            asked.append(now)
            it.polled(key, now)
        else:
            it.failed(key, GONE, now)

    run(it, T0 + 100, outcome=answer)
    assert len(asked) > 40
    for second in range(100):
        assert sum(second <= t - T0 < second + 10 for t in asked) <= 10 + 2  # the bucket's depth


def test_connections_are_those_of_the_host_that_is_asked():
    it = two_addresses()
    failed_at_home(it)
    it.take(T0)
    assert {name: (view.repos, view.polls) for name, view in hosts(it).items()} == {"a": (0, 0), "b": (1, 1)}
    it.changed("a/1", T0)
    it.take_sync(T0)
    assert hosts(it)["b"].transfers == 1


def test_who_waits_is_served_at_the_fallback_without_waiting_for_a_token():
    it = scheduler("b/other", host_rate=0.01, polls_per_second=0.01)
    it.add([with_fallbacks("a/1", FIRST)], T0)
    it.request("a/1", T0)
    failed_at_home(it)
    assert it.take(T0) == "a/1"
    assert it.address("a/1") == FIRST


def test_a_quiet_repo_that_was_asked_for_goes_on_too_and_is_quiet_again():
    it = scheduler()
    it.add([replace(with_fallbacks("a/1", FIRST), quiet=True)], T0)
    it.request("a/1", T0)
    failed_at_home(it)
    assert it.take(T0) == "a/1"
    it.polled("a/1", T0)
    assert it.next_wake(T0) is None


# Weather


def silence(it, keys, now):
    """Those of ``keys`` that are asked at host a get no answer; returns who was asked where."""
    asked = []
    while (key := it.take(now)) is not None:
        asked.append(it.address(key))
        if it.address(key).startswith("https://a/"):
            it.failed(key, SILENT, now)
        else:
            it.polled(key, now)
        if len(asked) > 10 * len(keys):
            raise AssertionError("it spins")
    return asked


def polled_elsewhere(it, key, now):
    """Whether it was; a poll of host a stays in flight."""
    elsewhere = not it.address(key).startswith("https://a/")
    if elsewhere:
        it.polled(key, now)
    return elsewhere


def test_when_a_host_dies_all_that_have_another_address_leave_it_without_asking_it_first():
    it = scheduler("a/alone", "a/alone2", min_gap_s=60.0)
    keys = [f"a/{n}" for n in range(50)]
    it.add([with_fallbacks(key, f"https://b/{n}") for n, key in enumerate(keys)], T0)
    asked = silence(it, keys, T0)
    assert sum(url.startswith("https://a/") for url in asked) <= STORM_REPOS + 2
    assert len({url for url in asked if url.startswith("https://b/")}) == 50
    assert hosts(it)["a"].storm is FailureKind.NETWORK_TIMEOUT
    assert hosts(it)["a"].repos == 2, "those without fallbacks wait for it"


def test_a_dead_host_without_anybody_left_is_probed_by_one_at_a_time_and_all_come_home():
    it = scheduler(min_gap_s=60.0)
    keys = [f"a/{n}" for n in range(50)]
    it.add([with_fallbacks(key, f"https://b/{n}") for n, key in enumerate(keys)], T0)
    silence(it, keys, T0)
    for step in range(1, 20):
        now = T0 + step * 600
        probing = [
            key for key in iter(lambda at=now: it.take(at), None) if not polled_elsewhere(it, key, now)
        ]
        assert hosts(it)["a"].repos == len(probing) <= 1, "nobody else waits there for what it finds"
        for key in probing:
            it.failed(key, SILENT, now)
        asked = silence(it, keys, now + 60)
        assert sum(url.startswith("https://a/") for url in asked) <= 1
    back = T0 + 20 * 600
    run(it, back + HOME_LAST_S + 7200, now=back, poll_s=1.0)
    assert {it.address(key) for key in keys} == {f"https://{key}" for key in keys}
    assert set(hosts(it)) == {"a"}


def test_when_our_own_network_is_down_nobody_goes_anywhere():
    it = scheduler("x/1", "y/1", "z/1")
    for key in ("x/1", "y/1", "z/1"):
        it.request(key, T0)
        assert it.take(T0) == key
        it.failed(key, SILENT, T0)
    it.add([with_fallbacks("a/1", FIRST)], T0)
    it.request("a/1", T0)
    assert not failed_at_home(it, failure=SILENT).diverted


def test_a_host_that_asked_us_to_wait_is_passed_over():
    it = scheduler("b/other")
    it.request("b/other", T0)
    it.take(T0)
    it.failed("b/other", Failure(FailureKind.RATE_LIMITED, "wait", retry_after_s=100.0), T0)
    it.add([with_fallbacks("a/1", FIRST, SECOND)], T0)
    failed_at_home(it)
    it.take(T0)
    assert it.address("a/1") == SECOND


def test_the_storm_at_home_counts_against_nobody_even_if_the_fallback_fails_too():
    it = scheduler("a/2", "a/3", "a/4", "d/1", min_gap_s=60.0)
    it.request("d/1", T0)
    it.take(T0)
    it.polled("d/1", T0)  # our own network is there
    for key in ("a/2", "a/3", "a/4"):
        it.request(key, T0)
        it.take(T0)
        it.failed(key, SILENT, T0)
    it.add([with_fallbacks("a/1", FIRST)], T0 + PROBE_FIRST_S)
    it.request("a/1", T0 + PROBE_FIRST_S)
    failed_at_home(it, T0 + PROBE_FIRST_S, SILENT)
    it.take(T0 + PROBE_FIRST_S)
    verdict = it.failed("a/1", GONE, T0 + PROBE_FIRST_S)
    assert (verdict.diverted, verdict.counted) == (False, False)


# The parts


def test_a_credential_goes_to_its_own_host_only():
    spec = replace(with_fallbacks("a/1", FIRST, "https://a/2").spec, credential="secret")
    assert at(spec, HOME) is spec
    assert (at(spec, FIRST).host, at(spec, FIRST).credential) == ("b", None)
    assert at(spec, "https://a/2").credential == "secret"
    assert at(spec, "http://a:8080/2").credential is None


@pytest.mark.parametrize(
    "text",
    [
        "https://h.example/a/b.git", "http://h.example:8080/a", "ssh://git@h.example/a", "https://[2001:db8::1]/a",
        "ssh://git@[2001:db8::1]:2222/a",
    ],
)  # fmt: skip
def test_the_host_in_a_canonical_url_is_that_of_the_parsed_one(text):
    rules = UrlRules(frozenset({"https", "http", "ssh"}), allow=AllowList.parse(["2001:db8::/32"]))
    url = parse_url(text, rules)
    assert host_in(url.text) == url.host_key
    assert host_in("/srv/git/a") == LOCAL_HOST


# Any history

_WHAT = ("ok", "gone", "silent", "conflict", "limited", "changed", "remove", "add", "ask", "plain", "policy")
_STEPS = st.lists(
    st.tuples(st.sampled_from(_WHAT), st.integers(0, 5), st.floats(0.0, 4000.0)),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(_STEPS)
def test_after_any_history_the_books_are_right(steps):
    it = scheduler(min_gap_s=30.0, max_gap_s=7200.0, host_rate=5.0)
    keys = [f"{host}/{n}" for host in "ab" for n in range(3)]
    full = {key: with_fallbacks(key, f"https://b/f{key}", f"https://c/f{key}") for key in keys}
    it.add(full.values(), T0)
    now, flying = T0, {}
    failures = {
        "gone": GONE, "silent": SILENT, "conflict": Failure(FailureKind.CONFLICT, "held"),
        "limited": Failure(FailureKind.RATE_LIMITED, "wait", retry_after_s=60.0),
    }  # fmt: skip
    for what, which, pause in steps:
        now += pause
        while (key := it.take(now)) is not None:
            flying[key] = "poll"
        while (key := it.take_sync(now)) is not None:
            flying[key] = "sync"
        key = keys[which]
        if what == "remove":
            it.remove([key], now)
            it.abandoned(key, now)
            flying.pop(key, None)
        elif what in ("add", "plain"):
            it.add([full[key] if what == "add" else entry(key)], now)
        elif what == "ask":
            it.request(key, now)
        elif what == "policy":
            it.reconfigure(
                replace(it._standing.settings, policy=("adaptive", "cbrt-age", "fixed")[which % 3]), now
            )
        elif flying.get(key) == "poll" and what == "ok":
            it.polled(key, now)
            del flying[key]
        elif flying.get(key) == "poll" and what == "changed":
            it.changed(key, now)
            flying[key] = "waits"
        elif flying.get(key) == "sync" and what == "ok":
            it.synced(key, now)
            del flying[key]
        elif flying.get(key) in ("poll", "sync", "waits") and what in failures:
            it.failed(key, failures[what], now)
            del flying[key]
        assert it.polls_in_flight == sum(state == "poll" for state in flying.values())
        views = hosts(it, now)
        assert sum(view.repos for view in views.values()) == len(it)
        assert sum(view.polls for view in views.values()) == it.polls_in_flight
        waiting = [k for k in keys if k in it and it.explain(k, now).phase is Phase.WAITING]
        assert set(waiting).isdisjoint(flying)
    for key, state in list(flying.items()):
        if state == "poll":
            it.polled(key, now)
        else:
            it.failed(key, Failure(FailureKind.CONFLICT, "held"), now)
    asked = {key for _, key in run(it, now + 20_000, now=now)}
    assert asked == {key for key in keys if key in it}, "nobody is forgotten"
    it.remove(keys, now + 20_000)
    assert (hosts(it), it._known.flexible) == ({}, {})
