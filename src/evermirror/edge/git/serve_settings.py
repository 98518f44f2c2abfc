"""What the server of mirrors may use, and what it has used."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Bounds on what all clients together may use."""

    packs_max: int = 16  # upload-packs at a time
    per_client: int = 8  # packs on their way to one address
    queue: int = 64  # in line for one of them
    queue_wait_s: float = 10.0  # there; then 503
    pace_bytes_s: float = 64_000.0  # that a client must take or send, while others are in line
    request_bytes_max: int = 64_000_000  # unpacked: haves and wants of a repository with 600,000 refs
    silence_s: float = 300.0  # a client that neither sends nor takes anything
    filters: tuple[str, ...] = ("blob:none", "blob:limit", "tree", "object:type", "combine")
    cache_bytes: int = 2_000_000_000  # of packs on disk; 0: none
    cache_folder: Path | None = None  # None: packs are not kept
    shows_kept: bool = False  # for nodes that copy a mirror with its history; the public sees no kept tips


@dataclass(frozen=True, slots=True)
class ServeFigures:
    """Since the start, and now."""

    requests: dict[tuple[str, bool], int]  # (service, from the cache)
    sent_bytes: int
    refused: int
    cut: int
    running: int
    waiting: int
    cache_packs: int
    cache_bytes: int
