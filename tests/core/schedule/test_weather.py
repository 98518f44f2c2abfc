from evermirror.core.schedule.weather import PROBE_LAST_S, WINDOW_S, Weather
from evermirror.model.failure import HOST_WIDE, Failure, FailureKind
from evermirror.model.repo import Host, RepoKey

A, B, C = Host("a"), Host("b"), Host("c")
SILENT = Failure(FailureKind.NETWORK_TIMEOUT, "no answer")
GONE = Failure(FailureKind.NOT_FOUND, "404")


def fail(weather, host, n, now, failure=SILENT):
    return weather.failed(host, RepoKey(f"{host}/{n}"), failure, now)


def with_hosts(*hosts):
    weather = Weather()
    for host in hosts:
        weather.of(host)
    return weather


def test_three_repos_failing_alike_are_the_hosts_weather_also_the_first_two():
    weather = with_hosts(A)
    assert fail(weather, A, 1, 0.0).own
    assert fail(weather, A, 2, 1.0).own
    third = fail(weather, A, 3, 2.0)
    assert not third.own
    assert third.uncounted == ((A, "a/1"), (A, "a/2"))
    assert not fail(weather, A, 4, 3.0).own


def test_one_repo_alone_on_its_host_is_its_own_failure():
    weather = with_hosts(A)
    assert all(fail(weather, A, 1, float(t)).own for t in range(50))


def test_failures_far_apart_or_of_different_kinds_are_the_repos_own():
    weather = with_hosts(A)
    assert all(fail(weather, A, n, n * WINDOW_S).own for n in range(5))
    weather = with_hosts(A)
    unknown = Failure(FailureKind.UNKNOWN, "?")
    assert fail(weather, A, 1, 0.0).own
    assert fail(weather, A, 2, 0.0, unknown).own
    assert fail(weather, A, 3, 0.0, GONE).own


def test_a_success_in_between_makes_them_the_repos_own():
    weather = with_hosts(A)
    fail(weather, A, 1, 0.0)
    fail(weather, A, 2, 1.0)
    weather.succeeded(A, 2.0)
    assert fail(weather, A, 3, 3.0).own


def test_a_healthy_host_may_say_of_many_repos_that_they_are_gone():
    weather = with_hosts(A)
    weather.succeeded(A, 0.0)
    assert all(fail(weather, A, n, 10.0 + n, GONE).own for n in range(20))
    assert not fail(weather, A, 99, WINDOW_S + 1.0, GONE).own  # nothing succeeded for a whole window


def test_what_is_no_weather_never_makes_a_storm():
    for kind in (FailureKind.RATE_LIMITED, FailureKind.DISK_FULL, FailureKind.CONFLICT):
        weather = with_hosts(A)
        for n in range(9):
            fail(weather, A, n, 0.0, Failure(kind, "x"))
        assert not weather.of(A).stormy
    weather = with_hosts(A)
    for n in range(9):
        assert fail(weather, A, n, 0.0, Failure(FailureKind.UNKNOWN, "bad object", corrupt=True)).own


def test_probes_slow_down_until_one_succeeds():
    weather, now = with_hosts(A), 0.0
    for n in range(3):
        fail(weather, A, n, now)
    gaps = []
    for _ in range(7):
        gaps.append(weather.of(A).probe_at - now)
        fail(weather, A, 9, now + 0.1)  # was on its way: not a probe
        now = weather.of(A).probe_at
        fail(weather, A, 1, now)
    assert gaps == [30, 60, 120, 240, 480, PROBE_LAST_S, PROBE_LAST_S]
    weather.succeeded(A, now)
    assert not weather.of(A).stormy


def test_an_answer_of_another_kind_ends_a_network_storm():
    weather = with_hosts(A)
    for n in range(3):
        fail(weather, A, n, 0.0)
    assert fail(weather, A, 1, 30.0, GONE).own
    assert not weather.of(A).stormy


def test_several_silent_hosts_are_our_own_network_and_count_against_nobody():
    weather = with_hosts(A, B, C)
    assert fail(weather, A, 1, 0.0).own
    assert fail(weather, B, 1, 1.0).own
    third = fail(weather, C, 1, 2.0)
    assert not third.own
    assert third.uncounted == ((A, "a/1"), (B, "b/1"))
    assert set(third.changed) == {A, B, C}
    assert weather.network_down


def test_both_of_two_hosts_silent_is_our_network_but_one_of_two_is_not():
    weather = with_hosts(A, B)
    assert fail(weather, A, 1, 0.0).own
    assert not fail(weather, B, 1, 1.0).own
    weather = with_hosts(A, B)
    weather.succeeded(B, 0.0)
    assert fail(weather, A, 1, 0.0).own


def test_one_host_that_answers_shows_that_it_is_not_our_network():
    weather = with_hosts(A, B, C, Host("d"))
    weather.succeeded(Host("d"), 0.0)
    assert all(fail(weather, host, 1, 1.0).own for host in (A, B, C))


def test_when_the_network_is_back_every_host_is_probed_at_once():
    weather = with_hosts(A, B, C)
    for host in (A, B, C):
        fail(weather, host, 1, 0.0)
    assert set(weather.succeeded(A, 10.0)) >= {B, C}
    assert weather.of(B).probe_at <= 10.0
    assert not weather.network_down


def test_a_host_that_limits_us_is_believed_within_bounds():
    for asked, waits in ((5.0, 5.0), (0.0, 1.0), (-3.0, 1.0), (float("nan"), 1.0), (1e12, 3600.0)):
        assert with_hosts(A).of(A).block(asked, 100.0) == 100.0 + waits


def test_a_host_that_does_not_say_how_long_waits_twice_as_long_each_time():
    host, now, waits = with_hosts(A).of(A), 0.0, []
    for _ in range(8):
        until = host.block(None, now)
        host.block(None, now + 0.5)  # the answer to a poll that was on its way: no repetition
        waits.append(until - now)
        now = host.blocked_until
    assert waits[:3] == [60.0, 120.0, 240.0]
    assert waits[-1] == 3600.0


def test_a_list_of_wrong_urls_is_no_weather():
    weather = with_hosts(A)
    for n in range(10):
        told = weather.failed(A, RepoKey(f"a/{n}"), GONE, float(n), seen_before=False)
        assert told.own
        assert not told.uncounted
    assert not weather.of(A).stormy
    assert [fail(weather, A, n, 20.0 + n, GONE).own for n in range(3)] == [True, True, False]


def test_a_host_that_never_answered_is_given_little_time_at_first_and_more_at_each_try():
    weather = with_hosts(A, B)
    given = [weather.of(A).patience_s]
    for t in range(3):
        fail(weather, A, 1, float(t))
        given.append(weather.of(A).patience_s)
    assert given == [10.0, 20.0, 40.0, 80.0]
    weather.succeeded(A, 9.0)
    assert weather.of(A).patience_s is None
    fail(weather, B, 1, 10.0, GONE)
    assert weather.of(B).patience_s is None, "it answered"


CHANGED_KEY = Failure(
    FailureKind.AUTH_FAILED, "the ssh host key has changed", context={HOST_WIDE: "host-key"}
)
REFUSED = Failure(FailureKind.AUTH_FAILED, "Permission denied (publickey)")


def test_a_failure_that_is_the_hosts_by_itself_counts_against_no_repo_not_even_the_first_unseen_one():
    weather = with_hosts(A)
    for n in range(2):
        judgement = weather.failed(A, RepoKey(f"a/{n}"), CHANGED_KEY, 10.0 + n, seen_before=False)
        assert (judgement.own, judgement.changed[-1:]) == (False, (A,))
    assert (weather.of(A).kind, weather.of(A).reason) == (FailureKind.AUTH_FAILED, CHANGED_KEY.message)
    weather.succeeded(A, 20.0)
    assert (weather.of(A).kind, weather.of(A).reason) == (None, "")


def test_probes_of_a_host_whose_key_changed_slow_down_to_ten_minutes():
    weather, now = with_hosts(A), 10.0
    weather.failed(A, RepoKey("a/1"), CHANGED_KEY, now)
    for _ in range(8):
        now = weather.of(A).probe_at
        weather.failed(A, RepoKey("a/1"), CHANGED_KEY, now)
    assert weather.of(A).probe_at - now == PROBE_LAST_S


def test_a_repo_that_is_refused_shows_that_the_host_key_is_right_again():
    weather = with_hosts(A)
    weather.failed(A, RepoKey("a/1"), CHANGED_KEY, 10.0)
    assert weather.failed(A, RepoKey("a/1"), REFUSED, 40.0).own, "the same kind, and about the repo"
    assert weather.of(A).kind is None
