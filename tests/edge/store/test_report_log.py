"""A worker's report log: what is said to be safe is safe, and a number never means two reports."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evermirror.edge.store.report_log import RESERVED, LoggedReport, ReportLog

SPARE = LoggedReport(b"spare", spare=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "reports.db"


def reports(*bodies: str) -> list[LoggedReport]:
    return [LoggedReport(body.encode()) for body in bodies]


async def all_of(log: ReportLog) -> list[tuple[int, bytes]]:
    return await log.read(log.first - 1, 10_000)


async def test_reports_are_numbered_kept_until_taken_and_go_on_after_a_restart(path):
    log = await ReportLog.open(path)
    assert (log.first, log.last) == (1, 0)
    assert await log.append(reports("a", "b", "c")) == 3
    await log.forget(2)
    assert (log.first, await all_of(log)) == (3, [(3, b"c")])
    generation = log.generation
    await log.close()
    log = await ReportLog.open(path)
    assert (log.generation, log.first, log.last) == (generation, 3, 3)
    assert await log.append(reports("d")) == 4
    assert await log.read(3, 10) == [(4, b"d")]
    await log.forget(4)
    await log.close()
    log = await ReportLog.open(path)
    assert (log.first, log.last, await all_of(log)) == (5, 4, []), "numbers go on where nothing is left"
    await log.close()


async def test_a_new_generation_begins_at_one_with_what_is_left(path):
    log = await ReportLog.open(path)
    await log.append(reports("a", "b", "c"))
    await log.forget(1)
    before = log.generation
    await log.renew()
    assert log.generation != before
    assert 0 < log.generation < 2**63
    assert await all_of(log) == [(1, b"b"), (2, b"c")]
    assert (log.first, log.last) == (1, 2)
    await log.close()


async def test_after_an_end_without_a_word_no_number_that_may_have_been_told_is_given_again(path):
    program = """
        import asyncio, os, signal, sys
        from pathlib import Path
        from evermirror.edge.store.report_log import LoggedReport, ReportLog

        async def main():
            log = await ReportLog.open(Path(sys.argv[1]))
            await log.append([LoggedReport(b"a"), LoggedReport(b"b")])
            print(log.reserved, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(path)]
    done = subprocess.run(command, timeout=60, capture_output=True, text=True)
    told = int(done.stdout)
    assert told >= 2 + RESERVED // 2
    log = await ReportLog.open(path)
    assert log.last == told
    assert await all_of(log) == [(1, b"a"), (2, b"b"), *((seq, b"") for seq in range(3, told + 1))]
    assert await log.append(reports("c")) == told + 1
    await log.close()
    log = await ReportLog.open(path)
    assert log.last == told + 1, "after a clean end there is nothing to skip"
    await log.close()


async def test_what_was_said_to_be_safe_survives_kill_9_at_any_moment_without_a_gap(path):
    program = """
        import asyncio, sys
        from pathlib import Path
        from evermirror.edge.store.report_log import LoggedReport, ReportLog

        async def main():
            log = await ReportLog.open(Path(sys.argv[1]))
            while True:
                first = log.last + 1
                await log.append([LoggedReport(str(first + n).encode()) for n in range(7)])
                if log.last > 100:
                    await log.forget(log.last - 50)
                print(log.first, log.last, flush=True)

        asyncio.run(main())
    """
    last = 0
    for lines in (3, 20, 47):
        command = [sys.executable, "-c", textwrap.dedent(program), str(path)]
        begun = 1 << 62
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(lines):
                first, last = map(int, child.stdout.readline().split())
                begun = min(begun, last - 6)
            child.send_signal(signal.SIGKILL)
        log = await ReportLog.open(path)
        assert log.last >= last
        found = await log.read(0, 100_000)
        assert [seq for seq, _ in found] == list(range(log.first, log.last + 1)), "a gap"
        assert all(body in (b"", str(seq).encode()) for seq, body in found)
        assert log.first >= first
        safe = {seq for seq, body in found if body}
        assert safe >= set(range(max(log.first, begun), last + 1)), "what was safe is gone"
        await log.close()


async def test_a_full_log_empties_the_oldest_spare_reports_and_no_others(path):
    log = await ReportLog.open(path, limit=20)
    for n in range(12):
        await log.append([SPARE, LoggedReport(f"kept {n}".encode())])
    found = dict(await all_of(log))
    assert list(found) == list(range(1, 25)), "numbers stay without a gap"
    assert [b for b in found.values() if b.startswith(b"kept")] == [f"kept {n}".encode() for n in range(12)]
    emptied = [seq for seq, body in found.items() if not body]
    assert emptied == list(range(1, 24, 2))[: len(emptied)], "the oldest go first"
    assert log.dropped == len(emptied) >= 4
    for n in range(30):
        await log.append(reports(f"more {n}"))
    assert sum(body.startswith(b"more") for _, body in await all_of(log)) == 30, "more than the limit, kept"
    await log.close()


async def test_numbers_told_ahead_of_the_disk_and_taken_are_not_given_again(path):
    log = await ReportLog.open(path)
    await log.append(reports("a"))
    await log.forget(5)
    assert (log.first, log.last) == (6, 5)
    assert await log.append(reports("f")) == 6
    assert await all_of(log) == [(6, b"f")]
    await log.close()


async def test_a_damaged_file_is_moved_aside_and_another_generation_begins(path):
    log = await ReportLog.open(path)
    await log.append(reports("a"))
    generation = log.generation
    await log.close()
    path.write_bytes(b"not a database, surely" * 500)
    log = await ReportLog.open(path, clock=lambda: 0.0)
    assert log.generation != generation
    assert (log.first, log.last) == (1, 0)
    assert path.with_name("reports.db.damaged-19700101T000000Z").exists()
    await log.close()


STEPS = st.lists(
    st.tuples(st.just("append"), st.integers(0, 5))
    | st.tuples(st.just("forget"), st.integers(0, 8))
    | st.tuples(st.just("renew"), st.none())
    | st.tuples(st.just("reopen"), st.none()),
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
async def test_it_is_a_list_that_lasts(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("log") / "reports.db"
    log = await ReportLog.open(path)
    twin: list[tuple[int, bytes]] = []
    last = made = 0
    for what, argument in steps:
        if what == "append":
            new = [f"{made + n}" for n in range(argument)]
            made += argument
            await log.append(reports(*new))
            twin += [(last + n, body.encode()) for n, body in enumerate(new, 1)]
            last += argument
        elif what == "forget":
            up_to = min(log.first - 1 + argument, last)
            await log.forget(up_to)
            twin = [(seq, body) for seq, body in twin if seq > up_to]
        elif what == "renew":
            await log.renew()
            twin = [(n, body) for n, (_, body) in enumerate(twin, 1)]
            last = len(twin)
        else:
            await log.close()
            log = await ReportLog.open(path)
        assert (await log.read(0, 1000), log.last) == (twin, last)
    await log.close()
