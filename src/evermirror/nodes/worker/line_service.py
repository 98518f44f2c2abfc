"""A worker's mirrors, as it serves them over its lines to readers that may: with the old tips they keep."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

from evermirror.edge.git.serve import BadRequest, GitServer, ServerBusy
from evermirror.edge.relay.ask import ReadRequest
from evermirror.edge.relay.serving import Busy, NotHere, Refused
from evermirror.model.access import Role
from evermirror.model.failure import Failure, FailureError
from evermirror.model.repo import RepoKey

MOVED_RETRY_S = 1.0  # a mirror that is exchanged or removed is in its new place by then
DAMAGED_RETRY_S = 60.0  # it is checked and mended


class MirrorLines:
    """A ``LineService``; who asks was checked before, and what it may read is checked here, for each request:
    a repo may have become private since its ticket was sealed.

    ``path_of`` gives a complete mirror, or None. ``is_public`` says whether any worker may read it.
    ``in_contact``: the coordinator was heard of lately. ``suspect`` has a mirror checked that cannot be
    served."""

    def __init__(
        self,
        server: GitServer,
        path_of: Callable[[RepoKey], Path | None],
        *,
        is_public: Callable[[RepoKey], bool],
        in_contact: Callable[[], bool],
        suspect: Callable[[RepoKey, Failure], None],
    ) -> None:
        self._server = server
        self._path_of = path_of
        self._is_public = is_public
        self._in_contact = in_contact
        self._suspect = suspect

    def _may_read(self, request: ReadRequest) -> bool:
        """Aggregators serve everything anyway. A private repo is given to another worker only if its ticket
        says that it is trusted, and while the coordinator could take that back."""
        if request.role is Role.AGGREGATOR or self._is_public(request.key):
            return True
        return request.ticket is not None and request.ticket.trusted and self._in_contact()

    async def handle(self, request: ReadRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        path = self._path_of(request.key)
        if path is None or not self._may_read(request):  # not told apart: the reader may not know of it
            raise NotHere(f"{request.key} is not held here")
        protocol, reader = request.protocol, request.reader
        on_damage = functools.partial(self._suspect, request.key)
        if request.service == "refs":
            answer = self._server.advertise(path, protocol, client=reader, on_damage=on_damage)
        else:
            answer = self._server.upload_pack(path, body, protocol, client=reader, on_damage=on_damage)
        async with aclosing(answer):
            try:
                async for chunk in answer:
                    yield chunk
            except ServerBusy as busy:
                raise Busy(busy.retry_after_s) from None
            except FileNotFoundError:
                raise Busy(MOVED_RETRY_S, "the mirror is being moved") from None
            except BadRequest as error:
                raise Refused(str(error)) from None
            except FailureError as error:
                if error.failure.corrupt:
                    raise Busy(DAMAGED_RETRY_S, "the mirror is damaged; it is checked and mended") from None
                raise
