"""The mirrors on this node's disk, as the HTTP face serves them to git clients."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

from evermirror.edge.git.serve import GitServer, ServerBusy
from evermirror.errors import InvalidUrl, NotFound
from evermirror.faces.api.git_service import GitBusy, ServedRepo
from evermirror.nodes.coordinator import Coordinator
from evermirror.nodes.worker import Worker


class ServedMirrors:
    """Implements the API's ``GitService``."""

    def __init__(self, coordinator: Coordinator, worker: Worker, server: GitServer) -> None:
        self._coordinator = coordinator
        self._worker = worker
        self._server = server

    async def open(self, key: str) -> ServedRepo | None:
        """The mirror of ``key`` (or alias), where it is in the catalog and on disk."""
        try:
            record = await self._coordinator.find_repo(key)
        except (NotFound, InvalidUrl):
            return None
        path = self._worker.mirror_path(record.key)
        if path is None:
            return None
        return ServedRepo(record.key, path, record.spec.private, record.verified_at)

    def advertise(self, repo: ServedRepo, protocol: str) -> AsyncIterator[bytes]:
        return _told(self._server.advertise(repo.path, protocol))

    def upload_pack(
        self, repo: ServedRepo, body: AsyncIterator[bytes], protocol: str
    ) -> AsyncIterator[bytes]:
        return _told(self._server.upload_pack(repo.path, body, protocol))


async def _told(chunks: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """Ends git as soon as the client is gone; says in the HTTP face's words that there is no room."""
    async with contextlib.aclosing(chunks):
        try:
            async for chunk in chunks:
                yield chunk
        except ServerBusy as busy:
            raise GitBusy(busy.retry_after_s) from None
