"""What people may say of a repo when they add it."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.errors import UsageError
from evermirror.model.repo import Mode, Priority
from evermirror.model.url import UrlRules, parse_url
from evermirror.nodes.coordinator.tasks.submission import INFO_BYTES_MAX, apply_info, new_record

KNOWN = {
    "priority", "mode", "interval", "private", "credential", "enabled", "alias", "fsck_allow", "fsck_reason",
}  # fmt: skip
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.fixture
def record():
    return new_record(parse_url("https://github.com/Owner/Name.git", UrlRules()))


def apply(record, **info):
    return apply_info(record, info, credentials=frozenset({"corp"}))


def test_a_new_record_has_the_canonical_url_and_every_default(record):
    assert (record.key, record.spec.host) == ("github.com/Owner/Name", "github.com")
    assert (record.spec.priority, record.spec.interval_s, record.spec.mode) == (
        Priority.NORMAL,
        None,
        Mode.EXACT,
    )
    assert (record.spec.private, record.spec.credential, record.alias, record.enabled) == (
        False,
        None,
        None,
        True,
    )
    assert record.info == {}


@pytest.mark.parametrize(
    ("key", "value", "change"),
    [
        *(("priority", p.value, {"priority": p}) for p in Priority),
        *(("mode", m.value, {"mode": m}) for m in Mode),
        ("interval", "10m", {"interval_s": 600.0}),
        ("interval", "10s", {"interval_s": 10.0}),
        ("interval", None, {"interval_s": None}),
        ("private", True, {"private": True}),
        ("private", False, {"private": False}),
        ("credential", "corp", {"credential": "corp"}),
        ("credential", None, {"credential": None}),
    ],
)
def test_each_known_key_sets_its_own_field_and_is_kept_as_given(record, key, value, change):
    done = apply(record, **{key: value})
    assert done == replace(record, spec=replace(record.spec, **change), info={key: value})


@pytest.mark.parametrize(
    ("key", "value", "change"),
    [
        ("enabled", False, {"enabled": False}),
        ("enabled", True, {"enabled": True}),
        ("alias", "kernel/linux", {"alias": "kernel/linux"}),
        ("alias", None, {"alias": None}),
    ],
)
def test_each_key_about_the_record_sets_it(record, key, value, change):
    assert apply(record, **{key: value}) == replace(record, info={key: value}, **change)


def test_keys_that_are_not_given_stay_and_null_unsets(record):
    first = apply(record, priority="high", interval="2h", credential="corp", alias="a/b", note="x")
    second = apply(first, private=True)
    assert second.spec == replace(first.spec, private=True)
    assert second.info == {**first.info, "private": True}
    third = apply(second, interval=None, credential=None, alias=None)
    assert (third.spec.interval_s, third.spec.credential, third.alias) == (None, None, None)
    assert third.spec.priority is Priority.HIGH


def test_unknown_keys_are_kept_as_given_and_change_nothing_else(record):
    info = {"team": "kernel", "labels": [1, 2.5, None, {"a": True}], "Priority": "high", "": "empty"}
    done = apply_info(record, info, credentials=frozenset())
    assert done == replace(record, info=info)
    assert apply_info(done, {"team": None}, credentials=frozenset()).info == {**info, "team": None}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("priority", "urgent", "critical, high, normal, low"),
        ("priority", 1, "critical"),
        ("priority", None, "critical"),
        ("priority", ["high"], "critical"),
        ("priority", {"a": 1}, "critical"),
        ("mode", "loose", "exact, append-only"),
        ("mode", False, "exact"),
        ("interval", 600, "interval must be a text"),
        ("interval", True, "interval must be a text"),
        ("interval", ["10m"], "interval must be a text"),
        ("interval", "soon", "10m or 2h"),
        ("interval", "", "10m or 2h"),
        ("interval", "-5m", "10m or 2h"),
        ("interval", "9s", "shorter than 10s"),
        ("interval", "0s", "shorter than 10s"),
        ("private", 1, "private must be true or false"),
        ("private", "yes", "private must be true or false"),
        ("private", None, "private must be true or false"),
        ("enabled", 0, "enabled must be true or false"),
        ("enabled", "false", "enabled must be true or false"),
        ("credential", "other", "no credential named 'other'"),
        ("credential", "", "no credential named"),
        ("credential", 7, "credential must be a text"),
        ("alias", 7, "alias must be a text"),
        *(("alias", alias, "") for alias in ("", "../x", "a\nb")),
    ],
)
def test_a_wrong_value_is_refused_with_its_key_and_what_is_accepted(record, key, value, words):
    with pytest.raises(UsageError) as refused:
        apply(record, **{key: value})
    assert key in str(refused.value)
    assert words in str(refused.value)


def test_the_size_of_everything_said_is_bounded(record):
    fits = {"note": "x" * (INFO_BYTES_MAX - len(json.dumps({"note": ""})))}
    assert apply_info(record, fits, credentials=frozenset()).info == fits
    with pytest.raises(UsageError, match="larger than"):
        apply_info(record, {"note": fits["note"] + "x"}, credentials=frozenset())


def test_what_is_kept_of_a_repo_is_bounded_over_many_additions(record):
    """Each piece is small; together they would be a database."""
    for n in range(100):
        with contextlib.suppress(UsageError):
            record = apply(record, **{f"note{n}": "x" * 1000})
    assert len(json.dumps(record.info)) <= INFO_BYTES_MAX


@settings(max_examples=300, deadline=None)
@given(info=st.dictionaries(st.sampled_from(sorted(KNOWN)) | st.text(max_size=8), JSON_VALUES, max_size=4))
def test_any_json_is_taken_over_or_refused_and_taking_it_twice_changes_nothing_more(info):
    record = new_record(parse_url("https://github.com/o/n", UrlRules()))
    try:
        once = apply_info(record, info, credentials=frozenset())
    except UsageError:
        return
    assert dict(once.info) == info
    assert apply_info(once, info, credentials=frozenset()) == once
    assert (once.key, once.spec.url) == (record.key, record.spec.url)


def test_malformed_objects_are_allowed_for_a_reason_of_their_own(record):
    allowed = apply(record, fsck_allow=["HasDotgit"], fsck_reason=" vendored ")
    assert (allowed.spec.fsck_allow, allowed.fsck_reason) == (("hasDotgit",), "vendored")
    with pytest.raises(UsageError, match="needs fsck_reason"):  # the old reason was for something else
        apply(allowed, fsck_allow=["hasDotgit", "hasDot"])
    with pytest.raises(UsageError, match="needs fsck_reason"):
        apply(allowed, fsck_reason=None)
    by_a_line = replace(allowed, info={})
    with pytest.raises(UsageError, match="needs fsck_reason"):
        apply(by_a_line, fsck_reason=None)
    assert apply(by_a_line, fsck_reason="a fixture").fsck_reason == "a fixture"
    assert apply(allowed, priority="high").spec.fsck_allow == ("hasDotgit",)
    taken_back = apply(allowed, fsck_allow=None, fsck_reason=None)
    assert (taken_back.spec.fsck_allow, taken_back.fsck_reason) == ((), None)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("hasDotgit", "must be a list"),
        ([1], "must be a list"),
        (["nulInHeader"], "cannot be allowed: git calls it fatal"),
        (["missingTree"], "cannot be allowed: git cannot read"),
        (["has dotgit"], "no message id"),
        (["gitmoduleUrl"], "no message id"),
        ([f"newOne{n}" for n in range(17)], "more than 16"),
    ],
)
def test_what_cannot_be_allowed_is_refused_by_name(record, value, words):
    with pytest.raises(UsageError, match=words):
        apply(record, fsck_allow=value, fsck_reason="x")
