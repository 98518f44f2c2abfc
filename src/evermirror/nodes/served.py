"""The mirrors on this node's disk, as the HTTP face serves them to git clients."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from evermirror.edge.git.classify import CAUSE, LACKING
from evermirror.edge.git.serve import BadRequest, GitServer, ServerBusy
from evermirror.errors import InvalidUrl, NotFound
from evermirror.faces.api.git_service import GitBusy, NotHereYet, ServedRepo
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.repo import RepoRecord, RepoStatus
from evermirror.nodes.worker.worker import Worker

if TYPE_CHECKING:  # aggregators serve without one
    from evermirror.nodes.coordinator.coordinator import Coordinator

BEGUN_S = 60.0  # between two requests of one clone; git sends the next as soon as it has read the last
TOLD_OF_MAX = 10_000
CLONING_RETRY_S = 5.0  # a first clone may be done by then
FAILED_RETRY_S = 60.0  # one that failed is tried again after minutes
MEMORY_RETRY_S = 60.0  # others may have ended by then
MOVED_RETRY_S = 1.0  # a mirror that is exchanged or removed is in its new place by then


class ServedMirrors:
    """Implements the API's ``GitService``."""

    def __init__(
        self,
        coordinator: Coordinator,
        worker: Worker,
        server: GitServer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._coordinator = coordinator
        self._worker = worker
        self._server = server
        self._clock = clock
        self._told_of: dict[str, tuple[ServedRepo, float]] = {}  # by the name asked for, oldest first

    async def open(self, key: str, *, begun: bool = False, private: bool = True) -> ServedRepo | None:
        """The mirror of ``key`` (or alias), where it is in the catalog; NotHereYet while it is not on disk.

        A clone is several requests: one that has begun goes on from the trash, should its mirror leave."""
        try:
            record = await self._coordinator.find_repo(key)
        except (NotFound, InvalidUrl):
            return await self._leaving(key) if begun else None
        if record.spec.private and not private:
            return None
        path = self._worker.mirror_path(record.key)
        if path is None:
            leaving = await self._leaving(key) if begun else None
            if leaving is None:
                raise _not_here_yet(record)
            return leaving
        repo = ServedRepo(record.key, path, record.spec.private, record.verified_at)
        self._told_of.pop(key, None)
        self._told_of[key] = (repo, self._clock())
        if len(self._told_of) > TOLD_OF_MAX:
            del self._told_of[next(iter(self._told_of))]
        return repo

    async def _leaving(self, key: str) -> ServedRepo | None:
        """A mirror that some client was told of a moment ago, in the trash or on its way there."""
        repo, at = self._told_of.get(key, (None, 0.0))
        if repo is None or self._clock() - at > BEGUN_S:
            return None
        path = await self._worker.trashed_path(repo.key)
        return None if path is None else replace(repo, path=path)

    def advertise(self, repo: ServedRepo, protocol: str, client: str) -> AsyncIterator[bytes]:
        on_damage = functools.partial(self._worker.suspect, repo.key)
        return told(self._server.advertise(repo.path, protocol, client=client, on_damage=on_damage))

    def upload_pack(
        self, repo: ServedRepo, body: AsyncIterator[bytes], protocol: str, client: str
    ) -> AsyncIterator[bytes]:
        on_damage = functools.partial(self._worker.suspect, repo.key)
        return told(self._server.upload_pack(repo.path, body, protocol, client=client, on_damage=on_damage))


def _not_here_yet(record: RepoRecord) -> NotHereYet:
    failure = record.last_failure
    if record.status is RepoStatus.INACTIVE:
        why, retry_s = "it is switched off, and has no copy here", FAILED_RETRY_S
    elif failure is not None and record.consecutive_failures:
        said = failure.message.rstrip(".")
        why, retry_s = f"it could not be cloned yet: {said}. It is tried again by itself", FAILED_RETRY_S
    else:
        why, retry_s = "its first clone is not finished yet. Try again in a moment", CLONING_RETRY_S
    return NotHereYet(f"This repository is in the catalog, but {why}.", retry_s)


async def told(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Ends git as soon as the client is gone; says in the HTTP face's words that there is no room."""
    async with contextlib.aclosing(chunks):
        try:
            async for chunk in chunks:
                yield chunk
        except ServerBusy as busy:
            raise GitBusy(busy.retry_after_s) from None
        except FileNotFoundError:  # the mirror was moved between being found and being read
            raise GitBusy(MOVED_RETRY_S) from None
        except FailureError as error:
            if error.failure.context.get(CAUSE) not in LACKING:
                raise
            raise GitBusy(MEMORY_RETRY_S) from None
        except BadRequest as error:
            raise FailureError(Failure(FailureKind.UNKNOWN, str(error))) from None
