"""A person's words find the kept tip that was meant, or are told why not."""

from __future__ import annotations

import pytest

from evermirror.core.keep.choose import choose, shown_date
from evermirror.core.keep.names import kept_tip
from evermirror.errors import Conflict, NotFound, UsageError
from evermirror.model.kept import Why
from evermirror.model.refs import Oid

T = 1_794_774_600.123  # 2026-11-15T20:30:00.123Z
A, B, C = (Oid(c * 40) for c in "abc")


def tip(ref, at, old=A):
    return kept_tip(ref, at, Why.DELETED, old, None)


MAIN = [
    tip("refs/heads/main", T, A),
    tip("refs/heads/main", T + 60, B),
    tip("refs/heads/main", T + 86_400, C),
]
TIPS = [*MAIN, tip("refs/tags/v1", T), tip("refs/heads/v1.0/x", T), tip("refs/heads/\udcff", T)]


def test_a_date_is_shown_so_that_it_can_be_given_back():
    assert shown_date(T) == "2026-11-15T20:30:00.123Z"
    for one in TIPS:
        assert choose(TIPS, one.ref, shown_date(one.at)) == one


@pytest.mark.parametrize("ref", ["main", "refs/heads/main"])
def test_without_a_date_the_newest_is_meant(ref):
    assert choose(TIPS, ref, None).old == C


@pytest.mark.parametrize("date", ["2026-11-15T20:31", "20261115T2031", "2026-11-15 20:31:00"])
def test_the_beginning_of_a_date_is_enough(date):
    assert choose(TIPS, "main", date).old == B


def test_the_hidden_name_finds_a_ref_whose_name_is_no_text():
    assert choose(TIPS, TIPS[-1].name, None) == TIPS[-1]


def test_what_may_mean_several_is_not_guessed():
    with pytest.raises(Conflict, match="2 tips") as error:
        choose(TIPS, "main", "2026-11-15")
    assert "2026-11-15T20:31:00.123Z" in error.value.hint
    both = [tip("refs/heads/v1", T), tip("refs/tags/v1", T)]
    with pytest.raises(Conflict, match="both a branch and a tag"):
        choose(both, "v1", None)


@pytest.mark.parametrize(("ref", "date"), [("nope", None), ("ain", None), ("main", "2025"), ("v1.0", None)])
def test_what_is_not_kept_is_not_found(ref, date):
    with pytest.raises(NotFound):
        choose(TIPS, ref, date)


@pytest.mark.parametrize("date", ["", "yesterday", "2026/11/15", "٢٠٢٦", "1" * 41])
def test_what_is_no_date_is_said_to_be_none(date):
    with pytest.raises(UsageError):
        choose(TIPS, "main", date)
