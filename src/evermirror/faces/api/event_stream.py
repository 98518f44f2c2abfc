"""One follower's stream of events: server-sent events, until the client leaves, is too slow, or we stop.

By the standard (HTML, "Server-sent events") an ``id`` without ``data`` moves the place from which a client
resumes, and is no event.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing

from starlette.types import Receive, Scope, Send

from evermirror.core.events.schema import iso
from evermirror.faces.api.event_door import EventDoor
from evermirror.faces.api.limits import HEAD
from evermirror.faces.api.problems import ApiProblem
from evermirror.faces.api.text import printable
from evermirror.model.event import EVENTS_VERSION, Event
from evermirror.model.failure import FailureError
from evermirror.model.messages import Progress
from evermirror.nodes.event_service import Followed, Gap, LookedUpTo

MEDIA_TYPE = "text/event-stream"
RETRY_MS = 2000  # after which a client comes back
SLOW_S = 30.0  # a client that takes nothing for so long is left; it comes back and resumes
CHECK_S = 5.0  # between two looks whether the caller may still follow

Identify = Callable[[], Awaitable[object]]


class EventStream:
    """An ASGI answer. ``room`` is held while it lasts; ``identify`` tells who the caller is by now;
    ``board`` has frames of the overview, for one who wants them too."""

    def __init__(
        self,
        followed: AsyncGenerator[Followed, None],
        door: EventDoor,
        room: AbstractContextManager[None],
        identify: Identify,
        board: AsyncGenerator[bytes, None] | None = None,
    ) -> None:
        self._followed = followed
        self._door = door
        self._room = room
        self._identify = identify
        self._board = board
        self._sending = asyncio.Lock()  # events and the overview come by themselves

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._room:
            headers = [
                (b"content-type", f"{MEDIA_TYPE}; charset=utf-8".encode()),
                (b"cache-control", b"no-store"),
                (b"x-accel-buffering", b"no"),  # a proxy that gathers would make it late
            ]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            if scope.get(HEAD):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            await self._until_over(receive, send)

    async def _until_over(self, receive: Receive, send: Send) -> None:
        telling = [asyncio.create_task(self._pump(send))]
        if self._board is not None:
            telling.append(asyncio.create_task(self._post(send, self._board)))
        leaving = asyncio.create_task(_left(receive))
        allowed = asyncio.create_task(self._while_allowed())
        tasks = (*telling, leaving, allowed)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            ended = [task for task in telling if task.done()]
            whole = allowed.done() or (bool(ended) and all(not t.exception() and t.result() for t in ended))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for one in telling:
            if one.done() and not one.cancelled():
                one.result()  # a bug is told as one
        if whole:
            with contextlib.suppress(TimeoutError):  # one that takes nothing need not know that it is over
                await self._send(send, b"", more=False)

    async def _pump(self, send: Send) -> bool:
        """Whether the stream is whole up to its end: not where the client takes nothing."""
        try:
            await self._send(send, f"retry: {RETRY_MS}\n\n".encode())
            async with aclosing(self._followed) as followed:
                async for some in followed:
                    await self._send(send, self._text(some))
        except TimeoutError:
            return False
        except FailureError:  # the database is away: the client comes back, and resumes
            return True
        return True

    async def _post(self, send: Send, board: AsyncGenerator[bytes, None]) -> bool:
        """The overview, beside the events; whole as they are."""
        try:
            async with aclosing(board) as frames:
                async for frame in frames:
                    await self._send(send, frame)
        except TimeoutError:
            return False
        return True

    async def _send(self, send: Send, text: bytes, *, more: bool = True) -> None:
        async with self._sending, asyncio.timeout(SLOW_S):  # waiting for one's own other half is not slow
            await send({"type": "http.response.body", "body": text, "more_body": more})

    def _text(self, some: Followed) -> bytes:
        match some:
            case Gap():
                return _gap(some)
            case LookedUpTo():
                return f": nothing\nid: {some.id}\n\n".encode()
            case _:
                return b"".join(map(self._one, some))

    def _one(self, one: Event | Progress) -> bytes:
        return self._door.frame(one) if isinstance(one, Event) else _progress(one)

    async def _while_allowed(self) -> None:
        """Ends where the caller's token was revoked, or is another's; not where the database is away."""
        caller: object = None
        while True:
            try:
                who = await self._identify()
                if caller is not None and who != caller:
                    return
                caller = who
            except ApiProblem:
                return
            except FailureError:
                pass
            await asyncio.sleep(CHECK_S)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _gap(gap: Gap) -> bytes:
    told = {"version": EVENTS_VERSION, "type": "gap", "after": gap.after, "until": gap.until}
    return f"id: {gap.until}\nevent: gap\ndata: {json.dumps(told, separators=(',', ':'))}\n\n".encode()


def _progress(progress: Progress) -> bytes:
    told = {
        "version": EVENTS_VERSION,
        "type": "progress",
        "at": iso(progress.at),
        "repo": printable(progress.key),
        "data": {
            "phase": printable(progress.phase),
            "percent": progress.percent,
            "received_bytes": progress.received_bytes,
            "task_ids": [str(i) for i in progress.task_ids],
        },
    }
    return f"event: progress\ndata: {json.dumps(told, separators=(',', ':'))}\n\n".encode()
