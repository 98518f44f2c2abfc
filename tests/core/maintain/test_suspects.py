"""A suspected mirror is checked soon; clients cannot have it checked again and again."""

from __future__ import annotations

from evermirror.core.maintain import suspects
from evermirror.core.maintain.suspects import Suspects
from evermirror.model.repo import RepoKey

X, Y = RepoKey("h/x"), RepoKey("h/y")


def test_a_suspect_is_checked_once_however_many_clients_ask():
    them = Suspects()
    assert [them.suspect(X, 0.0) for _ in range(1000)].count(True) == 1
    assert them.take(0.0) == X
    assert not them.suspect(X, 0.0)  # under check
    assert them.take(0.0) is None


def test_a_sound_mirror_rests_the_longer_the_longer_its_check_took():
    them = Suspects()
    for took_s, rest_s in ((1.0, suspects.REST_S), (3600.0, 3600.0 * suspects.REST_FACTOR)):
        now = rest_s * 1000
        assert them.suspect(X, now)
        them.take(now)
        them.checked(X, now, took_s, damaged=False)
        assert not them.suspect(X, now + rest_s - 1)
        assert them.suspect(X, now + rest_s)
        them.drop(X)


def test_checks_of_one_mirror_take_a_twentieth_of_the_time_at_most():
    them, now, checking = Suspects(), 0.0, 0.0
    while now < 1e6:
        if them.suspect(X, now):
            them.take(now)
            now += 500.0
            checking += 500.0
            them.checked(X, now, 500.0, damaged=False)
        now += 10.0
    assert checking / now <= 0.05


def test_a_damaged_mirror_is_looked_at_again_soon():
    them = Suspects()
    them.suspect(X, 0.0)
    them.take(0.0)
    them.checked(X, 0.0, 3600.0, damaged=True)
    assert not them.suspect(X, suspects.DAMAGED_REST_S - 1)
    assert them.suspect(X, suspects.DAMAGED_REST_S)


def test_a_check_that_is_broken_off_comes_again_and_not_without_end():
    them, now = Suspects(), 0.0
    them.suspect(X, now)
    for _ in range(suspects.INTERRUPTIONS_MAX):
        assert them.take(now) == X
        assert them.may_interrupt(X)
        them.again(X, now)
        assert them.take(now) is None
        now += suspects.AGAIN_S
    them.take(now)
    assert not them.may_interrupt(X)


def test_one_that_waits_for_its_next_try_holds_up_nobody():
    them = Suspects()
    them.suspect(X, 0.0)
    them.take(0.0)
    them.again(X, 0.0)
    them.suspect(Y, 0.0)
    assert them.take(0.0) == Y


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(suspects, "WAITING_MAX", 10)
    monkeypatch.setattr(suspects, "RESTING_MAX", 10)
    them = Suspects()
    keys = [RepoKey(f"h/{n}") for n in range(100)]
    assert sum(them.suspect(key, 0.0) for key in keys) == 10
    for key in keys:
        them.checked(key, 0.0, 1.0, damaged=False)
    assert len(them._rests) == 10
