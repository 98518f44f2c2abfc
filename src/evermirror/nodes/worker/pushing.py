"""The last part of a round: targets get what the mirror has.

    mirror equal to upstream ──▶ behind? ──no──▶ told as it is, the target is not asked
                                    └──yes or forced──▶ push ──▶ Pushed, with its failure where it has one

Rules
- Targets are independent: whatever one brings about stays with it, and a push never fails the round.
- The targets of all callers of a round are one list; each target is served once.
- Who ordered a push must still be the one to order it: out of contact for longer than grace, or back after
  that without a new order, nothing is pushed (contact.py).
- What the disk lost is not lost at a target: a mirror that is damaged, or not as its last sync left it, is
  mended first, and pushed when it is ordered again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import structlog

from evermirror.edge.git.progress import GitProgress
from evermirror.model.failure import FailureError
from evermirror.model.printable import one_line
from evermirror.model.push import REFS_TOLD, Pushed, PushTo
from evermirror.model.refs import Oid
from evermirror.model.repo import RepoKey
from evermirror.model.task import SyncPhase, TaskId
from evermirror.model.url import host_in
from evermirror.nodes.worker.contact import Contact
from evermirror.nodes.worker.ports import Targets
from evermirror.nodes.worker.round import Mirrored, Round, bug

log = structlog.get_logger(__name__)

AT_ONCE = 2  # targets of one round: a slow one does not hold up all others, and the slot stays one slot


class Pushing:
    """``ordered`` by each caller that names targets; ``serve`` once in a round."""

    def __init__(self, targets: Targets, contact: Contact, clock: Callable[[], float]) -> None:
        self._targets = targets
        self._contact = contact
        self._clock = clock
        self._terms: dict[TaskId, int] = {}  # of callers that wait for a push

    def ordered(self, task_id: TaskId) -> None:
        """By the command that is carried out now: the coordinator says so for the first time, or again."""
        self._terms[task_id] = self._contact.ordered_in

    def over(self, task_id: TaskId) -> None:
        """The caller was answered."""
        self._terms.pop(task_id, None)

    async def is_wanted(self, this: Round, repo: Mirrored) -> bool:
        """Whether a target lacks something; costs no process and no request. Where none
        is, ``this.pushed`` says so."""
        behind = [to for to in this.push if await self._is_behind(this.key, to)]
        if not behind:
            now = self._clock()
            this.pushed = tuple(_as_it_was(to, repo.head_commit, now) for to in this.push)
        return bool(behind)

    async def serve(self, this: Round, repo: Mirrored) -> bool:
        """``this.pushed`` says what became of it. Returns whether the mirror was found damaged."""
        places = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            pushes = [group.create_task(self._serve_one(this, to, repo, places)) for to in this.push]
        this.pushed = _bounded([push.result() for push in pushes])
        return any(pushed.failure is not None and pushed.failure.corrupt for pushed in this.pushed)

    async def _serve_one(self, this: Round, to: PushTo, repo: Mirrored, places: asyncio.Semaphore) -> Pushed:
        async with places:
            began = self._clock()
            if not this.force and not await self._is_behind(this.key, to):
                return _as_it_was(to, repo.head_commit, began)
            try:
                pushed = await self._push(this, to, repo)
            except Exception as error:
                log.exception("a push broke", repo=this.key, target=to.url)
                failure = replace(bug(error), git_command=one_line(f"git push {to.url}"))
                return Pushed(to.target, None, started_at=began, ended_at=self._clock(), failure=failure)
        _log(this.key, to, pushed)
        return pushed

    async def _push(self, this: Round, to: PushTo, repo: Mirrored) -> Pushed:
        host = host_in(to.url)

        def progressed(progress: GitProgress) -> None:
            this.pushing(to.target, host, progress)

        progressed(GitProgress(SyncPhase.PUSHING, None, 0))
        return await self._targets.push(
            this.key,
            to,
            accept=this.accept,
            force=this.force,
            may_push=lambda: self._may_push(this),
            progressed=progressed,
            source_url=repo.source_url or repo.spec.url,
            believed=repo.told,
            source=repo.spec,
        )

    def _may_push(self, this: Round) -> bool:
        term = self._contact.term
        return self._contact.held and any(self._terms.get(asked.task_id) == term for asked in this.asked)

    async def _is_behind(self, key: RepoKey, to: PushTo) -> bool:
        try:
            return await self._targets.behind(key, to)
        except FailureError as error:  # then the push finds the same, and tells
            log.warning("not known what a target has", repo=key, target=to.url, reason=error.failure.message)
            return True


def _as_it_was(to: PushTo, head: Oid | None, now: float) -> Pushed:
    """A target that has all that it should have, by what we last put there."""
    return Pushed(to.target, to.put, head, started_at=now, ended_at=now)


def _bounded(pushes: list[Pushed]) -> tuple[Pushed, ...]:
    """Each target may name as many refs as the others."""
    told = REFS_TOLD // max(len(pushes), 1)
    return tuple(replace(pushed, refs=pushed.refs[:told]) for pushed in pushes)


def _log(key: RepoKey, to: PushTo, pushed: Pushed) -> None:
    if pushed.failure is not None:
        kind, reason = pushed.failure.kind.value, pushed.failure.message
        log.warning("not pushed", repo=key, target=to.url, kind=kind, reason=reason)
    if pushed.changed:
        log.info(
            "pushed",
            repo=key,
            target=to.url,
            refs=pushed.put_total,
            deleted=pushed.deleted_total,
            waiting=pushed.waiting_total,
            seconds=round(pushed.ended_at - pushed.started_at, 3),
        )
