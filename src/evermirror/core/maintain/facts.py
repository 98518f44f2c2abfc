"""What is known of one mirror's upkeep: what lies on disk, and what was done to it when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

HOUR_S, DAY_S = 3600.0, 86_400.0


class Job(Enum):
    """One piece of upkeep; the words are those of the API."""

    PACK_REFS = "pack-refs"  # loose refs into one file
    GEOMETRIC = "geometric"  # small packs into larger ones; multi-pack index, bitmap, commit-graph anew
    COMMIT_GRAPH = "commit-graph"  # the first one; later ones come with a repack
    FULL = "full"  # everything into one pack, and what no ref reaches into a cruft pack
    FSCK = "fsck"  # every object read and checked


@dataclass(frozen=True, slots=True)
class Past:
    """The last attempts at one job. Times are UTC seconds."""

    tried_at: float
    done_at: float | None = None  # the last success
    failures: int = 0  # in a row since then
    packs_id: str = ""  # the packs that were here after the last success (of FULL: or in the fresh clone)


@dataclass(frozen=True, slots=True)
class RepoUpkeep:
    """Figures of one mirror. Packs that must be kept as they are, and cruft packs, are not in the counts."""

    first_seen_at: float = 0.0  # when this copy was made
    pack_count: int = 0
    pack_bytes: int = 0
    cruft_bytes: int = 0  # what no ref reaches, kept for a while
    loose_objects: int = 0
    loose_refs: int = 0
    size_bytes: int = 0
    has_midx: bool = False
    has_bitmap: bool = False
    has_commit_graph: bool = False
    has_alternates: bool = False  # borrows objects: git 2.39 cannot repack such a mirror well
    packs_id: str = ""  # changes whenever a pack comes or goes
    past: Mapping[Job, Past] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_one_pack(self) -> bool:
        """As a fresh clone is."""
        return self.pack_count <= 1 and self.loose_objects == 0

    def done_at(self, job: Job) -> float | None:
        """When this job last succeeded here."""
        past = self.past.get(job)
        return past.done_at if past is not None else None

    @property
    def last_repack_at(self) -> float | None:
        times = [t for job in (Job.GEOMETRIC, Job.FULL) if (t := self.done_at(job)) is not None]
        return max(times, default=None)

    @property
    def last_fsck_at(self) -> float | None:
        return self.done_at(Job.FSCK)


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """What the operator decides; durations are seconds."""

    packs_max: int = 20
    full_every_s: float = 30 * DAY_S
    fsck_every_s: float = 30 * DAY_S
    cruft_expiry_s: float = 180 * DAY_S
    time_limit_s: float = HOUR_S

    def __post_init__(self) -> None:
        if self.packs_max < 1:
            raise ValueError("packs_max must be at least 1")
        if min(self.full_every_s, self.fsck_every_s, self.cruft_expiry_s, self.time_limit_s) <= 0:
            raise ValueError("durations must be positive")
