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
    spec = dataclasses.asdict(assigned.spec)
    spec["priority"], spec["mode"] = assigned.spec.priority.value, assigned.spec.mode.value
    return assigned.spec.key, json.dumps(spec), assigned.following, assigned.paused


def assigned_of(row: tuple[str, str, int, int]) -> Assigned | None:
    """None for what another version wrote and this one cannot read: it is assigned anew."""
    try:
        known = json.loads(row[1])
        spec = RepoSpec(
            key=RepoKey(known["key"]),
            url=known["url"],
            host=Host(known["host"]),
            priority=Priority(known["priority"]),
            interval_s=known["interval_s"],
            mode=Mode(known["mode"]),
            private=known["private"],
            credential=known["credential"],
            fallbacks=tuple(known["fallbacks"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
    return Assigned(spec, bool(row[2]), bool(row[3]))
