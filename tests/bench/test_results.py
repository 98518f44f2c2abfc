"""The JSON of a run: what is written is read again, and what is no result is refused with a reason."""

from __future__ import annotations

import json

import pytest

from bench.measure import Curve, Line, Series
from bench.telling.results import SCHEMA, UnreadableError, faults_of, read, text_of, write
from tests.bench.records import CURVE, POLL, RECORD, ran, record_of


def test_a_record_is_read_as_it_was_written(tmp_path):
    file = tmp_path / "new" / "one.json"
    write(RECORD, file)
    assert read(file) == RECORD
    assert [f.name for f in file.parent.iterdir()] == ["one.json"]


def test_the_file_tells_the_figures_to_those_who_read_it_with_other_tools():
    told = json.loads(text_of(RECORD))
    line = told["benches"][0]["lines"][0]
    assert line["figure"] == pytest.approx(35.5 / 0.11, rel=1e-5)
    assert line["met"] is True
    assert told["machine"]["cores"] == 2
    assert told["schema"] == SCHEMA


def test_what_is_infinitely_better_is_still_json():
    none = Line("processes", "", (0.0,), (9.0,))
    assert json.loads(text_of(record_of(ran("poll", none))))["benches"][0]["lines"][0]["figure"] is None


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (POLL, ""),
        (CURVE, ""),
        (Line("x", "ms", ()), "“x” has no samples"),
        (Line("x", "ms", (1.0,), (float("nan"),)), "“x” has samples that are no numbers"),
        (Curve("c", "x", "y", ()), "the chart “c” has no points"),
        (Curve("c", "x", "y", (Series("", ((1.0, float("inf")),)),)), "the chart “c” has points that are no"),
        (Curve("c", "x", "y", (Series("", ((2.0, 1.0), (1.0, 1.0))),)), "not in ascending order"),
    ],
)
def test_what_would_make_a_figure_without_meaning_is_found(found, fault):
    assert fault in faults_of(found)
    assert bool(fault) == bool(faults_of(found))


def broken(change):
    told = json.loads(text_of(RECORD))
    change(told)
    return json.dumps(told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not JSON"),
        (text_of(RECORD)[:500], "was its writing cut off?"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a result of `make bench`"),
        ('{"at": 1}', "not a result of `make bench`"),
        (broken(lambda t: t.pop("schema")), "is of schema 1, this reads 2: measure again"),
        (broken(lambda t: t.update(schema=3)), "is of schema 3"),
        (broken(lambda t: t.pop("machine")), "damaged: 'machine' is missing"),
        (broken(lambda t: t.update(quick="no")), "'no' should be true or false"),
        (broken(lambda t: t.update(at="yesterday")), "damaged"),
        (broken(lambda t: t.update(benches={})), "should be a list"),
        (broken(lambda t: t["benches"].append(7)), "7 should be an object"),
        (
            broken(lambda t: t["benches"][0]["lines"][0].update(ours=[])),
            "in poll, “unchanged poll” has no samples",
        ),
        (broken(lambda t: t["benches"][0]["lines"][0].update(ours=["1"])), "'1' should be a number"),
        (broken(lambda t: t["benches"][0]["lines"][0].update(sense="MORE")), "'MORE' is missing"),
        (broken(lambda t: t["benches"][2]["curves"][0]["series"][0].update(points=[[1]])), "damaged"),
    ],
)
def test_a_file_that_is_no_result_is_refused_with_a_reason(text, told, tmp_path):
    file = tmp_path / "odd.json"
    file.write_text(text)
    with pytest.raises(UnreadableError) as refused:
        read(file)
    assert told in str(refused.value)
    assert str(file) in str(refused.value)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path):
    with pytest.raises(UnreadableError, match="No such file or directory; `make bench` writes one"):
        read(tmp_path / "none.json")
    with pytest.raises(UnreadableError, match="cannot be read"):
        read(tmp_path)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnreadableError, match="not JSON"):
        read(tmp_path / "bytes.json")
