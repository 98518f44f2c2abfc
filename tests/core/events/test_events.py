"""Events as they are made, chosen and written as JSON."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.events.choosing import PUBLIC_TYPES, choice
from evermirror.core.events.globs import matching
from evermirror.core.events.of_catalog import SINGLY_MAX, catalog_news, repo_removed
from evermirror.core.events.of_reports import REFS_NAMED, TEXT_MAX, events_of, refs_changed, since_told
from evermirror.core.events.of_turns import RepoBefore, recovered, status_changed
from evermirror.core.events.schema import event_json, iso
from evermirror.model.activity import Activity
from evermirror.model.event import Event, EventType
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.messages import Failed, Started, Synced, Verified
from evermirror.model.push import Pushed, PushedRef, RefOutcome
from evermirror.model.refs import RefChange
from evermirror.model.repo import RepoStatus

A = "example.org/team/a"
FAILURE = Failure(FailureKind.CONFLICT, "m" * 10_000, hint="h" * 10_000, stderr="secret-looking output")


def event(type_="repo.gone", *, repo=A, worker=None, data=None, public=True):
    return Event(1, type_, 1.5, repo, worker, data or {}, public)


def synced(**kwargs):
    fields = {
        "key": A, "task_ids": (), "digest": "a" * 64, "head_commit": None, "refs_count": 1, "changes": (),
        "changes_total": 0, "commits": 0, "received_bytes": 0, "size_bytes": 0, "first": False,
        "started_at": 5.0, "verified_at": 6.0, "ended_at": 7.0, "activity": Activity(),
    }  # fmt: skip
    return Synced(**fields | kwargs)


# Made


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("never_told", [True, False])
def test_what_moved_is_compared_with_what_was_told(first, never_told):
    report = synced(first=first, changes=(RefChange("refs/heads/a", None, "1" * 40),), changes_total=1)
    assert events_of(report, "w") == ()
    data = since_told(refs_changed(report, "w"), never_told=never_told).data
    assert data["first"] is never_told
    known = not first or never_told  # who cloned a repo that others know cannot say what moved
    assert (len(data["changes"]), data["changes_total"]) == ((1, 1) if known else (0, 0))


def test_long_names_are_told_as_far_as_there_is_room():
    changes = tuple(RefChange("refs/" + "x" * 4000, None, "1" * 40) for _ in range(100))
    data = refs_changed(synced(changes=changes, changes_total=100), "w").data
    assert data["changes_total"] == 100
    assert 5 < len(data["changes"]) < 10


def test_very_many_refs_are_counted_and_some_named():
    changes = tuple(RefChange(f"refs/tags/{n}", None, "1" * 40) for n in range(1000))
    data = refs_changed(synced(changes=changes, changes_total=50_000), "w").data
    assert (len(data["changes"]), data["changes_total"]) == (REFS_NAMED, 50_000)


def test_pushes_are_told_where_something_was_put_or_went_wrong():
    refs = tuple(PushedRef(f"r{n}", None, None, RefOutcome.REFUSED, "x" * 5000) for n in range(500))
    quiet, put = Pushed(1, None), Pushed(2, None, put_total=1, started_at=1.0, ended_at=3.5)
    wrong = Pushed(3, None, refs=refs, failure=FAILURE)
    told = events_of(synced(pushes=(quiet, put, wrong)), "w")
    assert [e.data["target"] for e in told] == [2, 3]
    assert (told[0].at, told[0].data["duration_s"], told[0].data["failure"]) == (3.5, 2.5, None)
    assert len(told[1].data["refs"]) == REFS_NAMED
    assert len(told[1].data["failure"]["error_message"]) == TEXT_MAX


@given(st.integers(0, 5000))
def test_failures_are_told_at_powers_of_two(count):
    report = Failed(A, (), FAILURE, True, count, 1.0, 2.0, None)
    assert bool(events_of(report, "w")) is (count in {2**n for n in range(13)})


def test_what_git_printed_is_in_no_event():
    told = events_of(Failed(A, (), FAILURE, True, 1, 1.0, 2.0, None), "w")
    assert "secret-looking" not in json.dumps(dict(told[0].data))


def test_other_reports_tell_nothing_by_themselves():
    assert events_of(Verified(((A, 1.0),)), "w") == ()
    assert events_of(Started(A, (), 1.0), "w") == ()


@pytest.mark.parametrize("status", RepoStatus)
def test_only_what_was_in_trouble_recovers(status):
    troubled = {RepoStatus.FAILING, RepoStatus.GONE, RepoStatus.AUTH, RepoStatus.HELD}
    assert (recovered(A, RepoBefore(status, 0, None), 1.0) is not None) is (status in troubled)
    assert recovered(A, RepoBefore(status, 1, FailureKind.UNKNOWN), 1.0) is not None


@pytest.mark.parametrize("before", RepoStatus)
@pytest.mark.parametrize("after", [*RepoStatus, None])
def test_gone_and_held_are_told_as_they_become_so(before, after):
    for last in (None, RepoStatus.GONE, RepoStatus.HELD):
        was = RepoBefore(before, 1, None, None if last is None else last.value)
        told = status_changed(A, was, after, FAILURE, 1.0)
        expected = after in (RepoStatus.GONE, RepoStatus.HELD) and after is not last
        assert (told is not None) is (expected and before is not RepoStatus.INACTIVE)


def test_a_change_of_the_catalog_is_told_one_by_one_up_to_a_bound():
    told = [repo_removed(A, 1.0)]
    assert catalog_news(told, 1.0, removed=SINGLY_MAX) is told
    [figures] = catalog_news(told, 1.0, added=1, changed=2, removed=SINGLY_MAX - 2)
    assert figures.data == {"added": 1, "changed": 2, "removed": SINGLY_MAX - 2}


# Chosen


@given(
    st.lists(st.text(alphabet="ab*?[].-/", max_size=6), max_size=4),
    st.lists(st.text(alphabet="ab*?/", max_size=6), max_size=4),
    st.text(alphabet="ab.-/", max_size=6),
    st.none() | st.text(alphabet="ab/", max_size=6),
)
def test_choice_is_what_the_globs_say(types, repos, type_, repo):
    by_type = not types or any(fnmatchcase(type_, glob) for glob in types)
    by_repo = not repos or (repo is not None and any(fnmatchcase(repo, glob) for glob in repos))
    assert choice(types, repos)(event(type_, repo=repo)) is (by_type and by_repo)


@given(st.text(alphabet="ab*?[]!-^.", max_size=9), st.text(alphabet="ab]-!^.\n", max_size=8))
def test_globs_fit_as_everywhere_else(glob, name):
    assert matching([glob, "zz"])(name) is fnmatchcase(name, glob)


@pytest.mark.parametrize("glob", ["*a" * 75 + "b*", "*?a" * 50 + "b*", "*[ab]" * 50 + "c"])
def test_no_glob_takes_long(glob):
    """One that tried all ways to fit would not end in this century."""
    assert not matching([glob])("a" * 2000)


def test_very_many_changes_at_once_are_told_to_whoever_wants_some_of_them():
    many = event("catalog.changed", repo=None)
    for types in ((), ("repo.*",), ("repo.removed",), ("catalog.*",)):
        assert choice(types, ("github.com/acme/*",))(many)
    assert not choice(("refs.*", "repo.gone"))(many)
    assert not choice(worker="w")(many)


def test_choice_by_worker():
    assert choice(worker="w")(event(worker="w"))
    assert not choice(worker="w")(event(worker="v"))
    assert not choice(worker="w")(event())


@pytest.mark.parametrize("type_", EventType)
def test_the_public_is_told_of_public_repos_alone(type_):
    wanted = choice(public_only=True)
    assert wanted(event(type_.value)) is (type_.value in PUBLIC_TYPES)
    assert not wanted(event(type_.value, public=False))
    about_others = ("worker.", "alert.", "hooks.", "task.", "push.", "catalog.")
    assert not (type_.value in PUBLIC_TYPES and type_.value.startswith(about_others))


# Written


@given(st.dictionaries(st.text(), st.text() | st.lists(st.text()), max_size=5), st.text())
def test_json_of_any_text_is_one_line_of_utf8(data, worker):
    text = event_json(event(worker=worker, data=data))
    assert "\n" not in text
    assert "\r" not in text
    read = json.loads(text.encode("utf-8"))
    assert list(read) == ["version", "id", "type", "at", "repo", "worker", "data"]
    if (worker + json.dumps(data, ensure_ascii=False)).isprintable():
        assert read["data"] == data


def test_bytes_that_are_no_text_are_replaced():
    name = b"refs/\xc3\xa9\xff".decode("utf-8", "surrogateescape")
    assert json.loads(event_json(event(data={"ref": name})))["data"]["ref"] == "refs/é\ufffd"
    assert json.loads(event_json(event(data={"x": "\ud800"})))["data"]["x"] == "?"


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000Z"),
        (1794830400.1234, "2026-11-16T12:00:00.123Z"),
        (float("nan"), "1970-01-01T00:00:00.000Z"),
        (1e300, "9999-12-31T23:59:59.000Z"),
    ],
)
def test_times(at, text):
    assert iso(at) == text


@pytest.mark.parametrize("end", ["\x85", "\u2028", "\u2029", "\x0b", "\x1c", "\r", "\n", "\udcc2\udc85"])
def test_an_event_is_one_line_to_every_reader(end):
    text = event_json(event(data={"ref": f"refs/heads/a{end}b"}))
    assert text.splitlines() == [text]
    assert json.loads(text)["data"]["ref"] == f"refs/heads/a{end}b".replace("\udcc2\udc85", "\x85")
