"""A byte of a node's own file is flipped: it opens and can be read, or it is set aside and made anew."""

from __future__ import annotations

import random
import sqlite3

import pytest

from evermirror.core.collect.decisions import PutRow
from evermirror.core.collect.rows import Doubt, Row
from evermirror.edge.store.collected import Collected
from evermirror.edge.store.local import LocalState
from evermirror.edge.store.own_file import DAMAGED_KEPT, Layout, OwnFile
from evermirror.edge.store.report_log import LoggedReport, ReportLog
from evermirror.errors import EnvironmentUnfit
from evermirror.model.activity import Activity
from evermirror.model.failure import FailureKind
from evermirror.model.memory import RepoMemory
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import Host, Priority, RepoKey, RepoSpec

KEYS = [RepoKey(f"a.test/team/repo-{n}") for n in range(8)]
USER_VERSION = 63  # the last byte of that number in the header: a higher one may be a newer program's
FLIPS = 150  # of each file; each byte of it with the same chance


async def local(path):
    state = await LocalState.open(path, clock=lambda: 0.0)
    try:
        if not await state.load():
            digest, activity = RefsDigest("ab" * 32), Activity((1.0, 2.0, 3.0), 5.0, 6.0)
            memories = [
                RepoMemory(key, activity, 1.0, 2.0, digest, b"mark", 3, FailureKind.UNKNOWN) for key in KEYS
            ]
            await state.save(memories)
        await state.assigned()
        return state.rebuilt
    finally:
        await state.close()


async def collected(path):
    file = await Collected.open(path, clock=lambda: 0.0)
    try:
        if not await file.rows_of(KEYS):
            specs = [RepoSpec(key, f"https://{key}", Host("a.test"), Priority.HIGH, None) for key in KEYS]
            rows = [Row(spec, 1, wanted=RefsDigest("cd" * 32), doubt=Doubt(3.0)) for spec in specs]
            await file.write([PutRow(row) for row in rows], 7)
        await file.since()
        await file.pending(None, 100, first=True)
        await file.figures()
        return file.rebuilt
    finally:
        await file.close()


async def reports(path):
    file = await ReportLog.open(path, clock=lambda: 0.0)
    try:
        if not await file.read(0, 1):
            await file.append([LoggedReport(b"report %d" % n) for n in range(8)])
        await file.read(0, 1000)
        return False
    finally:
        await file.close()


@pytest.mark.parametrize("use", [local, collected, reports])
async def test_it_opens_or_is_set_aside_whichever_byte_is_flipped(tmp_path, use):
    path = tmp_path / "some.db"
    await use(path)
    whole = path.read_bytes()
    rng, rebuilt, refused = random.Random(20), 0, []
    schema = range(100, 4096)  # the first page: the header and the text of the schema, where most flips hurt
    places = [rng.choice(schema) for _ in range(FLIPS)] + [rng.randrange(len(whole)) for _ in range(FLIPS)]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            await use(path)
        except EnvironmentUnfit:
            refused.append(place)
        aside = list(tmp_path.glob("some.db.damaged-*"))
        rebuilt += bool(aside)
        for each in aside:
            each.unlink()
    assert rebuilt > 10
    assert set(refused) <= {USER_VERSION}


async def test_a_schema_that_is_no_text_is_set_aside(tmp_path):
    """Byte 0xFF within the name of a column: sqlite3 gives up with a UnicodeDecodeError, or not at all."""
    path = tmp_path / "worker.db"
    await local(path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"last_push_at", b"last_push_\xfft", 1))
    assert await local(path)
    assert not await local(path), "the new file is whole"


async def test_a_row_that_makes_no_sense_is_found_when_the_file_is_opened(tmp_path):
    path = tmp_path / "worker.db"
    await local(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE repos SET failure_kind = 'unknowm' WHERE key = ?", (KEYS[3],))
    connection.commit()
    connection.close()
    assert await local(path)


async def test_so_many_damaged_files_are_kept(tmp_path):
    path, layout = tmp_path / "x.db", Layout(1, "CREATE TABLE t (a TEXT);")
    for day in range(DAMAGED_KEPT + 3):
        path.write_bytes(b"no database at all" * 300)
        file = await OwnFile.open(path, layout, lambda day=day: day * 86_400.0)
        assert file.rebuilt
        await file.close()
    kept = sorted(p.name for p in tmp_path.glob("x.db.damaged-*"))
    assert len(kept) == DAMAGED_KEPT
    assert kept[-1] == f"x.db.damaged-197001{DAMAGED_KEPT + 3:02}T000000Z"
