"""Made histories: the shape that the words promise, from a seed, and the file that they are kept in."""

import errno
from functools import cache

import numpy as np
import pytest

from evermirror.errors import UsageError
from evermirror.sim.polling import Trace, Traces, load_traces
from evermirror.sim.population import END, REPOS_MAX, Shape, check_new, made, save

DAY, HOUR, YEAR = 86_400.0, 3_600.0, 365.25 * 86_400.0


@cache
def population():
    return made(4000, seed=7)


def recent(days):
    return np.array([sum(e > END - days * DAY for e in t.pushes) for t in population().repos])


def test_the_same_seed_is_the_same_population_and_another_is_not():
    assert made(300, seed=5) == made(300, seed=5)
    assert made(300, seed=5) != made(300, seed=6)


def test_every_history_is_whole_minutes_ascending_and_before_the_end():
    traces = population()
    assert (len(traces.repos), traces.end) == (4000, END)
    assert traces.repos[3].name == "made-3"
    for trace in traces.repos:
        times = np.array(trace.pushes)
        assert len(times) >= 1, "every repo was pushed to once"
        assert (np.diff(times) >= 60.0).all()
        assert (times % 60.0 == 0).all()
        assert times[0] < END - 2 * YEAR
        assert times[0] >= END - 10 * YEAR - 60.0
        assert times[-1] < END


def test_most_are_silent_and_few_have_nearly_everything():
    counts = recent(180)
    assert 0.7 < (counts == 0).mean() < 0.88
    ranked = np.sort(counts)[::-1]
    assert 0.6 < ranked[:40].sum() / ranked.sum() < 0.95, "1 % of the repos have most of the pushes"
    active = counts[counts > 0]
    assert active.max() > 100 * np.median(active), "the tail is heavy"
    assert counts.max() <= 20_000, "and ends"


def test_rates_are_as_the_shape_says():
    even = Shape(spread=0.0, median_per_year=50.0)
    pushes = [len(t.pushes) - 1 for t in made(2000, 1, even).repos]
    assert np.mean(pushes) / even.years == pytest.approx(50.0, rel=0.05)


def test_pushes_come_in_bursts_of_minutes_days_and_months():
    def between_and_spread(shape):
        traces = made(400, 2, shape)
        each = [np.array([e for e in t.pushes if e > END - 2 * YEAR]) for t in traces.repos]
        soon = np.mean(np.concatenate([np.diff(e) < HOUR for e in each]))
        months = np.array([np.histogram(e, 12, (END - 2 * YEAR, END))[0] for e in each], dtype=float)
        return soon, (months.var(axis=1) / months.mean(axis=1)).mean()

    common = {"spread": 0.0, "median_per_year": 300.0}
    soon, clumped = between_and_spread(Shape(**common))
    plain = Shape(**common, session_pushes=1.0, spell_evenness=1e6, machines=1.0)
    soon_plain, clumped_plain = between_and_spread(plain)
    assert soon > 0.5 > 0.1 > soon_plain, "half of the pushes follow another within the hour"
    assert clumped_plain == pytest.approx(1.0, abs=0.1), "Poisson: as much variance as mean"
    assert clumped > 8 * clumped_plain


def test_people_keep_hours_and_weekends_and_machines_do_not():
    def by_hour_and_day(machines):
        shape = Shape(
            spread=0.0, median_per_year=500.0, machines=machines, session_pushes=1.0, spell_evenness=50
        )
        at = np.concatenate([t.pushes[1:] for t in made(600, 3, shape).repos])
        days = np.floor(at / DAY).astype(int)
        weekend = np.isin((days + 3) % 7, (5, 6))  # 1 January 1970 was a Thursday
        return np.bincount((at % DAY // HOUR).astype(int), minlength=24), weekend.mean()

    hours, weekend = by_hour_and_day(0.0)
    assert hours.max() > 1.5 * hours.min(), "time zones blur the day, and it still shows"
    assert 0.08 < weekend < 0.16, "two days of seven, at a quarter"
    hours, weekend = by_hour_and_day(1.0)
    assert hours.max() < 1.1 * hours.min()
    assert weekend == pytest.approx(2 / 7, abs=0.02)


def test_one_zone_has_a_night(monkeypatch):
    monkeypatch.setattr("evermirror.sim.population.ZONES", ((8, 1.0),))
    shape = Shape(spread=0.0, median_per_year=500.0, machines=0.0, session_pushes=1.0)
    at = np.concatenate([t.pushes[1:] for t in made(300, 3, shape).repos]) + 8 * HOUR
    hours = np.bincount((at % DAY // HOUR).astype(int), minlength=24)
    assert hours[10] > 8 * hours[3]
    assert hours[12] < 0.9 * hours[10], "noon"


def test_what_is_made_is_read_back_as_it_was(tmp_path):
    traces = made(200, seed=9)
    save(traces, tmp_path / "kept.npz")
    assert load_traces(tmp_path / "kept.npz") == traces


def test_a_file_that_cannot_be_written_is_told(tmp_path):
    with pytest.raises(UsageError, match=r"no/where\.npz cannot be written: No such file"):
        save(Traces((Trace("a", []),), END), tmp_path / "no" / "where.npz")


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch):
    def fails(file, **_):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", fails)
    with pytest.raises(UsageError, match="No space left"):
        save(Traces((Trace("a", []),), END), tmp_path / "kept.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_refused(tmp_path):
    there, dangling = tmp_path / "there.npz", tmp_path / "dangling.npz"
    there.touch()
    dangling.symlink_to(tmp_path / "nowhere")
    for path in (there, dangling):
        with pytest.raises(UsageError, match="is there already") as told:
            check_new(path)
        assert "remove it" in told.value.hint
    with pytest.raises(UsageError, match="No such file"):
        check_new(tmp_path / "no" / "where.npz")
    check_new(tmp_path / "new.npz")


@pytest.mark.parametrize("repos", [0, -5, REPOS_MAX + 1, 100_001])
def test_a_number_that_cannot_be_made_is_refused(repos):
    with pytest.raises(UsageError, match="cannot be made"):
        made(repos)


def test_numbers_that_make_no_sense_are_refused():
    with pytest.raises(UsageError, match="seed"):
        made(3, seed=-1)
    wrong = (
        {"years": 0.0},
        {"session_pushes": 0.5},
        {"machines": 1.5},
        {"oldest_years": 1.0},
        {"spread": -1.0},
    )
    for shape in wrong:
        with pytest.raises(ValueError, match=r"population|machines"):
            Shape(**shape)


def test_a_single_repo_can_be_made():
    assert len(made(1, seed=1).repos) == 1
