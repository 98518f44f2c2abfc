"""How repos leave a worker: released, handed back for lack of room, or no longer confirmed.

Rules
- What leaves does so in one step without await, in the schedule and on the shelf: nobody meets a repo that is
  only half gone. Then what is under way for it is broken off, and only then its mirror is touched.
- A mirror is deleted only if its refs are those that the command names, as read from the disk after all
  work on it has ended. One that differs stays, goes on, and is told as Declined: nobody else may have them.
- Nothing is deleted otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from evermirror.core.schedule.scheduler import Scheduler
from evermirror.model.messages import (
    AssignRepos,
    Declined,
    HandedBack,
    HeldRepo,
    Kept,
    Released,
    ReleaseRepos,
)
from evermirror.model.refs import short_digest
from evermirror.model.repo import RepoKey
from evermirror.nodes.worker.caretaker import Caretaker
from evermirror.nodes.worker.ports import WorkerPort
from evermirror.nodes.worker.round import Mirrored
from evermirror.nodes.worker.rounds import Rounds
from evermirror.nodes.worker.shelf import Shelf

log = structlog.get_logger(__name__)


class Leaving:
    """The one who calls sees to it that no other command is carried out meanwhile."""

    def __init__(
        self,
        *,
        port: WorkerPort,
        scheduler: Scheduler,
        shelf: Shelf,
        rounds: Rounds,
        care: Caretaker,
        clock: Callable[[], float],
        take_up: Callable[[AssignRepos], None],
    ) -> None:
        self._port = port
        self._scheduler = scheduler
        self._shelf = shelf
        self._rounds = rounds
        self._care = care
        self._clock = clock
        self._take_up = take_up  # these are ours again

    async def release(self, command: ReleaseRepos) -> None:
        """Carries out the command, and answers it."""
        before = {key: repo for key in command.keys if (repo := self._shelf.repos.get(key)) is not None}
        ran = await self._stop(command.keys)
        for key in ran:  # a clone may have just become visible, a sync may have moved refs
            await self._shelf.measure(key)
        if command.delete:
            stay = await self._delete(command)
            self._go_on(before[held.key] for held in stay if held.key in before)
        else:
            stay = [held for key in command.keys if (held := await self._known(key)) is not None]
        staying = {held.key for held in stay}
        gone = tuple(key for key in command.keys if key not in staying)
        await self._shelf.note_unassigned(gone if command.delete else command.keys)
        await self._shelf.forget(gone)
        if stay:
            told = tuple(stay)
            await self._port.report(Declined(told) if command.delete else Kept(told))
        if gone:
            await self._port.report(Released(gone))

    async def _stop(self, keys: Iterable[RepoKey]) -> set[RepoKey]:
        """None of them is looked at any more; returns those that something was under way for."""
        keys = list(keys)
        self._shelf.drop(keys)
        self._scheduler.remove(keys, self._clock())
        for key in keys:
            self._care.released(key)
        return await self._rounds.break_off(keys)

    async def _delete(self, command: ReleaseRepos) -> list[HeldRepo]:
        """Moves mirrors to the trash; returns those that are to stay."""
        stay = []
        digests = command.digests or (0,) * len(command.keys)
        for key, covered in zip(command.keys, digests, strict=True):
            if key not in self._shelf.here:
                continue
            held = await self._shelf.measure(key) if covered else None
            if held is not None and short_digest(held.digest) != covered:
                log.info("mirror not deleted: its refs have moved", repo=key)
                stay.append(held)
            else:
                await self._shelf.discard(key)
        return stay

    async def _known(self, key: RepoKey) -> HeldRepo | None:
        """What is on disk, with its digest."""
        if key not in self._shelf.here:
            return None
        held = self._shelf.held_one(key)
        return held if held.digest is not None else await self._shelf.measure(key)

    def _go_on(self, repos: Iterable[Mirrored]) -> None:
        repos = list(repos)
        self._take_up(
            AssignRepos(
                tuple(r.spec for r in repos),
                following=frozenset(r.spec.key for r in repos if r.following),
                paused=frozenset(r.spec.key for r in repos if r.paused),
            )
        )
        for repo in repos:
            self._care.synced(repo.spec.key, moved=False)

    async def hand_back(self, keys: list[RepoKey], reason: str) -> None:
        """No room for these first clones, which have not begun, or failed: others may take them."""
        self._shelf.drop(keys)
        self._scheduler.remove(keys, self._clock())
        self._rounds.give_up(keys)
        log.warning("repos handed back", repos=len(keys), reason=reason)
        await self._shelf.forget(keys)
        await self._shelf.note_unassigned(keys)
        await self._port.report(HandedBack(tuple(keys), reason))

    async def unconfirmed(self, keys: list[RepoKey]) -> None:
        """A coordinator that began anew did not assign these again: their mirrors stay, and nothing is
        told."""
        for key in await self._stop(keys):
            await self._shelf.measure(key)
        await self._shelf.note_unassigned(keys)
        log.info("repos no longer looked after: they were not assigned again", repos=len(keys))
