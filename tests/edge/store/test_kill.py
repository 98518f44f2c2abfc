"""A process that is killed while it writes leaves all of a decision or nothing of it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from evermirror.edge.store.store import Store
from evermirror.model.repo import Host, RepoRecord, RepoSpec

REPOS = 60
KILLS = 8

# Decision n puts every repo on worker n with salt n, takes report n, records a task and drops what n - 1 did.
CHILD = textwrap.dedent(
    """
    import asyncio, sys
    from evermirror.core.fleet.decisions import *
    from evermirror.edge.store.store import Store
    from evermirror.edge.store.writes import Decided, Outcome, TaskRecorded, WorkerBound
    from evermirror.model.task import TaskStatus
    from evermirror.model.worker import WorkerFacts, WorkerRecord

    def decided(n, keys):
        copies = tuple(CopyRow(k, n, 0, CopyState.HELD, Reason.HOME, float(n)) for k in keys)
        return Decided(
            (
                PutWorker(WorkerRecord(n, WorkerFacts(f"w{n}"))),
                DropCopies(tuple((k, n - 1) for k in keys)),
                PutCopies(copies),
                *(PutSalt(k, n % 256) for k in keys),
                ReportTaken(0, 1, n),
            ),
            (TaskRecorded(keys[0], Outcome(TaskStatus.SUCCESS, float(n), float(n))), WorkerBound(n, n)),
        )

    async def main(url, repos):
        store = await Store.open(url)
        keys = [f"example.org/{i}" for i in range(repos)]
        reports = list((await store.load_fleet()).reports)
        n = reports[0].seq if reports else 0
        while True:
            n += 1
            await store.apply([decided(n, keys), decided(n + 1, keys)])
            n += 1
            print(n, flush=True)

    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
    """
)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return request.getfixturevalue("postgres_database")


async def left(url):
    """The number of the last decision of which something is there, once per thing that it writes."""
    store = await Store.open(url)
    try:
        await store.put_setting("waited", True)  # until a server has noticed that its client is gone
        restored = await store.load_fleet()
        table = restored.tables.table
        on = {int(w) for w in table.c_worker[: table.copies]}
        salts = {int(s) for s in table.salt[: table.rows]}
        tasks = await store.list_tasks("example.org/0", 1)
        return {
            "copies": (table.copies, on),
            "salts": salts,
            "report": [r.seq for r in restored.reports],
            "workers": len(list(restored.workers)),
            "bound": len(await store.bound_tokens()),
            "task": [task.completed_at for task in tasks],
        }
    finally:
        await store.close()


def whole(n):
    return {
        "copies": (REPOS, {n}),
        "salts": {n % 256},
        "report": [n],
        "workers": n,
        "bound": n,
        "task": [float(n)],
    }


async def test_a_killed_writer_leaves_whole_decisions(url):
    store = await Store.open(url)
    await store.upsert_repos(
        RepoRecord(RepoSpec(f"example.org/{i}", f"https://example.org/{i}", Host("example.org")))
        for i in range(REPOS)
    )
    await store.close()
    chance = random.Random(7)
    last = 0
    for _ in range(KILLS):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, url, str(REPOS)], stdout=subprocess.PIPE, text=True, env=os.environ
        )
        assert child.stdout is not None
        acknowledged = int(child.stdout.readline())
        time.sleep(chance.uniform(0.0, 0.15))
        child.send_signal(signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, child.stdout.read().split())])
        child.wait()
        child.stdout.close()
        found = await left(url)
        last = found["report"][0]
        assert found == whole(last)
        assert last >= acknowledged  # what was acknowledged is there
        assert last % 2 == 0  # a batch is one transaction
    assert last >= 2 * KILLS
