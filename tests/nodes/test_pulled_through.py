"""An all-in-one with a second worker: everything is served, and nothing twice on the disk."""

import asyncio
import subprocess

import pytest

from evermirror.model.access import Role
from evermirror.nodes.aggregator.collector import FOLDER
from evermirror.nodes.coordinator import door
from tests.support.crew import working
from tests.support.gitrepo import clean_git_env
from tests.support.stage import Stage

NAMES = [f"team/r{n}" for n in range(8)]


@pytest.fixture
def stage(tmp_path, upstream):
    return Stage(tmp_path, upstream)


async def cloned(up, name, folder):
    process = await asyncio.create_subprocess_exec(
        "git", "clone", "--quiet", "--mirror", f"{up.node.url}/git/{up.key(name)}", str(folder),
        env=clean_git_env(folder.parent), stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, err = await process.communicate()
    return process.returncode, err.decode()


def collected(stage):
    return {path.name for path in (stage.data / FOLDER).rglob("*.git")}


async def test_what_only_another_worker_holds_is_pulled_through_and_followed(
    stage, upstream, tmp_path, monkeypatch
):
    monkeypatch.setattr(door, "LOOK_S", 0.05)
    repos = {name: upstream.create(name) for name in NAMES}
    async with stage.up(
        server={"grpc_listen": "127.0.0.1:0"}, schedule={"min_gap": "1s"}, worker={"name": "own"}
    ) as up:
        token, _ = await up.node.lead.store.create_token("other", Role.WORKER, trusted=True)
        assert token
        other = stage.config(
            data={"dir": str(tmp_path / "other")}, schedule={"min_gap": "1s"}, worker={"name": "other"}
        )
        async with working(up.node, other, "other", 7) as worker:
            for name in NAMES:
                await up.add(upstream.url(f"{name}.git"))
            for name in NAMES:
                await up.until_status(name, "active")
            theirs = [name for name in NAMES if worker.mirror_path(up.key(name)) is not None]
            ours = [name for name in NAMES if up.node.worker.mirror_path(up.key(name)) is not None]
            assert theirs
            assert ours
            await up.until(lambda: asyncio.sleep(0, bool(up.node.lead.feeds.relays())))
            for n, name in enumerate(NAMES):
                code, err = await cloned(up, name, tmp_path / f"clone{n}")
                assert code == 0, err
            assert collected(stage) == {f"{name.partition('/')[2]}.git" for name in theirs}

            repos[theirs[0]].commit()
            await up.sync(theirs[0])

            async def followed():
                folder = tmp_path / "again"
                subprocess.run(["rm", "-rf", str(folder)], check=True)
                code, _ = await cloned(up, theirs[0], folder)
                tip = subprocess.run(
                    ["git", "rev-parse", "refs/heads/main"], cwd=folder, capture_output=True, text=True,
                    check=False,
                )  # fmt: skip
                return code == 0 and tip.stdout.strip() == repos[theirs[0]].tip()

            await up.until(followed)


async def test_without_others_no_relay_listens_and_nothing_is_collected(stage, upstream):
    upstream.create("team/x")
    async with stage.up() as up:
        await up.add(upstream.url("team/x.git"))
        await up.until_status("team/x", "active")
        assert up.node.lead.feeds.relays() == ()
        assert not (stage.data / FOLDER).exists()


async def test_the_public_does_not_learn_of_private_repos_nor_is_an_alias_pulled_through(
    stage, upstream, monkeypatch
):
    monkeypatch.setattr(door, "LOOK_S", 0.05)
    upstream.create("team/secret")
    async with stage.up(server={"grpc_listen": "127.0.0.1:0"}) as up:
        await up.add(upstream.url("team/secret.git"), private=True, alias="known")
        await up.until_status("team/secret", "active")
        await up.node.lead.store.create_token("other", Role.WORKER, trusted=True)
        await up.until(lambda: asyncio.sleep(0, bool(up.node.lead.feeds.relays())))
        reader, _ = await up.node.lead.store.create_token("reader", Role.READER)

        async def status(name, **headers):
            url = f"/git/{name}/info/refs?service=git-upload-pack"
            return (await up.client.get(url, headers=headers)).status_code

        async def tokens_count():
            return await status(up.key("team/secret")) != 200

        await up.until(tokens_count)
        for name in (up.key("team/secret"), "known", up.key("team/nothing")):
            assert await status(name) == 401
        assert await status("known", Authorization=f"Bearer {reader}") == 200

        up.node.worker.mirror_path = lambda key: None  # as while it is being cloned
        for name in (up.key("team/secret"), "known"):
            assert await status(name) == 401
            assert await status(name, Authorization=f"Bearer {reader}") == 503
        assert not collected(stage)
