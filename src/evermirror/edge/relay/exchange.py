"""One request on a line: the half that asks, and the half that answers. Neither looks into bodies.

    reader ── question ──▶ relay ── answer(question) ──▶ holder: answer(LineService)

A relay answers one line with what it is told on another, piece by piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress

import structlog

from evermirror.edge.git.serve_request import BadRequest, RequestTooLarge
from evermirror.edge.relay.ask import (
    AnswerBroken,
    HolderAway,
    HolderFailed,
    HolderLacks,
    HolderRefused,
    ReaderRefused,
)
from evermirror.edge.relay.frames import Answer, Body, End, Request, Status
from evermirror.edge.relay.limits import LineLimits
from evermirror.edge.relay.line import Line, LineBroken
from evermirror.errors import EvermirrorError

REST_BYTES_MAX = 64 * 1024  # of a request that is read on although the answer needs it no more
RETRY_S = 2.0  # after a line that broke
FAILED_RETRY_S = 30.0  # a damaged mirror is mended by its next sync

log = structlog.get_logger(__name__)


class Busy(EvermirrorError):
    """The holder has too much to do."""

    def __init__(self, retry_after_s: float, why: str = "busy") -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s


class NotHere(EvermirrorError):
    """The holder has no such repo."""


class Refused(EvermirrorError):
    """The reader may not."""


async def question(
    line: Line, request: Request, body: AsyncIterator[bytes], silence_s: float
) -> AsyncGenerator[bytes, None]:
    """Ask, and give what is answered; ``Reach.ask`` says what is raised. Unless all went its way the line is
    broken afterwards; where it is not, it is free for the next request."""
    line.idle = False
    began = clean = False
    sending = asyncio.create_task(_send(line, request, body))
    try:
        _accept(line, await line.next(silence_s))
        while not isinstance(message := await line.next(silence_s), End):
            if not isinstance(message, Body):
                raise line.out_of_order(message)
            began = True
            yield message.data
        clean = True
    except (HolderAway, HolderRefused):
        clean = True
        raise
    except LineBroken as broken:
        if sending.done() and not sending.cancelled() and (error := sending.exception()) is not None:
            raise error from None  # what is wrong with the reader's own request
        if began:
            raise AnswerBroken(f"the answer broke off: {broken.message}") from None
        raise HolderAway(f"the line broke: {broken.message}", RETRY_S) from None
    finally:
        if not (clean and sending.done()):
            line.abort("the request was ended")
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        line.idle = True


def _accept(line: Line, message: object) -> None:
    match message:
        case Answer(Status.OK):
            return
        case Answer(Status.REFUSED, reason):
            raise HolderRefused(reason or "no reason given")
        case Answer(Status.NOT_LET_IN, reason):
            raise ReaderRefused(reason or "no reason given")
        case Answer(Status.NOT_HERE, reason):
            raise HolderLacks(reason or "not here")
        case Answer(Status.FAILED, reason):
            raise HolderFailed(reason or "it failed there", FAILED_RETRY_S)
        case Answer(status, reason, retry_after_s):
            raise HolderAway(reason or status, max(retry_after_s, 1.0))
        case Body() | End() | Request():
            raise line.out_of_order(message)
        case _:
            line.abort("out of order")
            raise LineBroken(line.why)


async def _send(line: Line, request: Request, body: AsyncIterator[bytes]) -> None:
    try:
        await line.send(request)
        async for piece in body:
            await line.send(Body(piece))
        await line.send(End())
    except LineBroken:
        return  # whoever reads the answer hears of it
    except Exception:
        line.abort("the request could not be read")
        raise


class Incoming:
    """The body of a request, as it comes."""

    def __init__(self, line: Line, limits: LineLimits) -> None:
        self._line = line
        self._limits = limits
        self._size = 0
        self.ended = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self.ended:
            raise StopAsyncIteration
        message = await self._line.next(self._limits.silence_s)
        if isinstance(message, End):
            self.ended = True
            raise StopAsyncIteration
        if not isinstance(message, Body):
            raise self._line.out_of_order(message)
        self._size += len(message.data)
        if self._size > self._limits.request_bytes_max:
            raise RequestTooLarge(f"the request is larger than {self._limits.request_bytes_max} bytes")
        return message.data

    async def finish(self) -> bool:
        """Whether the little that may be left was read: then the line is free again."""
        unread = REST_BYTES_MAX
        with suppress(TimeoutError, BadRequest):
            async with asyncio.timeout(self._limits.hello_s):
                async for piece in self:
                    unread -= len(piece)
                    if unread < 0:
                        break
        return self.ended


async def answer(
    line: Line, limits: LineLimits, serve: Callable[[Incoming], AsyncGenerator[bytes, None]]
) -> None:
    """Answer the request that was just heard. Returns once the line is free; raises LineBroken. Whatever
    ``serve`` does ends as soon as the line is gone."""
    line.idle = False
    body = Incoming(line, limits)
    pieces = serve(body)
    work = asyncio.create_task(_answer(line, pieces))
    try:
        await asyncio.wait({work, line.gone}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await pieces.aclose()
    if line.why:
        raise LineBroken(line.why)
    if not await body.finish():
        line.close("more was sent than the answer needed")
        raise LineBroken(line.why)
    line.idle = True


async def _answer(line: Line, pieces: AsyncGenerator[bytes, None]) -> None:
    first: bytes | None
    try:
        first = await anext(pieces, None)
    except LineBroken:
        raise
    except Exception as error:
        await line.send(_status_of(error))
        return
    await line.send(Answer(Status.OK))
    try:
        if first is not None:
            if first:
                await line.send(Body(first))
            async for piece in pieces:
                if piece:
                    await line.send(Body(piece))
    except LineBroken:
        raise
    except Exception as error:
        log.info("an answer broke off", error=type(error).__name__)
        line.abort("the answer broke off")
        raise LineBroken(line.why) from None
    await line.send(End())


def _status_of(error: Exception) -> Answer:
    match error:
        case HolderFailed():
            return Answer(Status.FAILED, error.message)
        case Busy() | HolderAway():
            return Answer(Status.BUSY, error.message, error.retry_after_s)
        case NotHere():
            return Answer(Status.NOT_HERE, error.message)
        case HolderLacks():
            return Answer(Status.NOT_HERE, error.reason)
        case Refused():
            return Answer(Status.REFUSED, error.message)
        case ReaderRefused():
            return Answer(Status.NOT_LET_IN, error.reason)
        case HolderRefused():
            return Answer(Status.REFUSED, error.reason)
        case BadRequest():
            return Answer(Status.FAILED, error.message)
        case _:
            log.warning("a request of another node failed", error=repr(error))
            return Answer(Status.FAILED, "it failed there")
