"""Kept tips have names that any ref can have, that never conflict, and that can be read back."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.keep.names import (
    KEPT,
    PIECE_CHARS,
    KeptTip,
    Why,
    expired,
    flat,
    free_time,
    kept_name,
    kept_tip,
    parse_kept,
    stamp_of,
    time_of,
    unflat,
)
from evermirror.edge.git.lsrefs import valid_name
from evermirror.model.refs import Oid

OLD, NEW = Oid("a" * 40), Oid("b" * 40)
NAMES = [
    "refs/heads/a",
    "refs/heads/a/b",
    "refs/heads/a.b",
    "refs/heads/a%2Fb",
    "refs/heads/+x/=y",
    "refs/heads/-rf",
    "refs/heads/@",
    "refs/heads/…日本",
    "refs/heads/\udcff\udcfe",
    "refs/heads/" + "x" * 250,
    "refs/heads/" + "日" * 80,
    "refs/heads/" + "日/" * 300 + "x",
    "refs/heads/x.lockx",
]
ref_names = st.one_of(
    st.sampled_from(NAMES),
    st.binary(min_size=1, max_size=700).map(lambda b: "refs/heads/" + b.decode("utf-8", "surrogateescape")),
)


@pytest.mark.parametrize("ref", NAMES)
def test_git_takes_the_kept_name_of_every_name(ref):
    for why, new in ((Why.DELETED, None), (Why.REWRITTEN, NEW)):
        name = kept_name(ref, 1_700_000_000.123, why, new)
        raw = name.encode("utf-8", "surrogateescape")
        assert valid_name(raw)
        assert subprocess.run([b"git", b"check-ref-format", raw], check=False).returncode == 0
        assert parse_kept(name, OLD) == KeptTip(name, ref, 1_700_000_000.123, why, OLD, new)


@given(ref_names)
def test_any_name_is_read_back_from_its_flat_form(ref):
    assert unflat(flat(ref)) == ref
    assert all(len(p.encode("utf-8", "surrogateescape")) <= PIECE_CHARS + 1 for p in flat(ref).split("/"))


@given(ref_names, ref_names)
def test_no_kept_name_is_another_or_a_folder_of_it(one, other):
    if one != other:
        assert not (flat(one) + "/").startswith(flat(other) + "/")


@pytest.mark.parametrize(
    "name",
    [
        "refs/heads/main",
        KEPT,
        KEPT + "x/deleted-gone/=a",
        KEPT + "20261399T000000000Z/deleted-gone/=a",
        KEPT + "20261115T203000123Z/deleted-gone/a",
        KEPT + "20261115T203000123Z/eaten-gone/=a",
        KEPT + "20261115T203000123Z/deleted-12/=a",
        KEPT + "20261115T203000123Z/deleted-gone/=%61",
        KEPT + "20261115T203000123Z/deleted-gone/=a/=b",
        KEPT + "20261115T203000123Z/deleted-gone/=a\n",
    ],
)
def test_a_name_that_we_did_not_give_is_not_taken_for_ours(name):
    assert parse_kept(name, OLD) is None


@given(st.integers(0, 253_402_300_799_999), st.integers(0, 253_402_300_799_999))
def test_stamps_sort_like_times_and_are_read_back(one, other):
    assert (stamp_of(one / 1000) < stamp_of(other / 1000)) == (one < other)
    assert round((time_of(stamp_of(one / 1000)) or 0) * 1000) == one


def test_a_clock_that_stands_still_or_goes_back_gives_every_sync_a_stamp_of_its_own():
    used = set()
    for _ in range(50):
        at = free_time(1_700_000_000.0, used)
        assert stamp_of(at) not in used
        used.add(stamp_of(at))


def test_only_what_is_older_than_the_retention_is_forgotten_and_nothing_where_it_is_forever():
    tips = [kept_tip("refs/heads/x", at, Why.DELETED, OLD, None) for at in (100.0, 200.0)]
    assert expired(tips, 250.0, 100.0) == (tips[0],)
    assert expired(tips, 200.0, 100.0) == ()
    assert expired(tips, 1e9, None) == ()
