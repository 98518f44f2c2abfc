"""The mirrors that an aggregator has collected, as the HTTP face serves them to git clients."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace

from evermirror.core.collect.decisions import Outcome
from evermirror.core.collect.rows import Row
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.git.serve import GitServer
from evermirror.edge.store.collected import Collected
from evermirror.faces.api.git_service import NotHereYet, ServedRepo
from evermirror.model.repo import RepoKey
from evermirror.nodes.aggregator.collecting import Collecting
from evermirror.nodes.aggregator.readers import Readers
from evermirror.nodes.damage_checks import DamageChecks
from evermirror.nodes.served import BEGUN_S, TOLD_OF_MAX, told

_WHY = {
    Outcome.LATER: "This repository is in the catalog, but not here yet",
    Outcome.NO_ROOM: "This repository is in the catalog, but there is no room for it here now",
}


class ServedCollected:
    """Implements the API's ``GitService``; what is not here is waited for, for a while."""

    def __init__(
        self,
        store: Collected,
        mirrors: Mirrors,
        collecting: Collecting,
        readers: Readers,
        checks: DamageChecks,
        server: GitServer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._mirrors = mirrors
        self._collecting = collecting
        self._readers = readers
        self._checks = checks
        self._server = server
        self._clock = clock
        self._told_of: dict[str, tuple[ServedRepo, float]] = {}  # by the name asked for, oldest first

    async def open(self, key: str, *, begun: bool = False, private: bool = True) -> ServedRepo | None:
        """A clone is several requests: one that has begun goes on from the trash, should its mirror leave."""
        row = await self._store.find(key)
        if row is None:
            return await self._leaving(key, private=private) if begun else None
        if row.spec.private and not private:
            return None
        repo = self._here(row)
        if repo is None:
            repo = await self._wait_for(row.key)
        if repo is not None:
            self._tell_of(key, repo)
        return repo

    async def if_here(self, key: RepoKey) -> ServedRepo | None:
        """Without waiting for what is not."""
        row = await self._store.row_of(key)
        return None if row is None else self._here(row)

    def _here(self, row: Row) -> ServedRepo | None:
        path = self._mirrors.path(row.key)
        if row.here is None or not row.served or not path.is_dir():
            return None
        self._readers.used(row.key)
        return ServedRepo(row.key, path, row.spec.private, row.here.verified_at)

    async def _wait_for(self, key: RepoKey) -> ServedRepo | None:
        answer = await self._collecting.want(key)
        if answer.outcome is Outcome.UNKNOWN:
            return None
        row = await self._store.row_of(key) if answer.outcome is Outcome.HERE else None
        if row is not None and (repo := self._here(row)) is not None:
            return repo
        why = _WHY.get(answer.outcome, _WHY[Outcome.LATER])
        reason = f"{why} ({answer.text})" if answer.text else why
        raise NotHereYet(f"{reason}. Try again later.", answer.retry_after_s)

    def _tell_of(self, key: str, repo: ServedRepo) -> None:
        self._told_of.pop(key, None)
        self._told_of[key] = (repo, self._clock())
        if len(self._told_of) > TOLD_OF_MAX:
            del self._told_of[next(iter(self._told_of))]

    async def _leaving(self, key: str, *, private: bool) -> ServedRepo | None:
        """A mirror that some client was told of a moment ago, in the trash or on its way there."""
        repo, at = self._told_of.get(key, (None, 0.0))
        if repo is None or self._clock() - at > BEGUN_S or (repo.private and not private):
            return None
        if repo.path.is_dir():
            return repo
        trashed = (item.path for item in await self._mirrors.trashed() if item.key == repo.key)
        path = next((path for path in trashed if path.is_dir()), None)
        return None if path is None else replace(repo, path=path)

    def advertise(self, repo: ServedRepo, protocol: str, client: str) -> AsyncIterator[bytes]:
        on_damage = functools.partial(self._checks.suspect, repo.key)
        chunks = self._server.advertise(repo.path, protocol, client=client, on_damage=on_damage)
        return self._read(repo.key, chunks)

    def upload_pack(
        self, repo: ServedRepo, body: AsyncIterator[bytes], protocol: str, client: str
    ) -> AsyncIterator[bytes]:
        on_damage = functools.partial(self._checks.suspect, repo.key)
        chunks = self._server.upload_pack(repo.path, body, protocol, client=client, on_damage=on_damage)
        return self._read(repo.key, chunks)

    async def _read(self, key: RepoKey, chunks: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
        with self._readers.reading(key):
            async with contextlib.aclosing(told(chunks)) as answer:
                async for chunk in answer:
                    yield chunk
