"""Somebody removes the folder of all mirrors under a running node: it goes on, and clones them again."""

from __future__ import annotations

import asyncio
import gc
import shutil

import pytest
from structlog.testing import capture_logs

from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.nodes.worker import worker
from evermirror.nodes.worker.desk import Desk
from tests.support.gitrepo import read_refs
from tests.support.stage import Stage


@pytest.fixture
def stage(tmp_path, upstream):
    return Stage(tmp_path, upstream)


async def test_a_removed_folder_of_mirrors_is_made_again_and_its_mirrors_are_cloned(
    stage, upstream, monkeypatch
):
    monkeypatch.setattr(worker, "TRY_DISK_S", 0.1)
    monkeypatch.setattr(worker, "SAVE_S", 0.1)
    repos = {name: await asyncio.to_thread(upstream.create, name) for name in ("team/a", "team/b")}
    async with stage.up() as up:
        for name, repo in repos.items():
            await up.add(repo.url)
            await up.until_status(name, "active")
        shutil.rmtree(stage.data / "mirrors")
        assert up.node.worker.status().disk_total_bytes > 0, "the next one who looks finds no folder"
        for name, repo in repos.items():

            async def is_back(name=name, repo=repo) -> bool:
                path = stage.mirror(up.key(name))
                return path.is_dir() and up.refs(name) == read_refs(repo.path)

            await up.until(is_back)
            assert (await up.sync(name))["status"] == "skipped"
        assert up.node.worker.status().repos == 2


async def test_a_round_that_ended_and_could_not_be_told_is_not_failed_once_more(stage, upstream, monkeypatch):
    odd: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: odd.append(context))
    usual, told = Desk.answer, []

    async def answer(desk, report, refused):
        told.append(report)
        if len(told) == 1:
            raise FailureError(Failure(FailureKind.DISK_FULL, "nothing can be written down"))
        await usual(desk, report, refused)

    monkeypatch.setattr(Desk, "answer", answer)
    repo = await asyncio.to_thread(upstream.create, "team/a")
    with capture_logs() as logs:
        async with stage.up() as up:
            await up.add(repo.url)
            await up.until(lambda: asyncio.sleep(0, bool(told)))
            await asyncio.to_thread(repo.commit)
            await up.sync("team/a")
            await up.until_status("team/a", "active")
    gc.collect()
    await asyncio.sleep(0)
    assert odd == []
    assert "a round had ended, and was not told" in [line["event"] for line in logs]
