"""The folder of all mirrors, where its disk goes away."""

from __future__ import annotations

import shutil

import pytest

from evermirror.model.failure import FailureError
from tests.edge.git.mirror_world import World


async def test_while_the_disk_of_all_mirrors_is_not_mounted_nothing_is_made_below_it(
    tmp_path, upstream, monkeypatch
):
    world, repo = World(tmp_path, upstream), upstream.create("x", commits=1)
    mirrors = world.mirrors
    root = tmp_path / "mirrors"
    disk, number = mirrors._made
    monkeypatch.setattr(mirrors, "_made", (disk + 1, number))  # as if it had been on a disk of its own
    shutil.rmtree(root)
    for mount_point in (False, True):
        if mount_point:
            root.mkdir()
        for work in (mirrors.mend_root, mirrors.tidy):
            with pytest.raises(FailureError, match="another disk"):
                await work()
        assert root.exists() is mount_point
        assert not mount_point or not list(root.iterdir())
    with pytest.raises(FailureError, match="another disk"):
        await world.sync(repo)
    assert {path.name for path in root.iterdir()} <= {".locks"}
    monkeypatch.setattr(mirrors, "_made", (disk, number))
    assert await mirrors.mend_root()
    await world.sync(repo)
    world.assert_equal(repo)
