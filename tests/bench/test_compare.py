"""Two runs compared: what is worse beyond noise is named, what noise explains is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench import check
from bench.measure import Line, Sense
from bench.telling.compare import change_of, compare, median_error, paired
from bench.telling.results import Record, write
from tests.bench.records import CURVE, DULWICH, MACHINE, MEMORY, POLL, RECORD, ran, record_of

samples = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=12).map(tuple)
any_samples = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12).map(tuple)
units = st.sampled_from(["ms CPU", "s wall", "MB", "requests", "% of a core", "min"])


senses = st.sampled_from(list(Sense))
lines = st.builds(Line, st.just("x"), units, any_samples, st.one_of(st.just(()), any_samples), senses)


@given(lines)
@example(Line("x", "ms CPU", (5e-324,), (1.0,), Sense.TIMES_LESS))  # more times than a float can say
@example(Line("x", "ms CPU", (5e-324,), (100.0,), Sense.TIMES_AS_MUCH))  # fewer
def test_nothing_is_worse_or_better_than_itself(line):
    change = change_of("b", line, line)
    assert change.worse == 0
    assert not change.regressed
    assert not change.improved
    assert not change.missed_now


@given(st.tuples(samples, samples), st.tuples(samples, samples), senses, units)
def test_what_is_worse_one_way_is_better_the_other_way(old, new, sense, unit):
    a, b = (Line("x", unit, *sides, sense) for sides in (old, new))
    there, back = change_of("b", a, b), change_of("b", b, a)
    assert there.regressed == back.improved
    assert there.improved == back.regressed
    assert there.worse == pytest.approx(-back.worse)


tight = st.tuples(st.floats(0.01, 1e4), st.lists(st.floats(0.95, 1.05), min_size=3, max_size=12)).map(
    lambda drawn: tuple(drawn[0] * x for x in drawn[1])
)


@given(tight, tight, st.floats(2, 1000), units)
def test_twice_as_much_beyond_the_spread_is_always_named(ours, theirs, times, unit):
    slower = tuple(x * times for x in ours)
    for line, worse in (
        (Line("x", unit, ours, theirs, Sense.TIMES_LESS), slower),
        (Line("x", unit, ours, theirs, Sense.TIMES_AS_MUCH), slower),
        (Line("x", unit, ours, sense=Sense.AT_MOST), slower),
        (Line("x", unit, slower, sense=Sense.AT_LEAST), ours),
    ):
        assert change_of("b", line, replace(line, ours=worse)).regressed
        assert change_of("b", replace(line, ours=worse), line).improved


@given(tight, st.floats(0.92, 1.08))
def test_what_a_machine_does_from_hour_to_hour_is_never_named(ours, times):
    line = Line("x", "ms CPU", ours, (100.0, 101.0, 99.0))
    change = change_of("b", line, replace(line, ours=tuple(x * times for x in ours)))
    assert not change.regressed
    assert not change.improved


@given(samples, samples, st.integers(1, 3))
def test_a_machine_that_is_slower_for_both_sides_changes_no_ratio(ours, theirs, times):
    line = Line("x", "ms CPU", ours, theirs)
    both = replace(line, ours=tuple(x * times for x in ours), theirs=tuple(x * times for x in theirs))
    assert not change_of("b", line, both).regressed


def line(ours, theirs=(), sense=Sense.TIMES_LESS, unit="ms CPU"):
    return Line("x", unit, tuple(map(float, ours)), tuple(map(float, theirs)), sense)


@pytest.mark.parametrize(
    ("old", "new", "regressed"),
    [
        # Wide samples explain what tight ones do not.
        (line([1, 1.01, 1.02], [100, 100, 101]), line([1.3, 1.31, 1.32], [100, 100, 101]), True),
        (line([1, 1.6, 0.7], [100, 60, 140]), line([1.3, 2, 0.9], [100, 100, 101]), False),
        # The noise of the alternative counts as ours does.
        (line([1, 1, 1], [100, 100, 100]), line([1, 1, 1], [70, 71, 69]), True),
        (line([1, 1, 1], [100, 100, 100]), line([1, 1, 1], [70, 40, 120]), False),
        # Few samples tell little: two that happen to be near are no proof.
        (line([1, 1.05], (), Sense.AT_MOST), line([1.35, 1.4], (), Sense.AT_MOST), False),
        (line([1, 1.05] * 3, (), Sense.AT_MOST), line([1.35, 1.4] * 3, (), Sense.AT_MOST), True),
        # A lone timed sample: half as much again may be a bad minute, thrice is not.
        (line([10], (), Sense.AT_MOST), line([13], (), Sense.AT_MOST), False),
        (line([10], (), Sense.AT_MOST), line([30], (), Sense.AT_MOST), True),
        # A count is what it is.
        (line([13.9], (), Sense.AT_MOST, "min"), line([14.2], (), Sense.AT_MOST, "min"), False),
        (line([13.9], (), Sense.AT_MOST, "min"), line([15.0], (), Sense.AT_MOST, "min"), True),
        # None, and less than none.
        (line([0], (), Sense.AT_MOST, "lost"), line([0], (), Sense.AT_MOST, "lost"), False),
        (line([0], (), Sense.AT_MOST, "lost"), line([1], (), Sense.AT_MOST, "lost"), True),
        (line([1], (), Sense.AT_MOST, "lost"), line([0], (), Sense.AT_MOST, "lost"), False),
        (line([-5, -4, -6], (), Sense.AT_MOST), line([40, 41, 39], (), Sense.AT_MOST), True),
        (line([0], [9], Sense.TIMES_LESS, "processes"), line([9], [9], Sense.TIMES_LESS, "processes"), True),
        (line([9], [9], Sense.TIMES_LESS, "processes"), line([0], [9], Sense.TIMES_LESS, "processes"), False),
        # More is better.
        (
            line([100, 101, 99], (), Sense.AT_LEAST, "per s"),
            line([50, 51, 49], (), Sense.AT_LEAST, "per s"),
            True,
        ),
        (
            line([50, 51, 49], (), Sense.AT_LEAST, "per s"),
            line([100, 101, 99], (), Sense.AT_LEAST, "per s"),
            False,
        ),
    ],
)
def test_noise_is_judged_by_the_samples(old, new, regressed):
    assert change_of("b", old, new).regressed is regressed


def test_more_samples_make_a_median_surer():
    few, many = median_error((1.0, 1.1, 1.2), True), median_error((1.0, 1.1, 1.2) * 6, True)
    assert 0 < many < few
    assert median_error((5.0,), timed=False) == 0
    assert median_error((5.0,), timed=True) > 0


SLOW_POLL = replace(POLL, ours=tuple(x * 2 for x in POLL.ours))


def test_a_record_is_as_good_as_itself():
    healthy = replace(RECORD, benches=RECORD.benches[:3])
    found = compare(healthy, healthy)
    assert not found.failed
    assert len(found.changes) == 3
    assert (found.vanished, found.added, found.notes) == ((), (), ())
    assert found.improved == []


def test_a_regression_is_named_with_both_figures_and_its_noise():
    found = compare(record_of(ran("poll", POLL)), record_of(ran("poll", SLOW_POLL)))
    (change,) = found.regressed
    assert change.worse == pytest.approx(1.0)
    assert found.failed
    text = "\n".join(check.report(found))
    assert "poll: unchanged poll, ms CPU (against git ls-remote): 323 ×less → 161 ×less (100% worse" in text


def test_a_promise_that_is_just_missed_within_noise_is_told_and_no_failure():
    old = replace(POLL, ours=(0.11, 0.115, 0.12))
    found = compare(
        record_of(ran("poll", old)), record_of(ran("poll", replace(POLL, ours=(0.11, 0.12, 0.13))))
    )
    assert [c.new.promise for c in found.missed_now] == ["poll poll-next"]
    assert not found.failed


def test_a_promised_line_that_vanished_fails_and_another_is_only_named():
    plain = replace(DULWICH, promise="")
    found = compare(record_of(ran("poll", POLL, plain)), record_of(ran("poll", plain)))
    assert found.lost_promises == ("poll", "poll-next")
    assert found.failed
    found = compare(record_of(ran("poll", POLL, plain)), record_of(ran("poll", POLL)))
    assert [v.line for v in found.vanished] == [plain]
    assert not found.failed


def test_a_promised_chart_that_vanished_fails_too():
    found = compare(record_of(ran("growth", CURVE)), record_of(ran("growth", POLL)))
    assert found.lost_promises == ("growth-poll", "growth-queue")


def test_a_line_in_other_words_is_known_by_its_promise():
    reworded = replace(SLOW_POLL, what="a poll that finds nothing")
    pairs, gone, come = paired([POLL, DULWICH], [DULWICH, reworded])
    assert (POLL, reworded) in pairs
    assert not gone
    assert not come
    assert compare(record_of(ran("poll", POLL)), record_of(ran("poll", reworded))).regressed


def test_lines_that_cannot_be_told_apart_are_not_mixed_up():
    pairs, gone, come = paired([POLL, SLOW_POLL], [POLL, SLOW_POLL])
    assert pairs == []
    assert len(gone) == len(come) == 2


def test_a_benchmark_that_broke_fails_unless_it_was_broken():
    good, bad = record_of(ran("poll", POLL)), record_of(ran("poll", error="RuntimeError: no"))
    found = compare(good, bad)
    assert [b.name for b in found.broke] == ["poll"]
    assert not found.lost_promises
    assert found.failed
    assert not compare(bad, bad).failed
    assert [a.line for a in compare(bad, good).added] == [POLL]


def test_a_partial_run_is_judged_by_what_it_has_and_a_whole_one_by_all():
    both = record_of(ran("poll", POLL), ran("coordinator", MEMORY))
    part = record_of(ran("poll", POLL), whole=False)
    found = compare(both, part)
    assert not found.failed
    assert found.notes == ("not measured in NEW, so not judged: coordinator",)
    assert compare(both, replace(part, whole=True)).lost_promises == MEMORY.promises


def test_seconds_of_another_machine_are_not_judged_and_ratios_are():
    more = replace(MEMORY, ours=(900.0, 901.0))
    old = record_of(ran("poll", POLL), ran("coordinator", MEMORY))
    new = record_of(ran("poll", SLOW_POLL), ran("coordinator", more), machine={**MACHINE, "cores": 8})
    found = compare(old, new)
    assert [c.bench for c in found.regressed] == ["poll"]
    (note,) = found.notes
    assert "the machines differ (A CPU, 2 cores; now A CPU, 8 cores): 1 figures" in note


def test_the_clock_of_a_busy_machine_judges_only_ratios():
    wall, cpu = (Line("start", unit, (1.0, 1.0, 1.0), sense=Sense.AT_MOST) for unit in ("s wall", "s CPU"))
    ratio = replace(wall, theirs=(1.0, 1.0, 1.0), sense=Sense.TIMES_AS_MUCH, against="git")
    old = record_of(ran("poll", wall, cpu, ratio))
    slow = [replace(line, ours=(3.0, 3.0, 3.0)) for line in (wall, cpu, ratio)]
    idle = record_of(ran("poll", *slow))
    busy = replace(idle, machine={**MACHINE, "load_before": 4.0})
    assert [c.new for c in compare(old, idle).changes] == slow
    assert [c.new for c in compare(old, busy).changes] == slow[1:]
    assert "so 1 figures by the clock that have no alternative" in compare(old, busy).notes[1]


def test_a_busy_machine_is_said():
    found = compare(RECORD, replace(RECORD, machine={**MACHINE, "load_before": 4.0}))
    assert found.notes == ("NEW was measured on a busy machine (load 4.0 before it began)",)


def test_what_changed_its_meaning_is_not_compared():
    alone = replace(POLL, theirs=(), sense=Sense.AT_MOST)
    assert not compare(record_of(ran("poll", POLL)), record_of(ran("poll", alone))).changes
    counted = Line("connections", "", (3.0,))
    more = replace(counted, ours=(30.0,))
    assert not compare(record_of(ran("poll", counted)), record_of(ran("poll", more))).changes


def files(tmp_path, old: Record, new: Record) -> list[str]:
    for name, record in (("old.json", old), ("new.json", new)):
        write(record, tmp_path / name)
    return [str(tmp_path / "old.json"), str(tmp_path / "new.json")]


def test_the_command_tells_and_its_exit_code_says_it(tmp_path, capsys):
    good, slow = record_of(ran("poll", POLL)), record_of(ran("poll", SLOW_POLL))
    assert check.main(files(tmp_path, good, good)) == 0
    assert "1 figures compared: 0 worse, 0 better, 1 as before." in capsys.readouterr().out
    assert check.main(files(tmp_path, good, slow)) == 1
    assert "Worse beyond noise (1):" in capsys.readouterr().out
    assert check.main(files(tmp_path, slow, good)) == 0
    assert "Better beyond noise (1):" in capsys.readouterr().out


def test_tiny_sizes_empty_and_odd_files_are_refused(tmp_path, capsys):
    for odd, told in (
        (replace(RECORD, quick=True), "tiny sizes (--quick): it says nothing about speed"),
        (record_of(), "has no benchmark that ran"),
    ):
        for pair in ((RECORD, odd), (odd, RECORD)):
            assert check.main(files(tmp_path, *pair)) == 2
            assert told in capsys.readouterr().err
    write(RECORD, tmp_path / "old.json")
    assert check.main([str(tmp_path / "old.json"), str(tmp_path / "none.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_the_newest_result_in_full_size_is_taken(tmp_path, capsys):
    for name, record in (
        ("20261116T100000Z", RECORD),
        ("20261116T110000Z", RECORD),
        ("20261116T120000Z", replace(RECORD, quick=True)),
    ):
        write(record, tmp_path / f"{name}.json")
    assert check.newest(tmp_path).name == "20261116T110000Z.json"
    with pytest.raises(ValueError, match="has no result in full size: run `make bench`"):
        check.newest(tmp_path / "nowhere")
