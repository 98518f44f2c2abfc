"""The aggregator's file: what is wanted and here outlives it, in one transaction with how far it was told."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.collect.decisions import DistrustWord, DropRow, PutRow
from evermirror.core.collect.events import Unused
from evermirror.core.collect.rows import Charge, Doubt, Here, How, Row, Suspicion
from evermirror.edge.store.collected import Collected, CollectedFigures
from evermirror.edge.store.collected_rows import row_in, row_out
from evermirror.model.failure import FailureError
from evermirror.model.kept import GuardMemory, GuardReason
from evermirror.model.messages import HeldRepo
from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId
from evermirror.model.repo import Host, Mode, Priority, RepoKey, RepoSpec

ONE, TWO = NodeId("worker/1"), NodeId("worker/2")


def digest(n: int) -> RefsDigest:
    return RefsDigest(f"{n:064x}")


def key(n: int) -> RepoKey:
    return RepoKey(f"h.org/{n:04d}")


def row(n: int, **known: object) -> Row:
    spec = RepoSpec(key(n), f"https://h.org/{n:04d}", Host("h.org"))
    return replace(Row(spec, seq=n), **known)  # type: ignore[arg-type]


def here(n: int = 1, how: How = How.UPSTREAM, source: NodeId = ONE, verified_at: float = 5.0) -> Here:
    return Here(digest(n), verified_at, how, source, 100 + n)


@pytest.fixture
async def file(tmp_path):
    opened = await Collected.open(tmp_path / "collected.db")
    yield opened
    await opened.close()


times = st.floats(0, 4e9)
digests = st.one_of(st.binary(min_size=32, max_size=32), st.binary(min_size=8, max_size=8)).map(
    lambda raw: RefsDigest(raw.hex())
)
rows = st.builds(
    Row,
    spec=st.builds(
        RepoSpec,
        key=st.text(min_size=1, max_size=20).map(RepoKey),
        url=st.text(max_size=20),
        host=st.just(Host("h.org")),
        priority=st.sampled_from(Priority),
        interval_s=st.none() | times,
        mode=st.sampled_from(Mode),
        private=st.booleans(),
        credential=st.none() | st.text(max_size=5),
        fallbacks=st.lists(st.text(max_size=5), max_size=2).map(tuple),
        fsck_allow=st.lists(st.text(max_size=5), max_size=2).map(tuple),
    ),
    seq=st.integers(0, 2**63 - 1),
    alias=st.none() | st.text(max_size=5),
    enabled=st.booleans(),
    held_back=st.booleans(),
    wanted=st.none() | digests,
    wanted_at=st.none() | times,
    changed_at=st.none() | times,
    size_bytes=st.integers(0, 2**60),
    untrusted=st.booleans(),
    here=st.none()
    | st.builds(Here, digests, times, st.sampled_from(How), st.just(ONE), st.integers(0, 2**60)),
    taken=st.none() | digests,
    place=st.none() | times,
    failures=st.integers(0, 99),
    retry_at=times,
    doubt=st.none()
    | st.builds(
        Doubt,
        times,
        st.integers(0, 9),
        st.lists(
            st.builds(
                Suspicion, st.just(TWO), st.sampled_from(Charge), digests, times, st.integers(0, 9), times
            ),
            max_size=2,
        ).map(tuple),
    ),
    guard=st.none()
    | st.builds(
        GuardMemory, st.sampled_from(GuardReason), times, st.integers(1, 9), digests, st.integers(0, 9)
    ),
)


@given(rows)
def test_every_row_comes_back_as_it_was(row):
    assert row_out(row_in(row)) == row


async def test_rows_and_how_far_they_reach_are_written_together(tmp_path):
    path = tmp_path / "collected.db"
    file = await Collected.open(path)
    assert (await file.since(), await file.row_of(key(1))) == (0, None)
    await file.write([PutRow(row(1)), PutRow(row(2, here=here())), DropRow(key(7))], since=9)
    broken = row(3, alias=object())
    with pytest.raises((FailureError, sqlite3.Error)):
        await file.write([PutRow(row(4)), PutRow(broken)], since=12)
    await file.close()
    file = await Collected.open(path)
    assert await file.since() == 9
    assert await file.rows_of([key(1), key(2), key(4)]) == {key(1): row(1), key(2): row(2, here=here())}
    await file.write([DropRow(key(1))])
    assert (await file.row_of(key(1)), await file.since()) == (None, 9)
    await file.close()


async def test_what_is_pending_is_read_in_order_and_in_parts(file):
    doubt = Doubt(again_at=2.0)
    pending = [row(5, place=1.0), row(3, place=2.0, doubt=Doubt(0.5)), row(4, doubt=doubt), row(1, place=3.0)]
    others = [row(2), row(6, here=here()), row(7, here=here(), place=0.5)]
    await file.write([PutRow(r) for r in [*pending, *others]])
    assert await file.pending(None, 10, first=True) == pending
    assert await file.pending(None, 10, first=False) == others[2:]
    part = await file.pending(None, 2, first=True)
    assert part == pending[:2]
    assert await file.pending((2.0, part[-1].key), 10, first=True) == pending[2:]
    await file.write([PutRow(row(5))])
    assert await file.pending(None, 10, first=True) == pending[1:]


async def test_repos_are_found_by_key_before_alias(file):
    await file.write([PutRow(row(1, alias="short")), PutRow(row(2, alias=key(1)))])
    assert (await file.find("short")).key == key(1)
    assert (await file.find(key(1))).key == key(1)
    assert await file.find("nothing") is None
    assert await file.find("\udcff") is None


async def test_audits_reach_every_untrusted_repo_that_is_here(file):
    fit = [row(n, here=here(n)) for n in range(10)]
    others = [row(20), row(21, here=here(), untrusted=False), row(22, here=here(), enabled=False)]
    assert await file.audited(0.5) is None
    await file.write([PutRow(r) for r in [others[0], *fit, *others[1:]]])
    picked = [await file.audited(n / 100) for n in range(100)]
    assert {r.key for r in picked} == {r.key for r in fit}


async def test_samples_reach_every_untrusted_repo_that_was_reported_and_is_not_here(file):
    fit = [row(n, wanted=here(n).digest) for n in range(5)]
    others = [row(20, wanted=None), row(21, here=here()), row(22, wanted=here(1).digest, untrusted=False)]
    assert await file.audited(0.5, first=True) is None
    await file.write([PutRow(r) for r in [others[0], *fit, *others[1:]]])
    picked = [await file.audited(n / 100, first=True) for n in range(100)]
    assert {r.key for r in picked} == {r.key for r in fit}


async def test_the_longest_unused_goes_first_and_what_just_came_last(file):
    await file.write([PutRow(row(n)) for n in (1, 2, 3)])
    await file.write([PutRow(row(n, here=here(n, verified_at=10.0 * n))) for n in (1, 2, 3)])
    assert [u.row.key for u in await file.least_used(5)] == [key(1), key(2), key(3)]
    await file.note_used({key(1): 99.0, key(8): 1.0})
    await file.write([PutRow(row(1, here=here(7, verified_at=1.0)))])  # fetched again: used when it was used
    later = [row(n, here=here(n, verified_at=10.0 * n)) for n in (2, 3)]
    assert await file.least_used(2, {key(3)}) == (Unused(later[0]), Unused(later[1], read=True))


async def test_an_accused_nodes_word_counts_no_more(file):
    kept = [row(1, here=here()), row(2, here=here(how=How.HOLDER, source=TWO))]
    lost = [row(3, here=here(how=How.HOLDER)), row(4, here=here(how=How.QUORUM), place=7.0)]
    await file.write([PutRow(r) for r in [*kept, *lost]])
    assert sorted(await file.write([DistrustWord(ONE, 50.0)])) == [key(3), key(4)]
    assert [h.key for h in await file.served(None, 10)] == [key(1), key(2)]
    pending = await file.pending(None, 10, first=False)
    assert [(r.key, r.place, r.served, r.here.how) for r in pending] == [
        (key(4), 7.0, False, How.DOUBTED),
        (key(3), 50.0, False, How.DOUBTED),
    ]


@pytest.mark.parametrize("how", How)
async def test_told_as_served_is_what_its_row_says_is_served(file, how):
    one = row(1, here=here(how=how))
    await file.write([PutRow(one)])
    assert bool(await file.served(None, 10)) is one.served


async def test_what_is_served_is_told_in_parts_and_counted(file):
    await file.write([PutRow(row(n, here=here(n))) for n in range(5)] + [PutRow(row(9, place=1.0))])
    first = await file.served(None, 3)
    assert first == [HeldRepo(key(n), digest(n), 5.0) for n in range(3)]
    assert [h.key for h in await file.served(first[-1].key, 3)] == [key(3), key(4)]
    assert await file.figures() == CollectedFigures(repos=6, here=5, pending=1, here_bytes=510)
    assert [r.key for r in await file.here_after(key(2), 9)] == [key(3), key(4)]


async def test_a_damaged_file_is_moved_aside_and_everything_is_asked_for_again(tmp_path):
    path = tmp_path / "collected.db"
    file = await Collected.open(path)
    await file.write([PutRow(row(1))], since=5)
    await file.close()
    path.write_bytes(b"no database at all" * 100)
    file = await Collected.open(path)
    assert (file.rebuilt, await file.since(), await file.row_of(key(1))) == (True, 0, None)
    await file.close()


async def test_it_is_known_whether_one_is_private(tmp_path):
    path = tmp_path / "collected.db"
    file = await Collected.open(path)
    public = row(1)
    await file.write([PutRow(public), PutRow(row(2))])
    assert not await file.any_private()
    await file.write([PutRow(replace(public, spec=replace(public.spec, private=True)))])
    assert await file.any_private()
    await file.write([DropRow(key(1))])
    assert not await file.any_private()
    await file.close()
    with sqlite3.connect(path) as connection:
        asked = "EXPLAIN QUERY PLAN SELECT 1 FROM repos WHERE json_extract(spec, '$.private') LIMIT 1"
        assert "USING INDEX repos_private" in connection.execute(asked).fetchone()[3]
    connection.close()
