"""What a worker was told to mirror, as it is written down: so that it goes on at once after a restart, also
while its coordinator is away."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from evermirror.model.repo import Host, Mode, Priority, RepoKey, RepoSpec


@dataclass(frozen=True, slots=True)
class Assigned:
    """A repo and its role here."""

    spec: RepoSpec
    following: bool = False  # another worker polls it
    paused: bool = False  # a person disabled it


def row_of(assigned: Assigned) -> tuple[str, str, bool, bool]:
    return assigned.spec.key, spec_text(assigned.spec), assigned.following, assigned.paused


def assigned_of(row: tuple[str, str, int, int]) -> Assigned | None:
    """None for what another version wrote and this one cannot read: it is assigned anew."""
    try:
        return Assigned(spec_of(row[1]), bool(row[2]), bool(row[3]))
    except (ValueError, KeyError, TypeError):
        return None


def spec_text(spec: RepoSpec) -> str:
    """As JSON."""
    known = dataclasses.asdict(spec)
    known["priority"], known["mode"] = spec.priority.value, spec.mode.value
    return json.dumps(known)


def spec_of(text: str) -> RepoSpec:
    """The inverse; raises ValueError, KeyError or TypeError."""
    known = json.loads(text)
    return RepoSpec(
        key=RepoKey(known["key"]),
        url=known["url"],
        host=Host(known["host"]),
        priority=Priority(known["priority"]),
        interval_s=known["interval_s"],
        mode=Mode(known["mode"]),
        private=known["private"],
        credential=known["credential"],
        fallbacks=tuple(known["fallbacks"]),
        pulled=known["pulled"],
        hooked=known["hooked"],
        fsck_allow=tuple(known["fsck_allow"]),
    )
