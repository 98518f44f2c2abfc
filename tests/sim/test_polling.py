import random
from dataclasses import asdict
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from evermirror.core.schedule.placement import first_part
from evermirror.errors import UsageError
from evermirror.sim.polling import Trace, Traces, load_traces, simulate

END = 1_787_443_200.0
DAY = 86400.0
REAL = Path(__file__).parents[3] / "shared" / "data" / "push_traces.npz"


def made_up(repos=20, days=60, seed=7):
    """Bursts of work on some days, busier in some repos than in others; the last repos are silent."""
    chance, traces = random.Random(seed), []
    for i in range(repos):
        pushes, at = [], END - days * DAY
        while i < repos * 0.7 and at < END:
            at += chance.expovariate(1.0 / (DAY * (0.3 + i)))
            for _ in range(chance.randrange(1, 8)):
                at += chance.expovariate(1.0 / 1800.0)
                pushes.append(at // 60 * 60)
        traces.append(Trace(f"r{i}", sorted({p for p in pushes if p <= END})))
    return Traces(tuple(traces), END)


def dumb_round_robin(traces, mean_gap_s, days, warm_in_days):
    """Every repo in turn, one poll every mean_gap / N: what all strides being equal must come to.

    After the first round, which does not count, they take turns in the order of their cut first strides."""
    n, start = len(traces.repos), traces.end - (days + warm_in_days) * DAY
    order = sorted(range(n), key=first_part)
    delays = []
    for i, trace in enumerate(traces.repos):
        first = start + order.index(i) * mean_gap_s / n
        for e in trace.pushes:
            if e > traces.end - days * DAY:
                turns = -(-(e - first) // mean_gap_s)
                delays.append(first + turns * mean_gap_s - e)
    return sum(delays) / len(delays)


@pytest.mark.parametrize("pushed", range(3))
def test_with_equal_strides_the_delays_are_those_of_a_round_robin(pushed):
    # Repos without a known push have equal strides, and the only push changes nothing before it is seen.
    traces = Traces(tuple(Trace(f"{n}", [END - 4000.0] * (n == pushed)) for n in range(3)), END)
    result = simulate(traces, "cbrt-age", 3600.0, days=2, warm_in_days=1)
    assert result.pushes == 1
    assert result.mean_s == pytest.approx(dumb_round_robin(traces, 3600.0, 2, 1), abs=1.0)


def test_the_budget_is_used_to_the_last_poll_and_every_push_is_seen_once():
    traces = made_up()
    for policy in ("adaptive", "cbrt-age"):
        result = simulate(traces, policy, 3600.0, days=20, warm_in_days=5)
        assert result.polls >= 20 * 24 * 20 - 1
        assert result.pushes == sum(e > END - 20 * DAY for t in traces.repos for e in t.pushes)
        assert 0 < result.p50_s <= result.mean_s <= result.p95_s <= result.largest_gap_s


def test_adaptive_is_better_than_cbrt_age_on_bursts():
    traces = made_up()
    delay = {p: simulate(traces, p, 3600.0, days=40, warm_in_days=5).mean_s for p in ("adaptive", "cbrt-age")}
    assert delay["adaptive"] < delay["cbrt-age"]


def test_the_same_run_twice_gives_the_same_figures():
    assert asdict(simulate(made_up(), "adaptive", 7200.0, days=10)) == asdict(
        simulate(made_up(), "adaptive", 7200.0, days=10)
    )


def test_traces_are_read_as_they_were_written(tmp_path):
    file = tmp_path / "t.npz"
    minutes = np.array([-30, -10, -5], dtype=np.int32)
    np.savez(
        file, name=["x", "y"], offset=[0, 1, 3], minutes_before_end=minutes, end_unix=END, shift_days=[0, 0]
    )
    traces = load_traces(file)
    assert traces.repos == (Trace("x", [END - 1800]), Trace("y", [END - 600, END - 300]))


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"name": ["x"], "offset": [0, 2], "minutes_before_end": [-1], "end_unix": END},
        {"name": ["x"], "offset": [0, 2], "minutes_before_end": [-1, -2], "end_unix": END},
        {"name": ["x"], "offset": [0, 1], "minutes_before_end": [5], "end_unix": END},
        {"name": ["x"], "offset": [0, 1], "minutes_before_end": ["?"], "end_unix": END},
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_its_name(tmp_path, arrays):
    file = tmp_path / "bad.npz"
    np.savez(file, **arrays)
    with pytest.raises(UsageError, match=r"bad\.npz"):
        load_traces(file)


GOOD = {
    "name": ["x", "y"],
    "offset": [0, 2, 4],
    "minutes_before_end": [-900, -5, -7, -3],
    "end_unix": np.int64(END),
}


@pytest.mark.parametrize(
    ("array", "value", "told"),
    [
        ("minutes_before_end", [-900.0, np.nan, -7.0, -3.0], "minutes_before_end holds other than whole"),
        ("minutes_before_end", [-np.inf, -5.0, -7.0, -3.0], "minutes_before_end holds other than whole"),
        ("minutes_before_end", [1j] * 4, "minutes_before_end holds other than whole"),
        ("minutes_before_end", [[-5, -5]] * 4, "minutes_before_end is not a plain list"),
        ("name", "x", "name is not a plain list"),
        ("offset", [0.0, np.inf, 4.0], "offset holds other than whole"),
        ("offset", [0, 9, 4], "offsets do not fit"),
        ("offset", [0, -2, 4], "offsets do not fit"),
        ("offset", [], "offsets do not fit"),
        ("end_unix", np.nan, "end_unix is not a time between"),
        ("end_unix", np.inf, "end_unix is not a time between"),
        ("end_unix", 1e300, "end_unix is not a time between"),
        ("end_unix", -5, "end_unix is not a time between"),
        ("end_unix", [1, 2], "not an .npz file of push histories"),
    ],
)
def test_arrays_that_cannot_be_histories_are_refused_by_name(tmp_path, array, value, told):
    file = tmp_path / "bad.npz"
    np.savez(file, **GOOD)
    assert len(load_traces(file).repos) == 2
    np.savez(file, **GOOD | {array: value})
    with pytest.raises(UsageError, match=rf"bad\.npz: {told}"):
        load_traces(file)


@pytest.mark.parametrize(
    ("array", "descr", "shape"),
    [
        ("minutes_before_end", "<f8", "(100000000000000,)"),
        ("minutes_before_end", "<f8", f"({10**30},)"),
        ("minutes_before_end", "<f8", "(-4,)"),
        ("name", "<U400000000000", "(2,)"),
    ],
)
def test_an_array_that_claims_more_than_it_can_be_is_refused(tmp_path, array, descr, shape):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (63 - (len(head) + 10) % 64) + b"\n"
    np.savez(tmp_path / "good.npz", **GOOD)
    with ZipFile(tmp_path / "good.npz") as good, ZipFile(tmp_path / "bad.npz", "w") as bad:
        for name in good.namelist():
            claimed = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head
            bad.writestr(name, claimed if name == f"{array}.npy" else good.read(name))
    with pytest.raises(UsageError, match=r"bad\.npz: not an \.npz file"):
        load_traces(tmp_path / "bad.npz")


def test_what_a_name_holds_does_not_reach_the_terminal(tmp_path):
    np.savez(tmp_path / "t.npz", **GOOD | {"name": ["\x1b[31m", "y"], "minutes_before_end": [-1, -2, -3, -3]})
    with pytest.raises(UsageError, match="not ascending") as told:
        load_traces(tmp_path / "t.npz")
    assert "\x1b" not in str(told.value)


def test_what_is_no_archive_is_refused_without_advice_to_unpickle_it(tmp_path):
    (tmp_path / "text.npz").write_text("not a zip")
    (tmp_path / "empty.npz").touch()
    (tmp_path / "half.npz").write_bytes(b"PK\x03\x04 and no more")
    np.save(tmp_path / "array.npy", np.arange(3))
    objects = {"name": np.array([{}]), "offset": [0], "minutes_before_end": [], "end_unix": END}
    np.savez(tmp_path / "objects.npz", **objects)
    for name in ("text.npz", "empty.npz", "half.npz", "array.npy", "objects.npz"):
        with pytest.raises(UsageError, match=f"{name}: not an .npz file of push histories") as e:
            load_traces(tmp_path / name)
        assert "pickle" not in str(e.value)
        assert "docs/guide.md" in e.value.hint


def test_a_missing_file_is_told_as_such(tmp_path):
    with pytest.raises(UsageError, match=r"missing\.npz cannot be read: No such file"):
        load_traces(tmp_path / "missing.npz")


def test_senseless_questions_are_refused():
    for arguments in ({"mean_gap_s": 0.0}, {"mean_gap_s": 60.0, "days": -1}, {"mean_gap_s": float("nan")}):
        with pytest.raises(UsageError):
            simulate(made_up(), "adaptive", **arguments)
    with pytest.raises(UsageError, match="36501 days cannot be simulated"):
        simulate(made_up(), "adaptive", 60.0, days=36_501)
    with pytest.raises(UsageError, match="no scheduling policy"):
        simulate(made_up(), "fifo", 60.0)
    with pytest.raises(UsageError, match="no traces"):
        simulate(Traces((), END), "adaptive", 60.0)


@pytest.mark.slow
@pytest.mark.parametrize("mean_gap_s", [600.0, 3600.0, 21600.0])
def test_adaptive_reaches_its_bar_on_real_histories(mean_gap_s):
    if not REAL.exists():
        pytest.skip(f"the bar was NOT checked: {REAL} is not here")
    traces = load_traces(REAL)
    delay = {p: simulate(traces, p, mean_gap_s).mean_s for p in ("adaptive", "cbrt-age")}
    assert delay["adaptive"] <= 0.88 * delay["cbrt-age"], delay
