"""How loaded the source is: by its CPU, by our own polls, and who is believed."""

from __future__ import annotations

from random import Random

import pytest

from evermirror.core.pull.load import (
    HOSTS_MAX,
    SPELL_ANSWERS_MAX,
    SPELLS,
    WINDOW_MAX,
    LoadSignal,
    PollLoad,
    ToldLoad,
    cpu_load,
)
from evermirror.core.pull.pace import Pace
from evermirror.model.pull import Load, LoadLevel, Strategy
from evermirror.model.repo import Host
from tests.core.pull.small import FORGE, HOUR, MINUTE, NOW, SETTINGS, SHANGHAI

H, N, L = LoadLevel.HIGH, LoadLevel.NORMAL, LoadLevel.LOW


@pytest.mark.parametrize(("percent", "level"), [(0, L), (39.9, L), (40, N), (80, N), (80.1, H), (100, H)])
def test_the_cpu_is_high_above_80_and_low_below_40(percent, level):
    assert cpu_load(percent).level is level


def test_what_was_told_is_believed_for_a_while():
    told = ToldLoad()
    assert told.at(NOW) is None
    told.tell(cpu_load(83), NOW)
    assert told.at(NOW + 4 * MINUTE) == Load(H, "cpu 83 %")
    assert told.at(NOW + 6 * MINUTE) is None


def fed(*look_s, gap_s=5.0, load=None, start=NOW):
    load = load or PollLoad()
    for n, look in enumerate(look_s):
        if look is None:
            load.failed(start + n * gap_s)
        else:
            load.answered(FORGE, look, start + n * gap_s)
    return load


LATER = NOW + 25 * MINUTE


def used_to(took_s=0.1):
    """Knows what is usual, from half an hour ago."""
    return fed(*[took_s] * 60, gap_s=10.0)


def then(*look_s, gap_s=5.0):
    """What is said after these answers."""
    load = fed(*look_s, load=used_to(), start=LATER, gap_s=gap_s)
    return load.at(LATER + len(look_s) * gap_s)


def test_before_anything_is_usual_nothing_is_known():
    assert fed(*[0.1] * 60).at(NOW + 300) is None
    assert fed(*[0.1] * 200).at(NOW + 1000) is not None


def test_few_polls_say_nothing():
    assert then(*[0.1] * 7, gap_s=100.0) is None
    assert then(*[0.1] * 8) is not None


def test_polls_as_fast_as_usual_are_a_low_load():
    assert then(*[0.10, 0.11, 0.09] * 10).level is L


def test_polls_that_take_more_than_twice_as_long_are_a_high_load():
    found = then(*[0.24] * 120)
    assert found == Load(H, "polls take 2.4× as long as usual")


def test_between_the_two_nothing_changes():
    assert then(*[0.16] * 120).level is N


def test_one_slow_answer_is_no_load():
    assert then(*[0.1] * 20, 60.0).level is L


@pytest.mark.parametrize(("errors", "level"), [(0, L), (1, L), (2, N), (4, N), (6, H)])
def test_polls_that_fail_are_a_load_too(errors, level):
    looks = [0.1] * (25 - errors) + [None] * errors
    assert then(*looks, gap_s=0.5).level is level


def test_failures_are_a_load_also_where_nothing_is_usual_yet():
    assert fed(*[0.1] * 6, *[None] * 2).at(NOW + 60).level is H


@pytest.mark.parametrize("gap_s", [5.0, 60.0])
def test_answers_that_merely_vary_are_no_load(gap_s):
    """The spread of ls-remote as people see it: 100 to 500 ms."""
    chance, load, levels = Random(7), PollLoad(), []
    for n in range(int(24 * HOUR / gap_s)):
        now = NOW + n * gap_s
        load.answered(FORGE, chance.lognormvariate(-1.5, 0.4), now)
        found = load.at(now)
        levels.append(None if found is None else found.level)
    known = [level for level in levels if level is not None]
    assert len(known) > 0.95 * len(levels)
    assert known.count(H) == 0
    assert known.count(L) > 0.6 * len(known)


def test_hours_of_overload_do_not_become_the_usual():
    load = fed(*[0.1] * 2880, gap_s=30.0)  # a day
    fed(*[0.3] * 1440, load=load, start=NOW + 24 * HOUR, gap_s=30.0)  # twelve hours of it
    assert load.at(NOW + 36 * HOUR).level is H


def test_a_source_that_stays_slower_becomes_the_usual_in_the_end():
    load = used_to()
    fed(*[0.3] * 3600, load=load, start=LATER, gap_s=30.0)
    assert load.at(LATER + 30 * HOUR).level is L


def test_hosts_are_compared_with_themselves():
    load = PollLoad()
    for n in range(200):
        load.answered(Host("near"), 0.02, NOW + 5 * n)
        load.answered(Host("far"), 2.0, NOW + 5 * n)
    assert load.at(NOW + 1000).level is L


def test_old_polls_are_forgotten():
    assert used_to().at(NOW + HOUR) is None


def test_memory_is_bounded():
    load = PollLoad()
    for n in range(3 * HOSTS_MAX):
        load.answered(Host(f"h{n}"), 0.1, NOW)
    fed(*[0.1] * 100_000, load=load)
    assert len(load._polls) == WINDOW_MAX
    assert len(load._usual) == HOSTS_MAX
    usual = load._usual[FORGE]
    assert len(usual._spells) == SPELLS
    assert len(usual._answers) <= SPELL_ANSWERS_MAX


def test_an_outside_signal_goes_before_our_own_polls():
    pace = Pace(Strategy(), SHANGHAI, SETTINGS)
    fed(*[0.1] * 200, load=pace.polls)
    assert pace.load(NOW + 1000).level is L
    pace.outside.tell(cpu_load(90), NOW + 1000)
    assert pace.load(NOW + 1000).reason == "cpu 90 %"


@pytest.mark.parametrize("signal", [ToldLoad(), PollLoad()])
def test_both_are_signals(signal: LoadSignal):
    assert signal.at(NOW) is None
