"""Ways to damage a bare mirror on disk, as disks and power cuts do."""

from __future__ import annotations

from pathlib import Path


def _largest(repo: Path, ending: str) -> Path:
    file = max((repo / "objects/pack").glob(f"*{ending}"), key=lambda p: p.stat().st_size)
    file.chmod(0o600)
    return file


def truncate_pack(repo: Path) -> None:
    pack = _largest(repo, ".pack")
    pack.write_bytes(pack.read_bytes()[: pack.stat().st_size // 2])


def flip_pack_bytes(repo: Path) -> None:
    pack = _largest(repo, ".pack")
    data = bytearray(pack.read_bytes())
    for at in range(len(data) // 2, len(data) // 2 + 30):
        data[at] ^= 0xFF
    pack.write_bytes(data)


def flip_index_bytes(repo: Path) -> None:
    """Of the table of object ids: its objects are not found any more."""
    index = _largest(repo, ".idx")
    data = bytearray(index.read_bytes())
    for at in range(8 + 256 * 4, len(data) - 40):
        data[at] ^= 0xFF
    index.write_bytes(data)


def null_ref(repo: Path) -> None:
    """As a file system leaves a file whose size was written, and its data not."""
    ref = repo / "refs/heads/main"
    ref.parent.mkdir(parents=True, exist_ok=True)
    ref.write_bytes(bytes(41))


def remove_head(repo: Path) -> None:
    (repo / "HEAD").unlink()


def null_packed_refs(repo: Path) -> None:
    (repo / "packed-refs").write_bytes(bytes(200))
