"""A disk that is full stops the sync, leaves nothing half done, and heals by itself."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress

import pytest

from evermirror.edge.git import folder
from evermirror.model.failure import FailureError, FailureKind
from tests.edge.git.mirror_world import World


@pytest.fixture
def small_disk(tmp_path):
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("NOT SHOWN HERE: a small tmpfs cannot be mounted (needs root)")
    yield path
    subprocess.run(["umount", str(path)], check=True)


async def test_a_full_disk_is_called_so_and_leaves_no_temporary_file(small_disk, upstream):
    world = World(small_disk, upstream)
    repo = upstream.create("x", commits=2)
    await world.sync(repo)
    other = upstream.create("big", commits=1)
    other.big_blob(5_000_000)
    repo.big_blob(5_000_000)
    for full in (other, repo):
        with pytest.raises(FailureError) as caught:
            await world.sync(full)
        assert caught.value.failure.kind is FailureKind.DISK_FULL
        assert not caught.value.failure.corrupt
    assert [p for p in small_disk.rglob("*") if p.name.startswith("tmp_")] == []
    assert list((small_disk / "mirrors" / ".incoming").iterdir()) == []
    assert world.mirrors.disk_usage().free_bytes > 1_000_000
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    for healed in (other, repo):
        await world.sync(healed)
        world.assert_equal(healed)


async def test_a_disk_with_no_room_for_a_single_file(small_disk, upstream):
    world = World(small_disk, upstream)
    repo = upstream.create("x", commits=2)
    with (small_disk / "fill").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    with pytest.raises(FailureError) as caught:
        await world.sync(repo)
    assert caught.value.failure.kind is FailureKind.DISK_FULL


async def test_a_read_only_disk_is_told_as_such(small_disk, upstream):
    world = World(small_disk, upstream)
    repo = upstream.create("x", commits=2)
    await world.sync(repo)
    repo.commit()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(FailureError) as caught:
        await world.sync(repo)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert caught.value.failure.kind is FailureKind.DISK_FULL
    await world.sync(repo)
    world.assert_equal(repo)


def test_two_folders_change_places_also_where_the_system_cannot_do_it_at_once(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "who").write_text(name)
    folder.exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a" / "who").read_text() == "b"
    monkeypatch.setattr(folder.ctypes, "CDLL", lambda *_, **__: object())
    folder.exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a" / "who").read_text() == "a"
    assert (tmp_path / "b" / "who").read_text() == "b"


def test_usage_is_what_df_shows(tmp_path):
    told = subprocess.run(
        ["df", "-B1", "--output=used,avail", str(tmp_path)], capture_output=True, check=True
    )
    used, available = map(int, told.stdout.split()[2:])
    usage = folder.disk_usage(tmp_path)
    assert usage.total_bytes == pytest.approx(used + available, rel=0.01)
    assert usage.free_bytes == pytest.approx(available, rel=0.01)


def test_blocks_that_only_root_may_use_count_neither_as_room_nor_as_a_part_of_the_whole(
    monkeypatch, tmp_path
):
    reserving = os.statvfs_result((4096, 4096, 1000, 250, 200, 0, 0, 0, 0, 255))  # 750 used, 50 reserved
    monkeypatch.setattr(os, "statvfs", lambda _: reserving)
    usage = folder.disk_usage(tmp_path)
    assert usage.used_share == pytest.approx(750 / 950)
    assert (usage.total_bytes, usage.free_bytes) == (950 * 4096, 200 * 4096)
