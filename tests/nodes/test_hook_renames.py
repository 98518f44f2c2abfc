"""Renamed repositories: told, but not as often as somebody likes to say it."""

from __future__ import annotations

import time

from evermirror.edge.store.writes import EventWritten
from evermirror.model.repo import RepoKey
from evermirror.nodes.coordinator.hooks import hook_renames
from evermirror.nodes.coordinator.hooks.hook_renames import NAMES_MAX, SETTLED_MAX, TOLD_EVERY_S, HookRenames

KEY = RepoKey("github.com/team/old")


class Told:
    """Events and alerts; ``now`` is the clock."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.standing: set[str] = set()
        self.now = 1000.0
        self.renames = HookRenames(self, self, lambda: self.now)  # type: ignore[arg-type]

    async def put(self, event: EventWritten) -> None:
        self.events.append(event)

    def told(self, alert) -> None:  # type: ignore[no-untyped-def]
        (self.standing.discard if alert.over else self.standing.add)(alert.about)


async def test_ever_other_names_of_one_repo_are_told_of_a_few_times_a_day() -> None:
    told = Told()
    for n in range(1000):
        await told.renames.renamed(KEY, f"https://github.com/team/new{n}")
    assert len(told.events) == NAMES_MAX
    await told.renames.renamed(RepoKey("github.com/team/other"), "https://github.com/team/new")
    assert len(told.events) == NAMES_MAX + 1
    told.now += TOLD_EVERY_S
    told.renames.settle()
    assert not told.standing
    await told.renames.renamed(KEY, "https://github.com/team/newest")
    assert len(told.events) == NAMES_MAX + 2
    assert told.standing == {KEY}


async def test_an_alert_ends_with_the_last_of_its_names() -> None:
    told = Told()
    await told.renames.renamed(KEY, "https://github.com/team/a")
    told.now += TOLD_EVERY_S / 2
    await told.renames.renamed(KEY, "https://github.com/team/b")
    told.now += TOLD_EVERY_S / 2
    told.renames.settle()
    assert told.standing == {KEY}
    told.now += TOLD_EVERY_S / 2
    told.renames.settle()
    assert not told.standing


async def test_the_end_of_very_many_comes_in_parts_that_nobody_notices() -> None:
    told = Told()
    for n in range(hook_renames.STANDING_MAX):
        await told.renames.renamed(RepoKey(f"github.com/team/r{n}"), "https://github.com/team/new")
    told.now += TOLD_EVERY_S
    began = time.process_time()
    told.renames.settle()
    assert time.process_time() - began < 0.1  # all of them at once: seconds
    assert len(told.standing) == hook_renames.STANDING_MAX - SETTLED_MAX
    for _ in range(hook_renames.STANDING_MAX // SETTLED_MAX):
        told.renames.settle()
    assert not told.standing


async def test_the_oldest_of_too_many_is_over() -> None:
    told = Told()
    for n in range(hook_renames.STANDING_MAX + 3):
        await told.renames.renamed(RepoKey(f"github.com/team/r{n}"), "https://github.com/team/new")
    assert len(told.standing) == hook_renames.STANDING_MAX
    assert "github.com/team/r2" not in told.standing
