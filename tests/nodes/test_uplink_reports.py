"""Reports on their way to the disk, and a stop in the middle of it."""

from __future__ import annotations

import asyncio
import time

from evermirror.edge.store import report_log
from evermirror.edge.store.report_log import ReportLog
from evermirror.model.messages import Started
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId
from evermirror.nodes.worker.uplink_reports import Outgoing


def report(name: str) -> Started:
    return Started(RepoKey(f"host/{name}"), (TaskId(1),), 1.0)


async def test_a_stop_in_the_middle_of_a_write_loses_no_report_and_writes_none_twice(tmp_path, monkeypatch):
    append, begun = report_log._append, asyncio.Event()
    loop = asyncio.get_running_loop()

    def slowly(*args):
        loop.call_soon_threadsafe(begun.set)
        time.sleep(0.2)
        return append(*args)

    log = await ReportLog.open(tmp_path / "reports.db")
    try:
        outgoing = Outgoing(log)
        monkeypatch.setattr(report_log, "_append", slowly)
        await outgoing.put(report("one"))
        writing = asyncio.create_task(outgoing.write())
        await begun.wait()
        await outgoing.put(report("two"))
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        assert await outgoing.flush()
        assert [seq for seq, _ in await log.read(0, 10)] == [1, 2]
        assert outgoing.given == 2
    finally:
        await log.close()
