"""Did a branch only move forward? Read from the new commits' parents, where these tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evermirror.model.refs import Oid

STEPS_MAX = 100_000  # commits looked at for one sync: a tenth of a second


def moved_forward(
    pairs: Sequence[tuple[Oid, Oid]], parents: Mapping[Oid, Sequence[Oid]]
) -> frozenset[tuple[Oid, Oid]]:
    """Of these (old tip, new tip), those where ``parents`` prove that new descends from old.

    ``parents`` are of new commits only, and perhaps not of all of them: silence proves nothing."""
    found = set()
    steps = STEPS_MAX
    for old, new in pairs:
        pending, visited = [new], {new}
        while pending and steps:
            steps -= 1
            commit = pending.pop()
            if commit == old:
                found.add((old, new))
                break
            fresh = [p for p in parents.get(commit, ()) if p not in visited]
            visited.update(fresh)
            pending += reversed(fresh)  # first parents first: the old tip is usually along them
    return frozenset(found)
