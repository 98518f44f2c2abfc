"""A worker's reports on their way: numbered at once, written down, sent in order, kept until they are taken.

    put ──▶ buffer ──write──▶ log ──send──▶ connection        taken(seq): acknowledged, soon forgotten
            numbers: … ≤ log.last < … ≤ given
    mark ──▶ frames that go out after every report given before, and before every later one

Rules
- A report is sent when it is on the disk. While the disk takes no writes (it is full: that is what most
  needs to be told) reports are sent from the buffer, up to the numbers that the log has reserved.
- At most WINDOW reports are unacknowledged; the buffer is bounded too, and ``put`` waits while it is full.
- Marks last as long as a session that is resumed.
- What is written and what is remembered of it change together, also where a stop comes in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import structlog
from google.protobuf.message import DecodeError

from evermirror.edge.rpc.convert import FRAME_BYTES_MAX
from evermirror.edge.rpc.convert_reports import report_in, report_out
from evermirror.edge.rpc.convert_values import FrameInvalid
from evermirror.edge.rpc.generated import fleet_pb2 as pb
from evermirror.edge.rpc.transport import Connection, PeerGone
from evermirror.edge.store.report_log import LoggedReport, ReportLog
from evermirror.edge.store.whole import whole
from evermirror.model.failure import Failure, FailureError
from evermirror.model.messages import Excused, Failed, Report, Started, Synced
from evermirror.model.wire import Numbered, Up

log = structlog.get_logger(__name__)

BUFFER_MAX = 4096  # reports not on the disk yet; a burst of results while it is busy
WINDOW = 2000  # reports sent and not acknowledged
FRAME_REPORTS = 200
FRAME_BYTES = 1 << 20  # of reports in one frame; a single larger one goes alone
REPORT_BYTES = FRAME_BYTES_MAX // 2  # of one report; beyond it, what moved is told by its number alone
MESSAGE_CHARS = 1000  # then, of a failure
GATHER_S = 0.01  # reports within it share a commit
RETRY_S = 1.0  # between two tries to write to a disk that takes no writes
FORGET_S = 1.0  # what was taken is deleted so often: not with every acknowledgement
STALL_S = 120.0  # without any acknowledgement: the connection is taken for broken

_NOTHING = Excused(())  # in place of a report that was dropped: its number must not be missing


class SetBack(Exception):
    """One of the two memories was set back: numbers do not mean the same on both sides any more."""


@dataclass(frozen=True, slots=True)
class _Mark:
    after: int
    frames: Sequence[Up]


class Outgoing:
    """``put`` and ``mark`` at any time; ``write`` and ``keep_forgetting`` run all the time, ``send`` and
    ``watch`` during a connection, after ``begin``."""

    def __init__(self, log: ReportLog) -> None:
        self._log = log
        self._buffer: deque[LoggedReport] = deque()  # numbered from log.last + 1 on
        self._marks: deque[_Mark] = deque()
        self._lock = asyncio.Lock()  # one at a time changes the log
        self._sent = 0
        self._acked = log.first - 1
        self._failing = False  # the disk takes no writes
        self._to_write = asyncio.Event()
        self._to_send = asyncio.Event()
        self._room = asyncio.Event()

    @property
    def generation(self) -> int:
        return self._log.generation

    @property
    def given(self) -> int:
        """The last number that was given."""
        return self._log.last + len(self._buffer)

    @property
    def unacknowledged(self) -> int:
        return self.given - self._acked

    # In

    async def put(self, report: Report) -> None:
        """The report has its number, and its place before everything that is put or marked later."""
        body = _encoded(report)
        if body is None:
            return
        while len(self._buffer) >= BUFFER_MAX:
            self._room.clear()
            await self._room.wait()
        self._buffer.append(LoggedReport(body, _is_spare(report)))
        self._to_write.set()
        if self._failing:
            self._to_send.set()

    def mark(self, frames: Sequence[Up]) -> None:
        """These go out between the reports given so far and those to come."""
        self._marks.append(_Mark(self.given, frames))
        self._to_send.set()

    def drop_marks(self) -> None:
        """The session they belonged to is over."""
        self._marks.clear()

    # To the disk

    async def write(self) -> None:
        """Writes down what comes in, until cancelled."""
        while True:
            await self._to_write.wait()
            await asyncio.sleep(GATHER_S)
            self._to_write.clear()
            if not await self.flush():
                await asyncio.sleep(RETRY_S)
                self._to_write.set()

    async def flush(self) -> bool:
        """Writes down all that is in the buffer now; False where the disk does not take it."""
        return await whole(self._flush())

    async def _flush(self) -> bool:
        async with self._lock:
            batch = list(islice(self._buffer, BUFFER_MAX))
            try:
                if self._acked > self._log.last:  # told ahead, and taken
                    await self._forget()
                    batch = list(islice(self._buffer, BUFFER_MAX))
                await self._log.append(batch)
            except FailureError as error:
                if not self._failing:
                    log.error(
                        "reports cannot be written down: they are sent from memory",
                        reason=error.failure.message,
                    )
                self._failing = True
                self._to_send.set()
                return False
            for _ in batch:
                self._buffer.popleft()
        self._failing = False
        self._room.set()
        self._to_send.set()
        return True

    async def keep_forgetting(self) -> None:
        """Deletes what was taken, until cancelled."""
        while True:
            await asyncio.sleep(FORGET_S)
            try:
                await whole(self._forget_taken())
            except FailureError as error:
                log.debug("reports not forgotten yet", reason=error.failure.message)

    async def _forget_taken(self) -> None:
        async with self._lock:
            await self._forget()

    async def _forget(self) -> None:
        before = self._log.last
        await self._log.forget(self._acked)
        for _ in range(self._log.last - before):
            self._buffer.popleft()
        self._room.set()

    async def renew(self) -> None:
        """Begins a new generation with all that was not acknowledged; raises FailureError."""
        await whole(self._renew())

    async def _renew(self) -> None:
        async with self._lock:
            await self._log.renew()
            self._acked = self._sent = 0
            self._marks.clear()
        log.warning("reports are numbered anew: a memory was set back", waiting=self.given)

    # Out

    def begin(self, generation: int, taken: int) -> None:
        """A connection begins, and the other side has all up to ``taken``."""
        if generation != self.generation or not self._log.first - 1 <= taken <= self.given:
            raise SetBack
        self._sent = self._acked = taken

    def taken(self, generation: int, seq: int) -> None:
        """An acknowledgement."""
        if generation != self.generation:
            return
        if not self._acked <= seq <= self.given:
            raise SetBack
        self._acked = seq
        self._to_send.set()

    async def send(self, connection: Connection) -> None:
        """Sends what there is and what comes, in order, until the connection ends."""
        while True:
            self._to_send.clear()
            if not await self._send_next(connection):
                await self._to_send.wait()

    async def _send_next(self, connection: Connection) -> bool:
        mark = self._marks[0] if self._marks else None
        if mark is not None and mark.after <= self._sent:
            for frame in mark.frames:
                await connection.send(frame)
            self._marks.popleft()
            return True
        until = self.given if mark is None else mark.after
        room = min(FRAME_REPORTS, until - self._sent, self._acked + WINDOW - self._sent)
        bodies = await self._next_bodies(room) if room > 0 else []
        if not bodies:
            return False
        await connection.send(Numbered(self.generation, self._sent + 1, tuple(map(_decoded, bodies))))
        self._sent += len(bodies)
        return True

    async def _next_bodies(self, limit: int) -> list[bytes]:
        if self._sent < self._log.last:
            bodies = [body for _, body in await self._log.read(self._sent, limit)]
        elif self._failing:
            start = self._sent - self._log.last
            told_ahead = min(limit, self._log.reserved - self._sent)
            bodies = [r.body for r in islice(self._buffer, start, start + max(told_ahead, 0))]
        else:
            bodies = []
        size = 0
        for n, body in enumerate(bodies):
            size += len(body)
            if n and size > FRAME_BYTES:
                return bodies[:n]
        return bodies

    async def watch(self) -> None:
        """Ends the connection where acknowledgements stay out."""
        while True:
            acked, sent = self._acked, self._sent
            await asyncio.sleep(STALL_S)
            if self._acked == acked < sent:
                raise PeerGone(f"no report was acknowledged for {STALL_S:g} s")


def _is_spare(report: Report) -> bool:
    """Nobody waits for it, and the next attempt tells the same again."""
    return isinstance(report, Failed | Started) and not report.task_ids


def _encoded(report: Report) -> bytes | None:
    """None for what no frame can carry: a bug, which must not stop the reports behind it."""
    try:
        body = report_out(report).SerializeToString()
        if len(body) > REPORT_BYTES and isinstance(report, Synced):  # refs with names of monstrous length
            body = report_out(_shortened(report)).SerializeToString()
        if len(body) > REPORT_BYTES:
            raise FrameInvalid(f"{len(body)} bytes in one report")
    except FrameInvalid:
        log.exception("a report that cannot be told", report=type(report).__name__)
        return None
    return body


def _shortened(report: Synced) -> Synced:
    """What moved is told by its number alone, and of failures what they come to."""
    pushes = tuple(replace(p, refs=(), failure=p.failure and _briefly(p.failure)) for p in report.pushes)
    return replace(report, changes=(), kept=(), pushes=pushes)


def _briefly(failure: Failure) -> Failure:
    return Failure(failure.kind, failure.message[:MESSAGE_CHARS], retry_after_s=failure.retry_after_s)


def _decoded(body: bytes) -> Report:
    if not body:
        return _NOTHING
    try:
        return report_in(pb.Report.FromString(body))
    except (DecodeError, FrameInvalid, ValueError) as error:  # of another version of the program, or damaged
        log.warning("a report from before cannot be read: it is left out", reason=str(error))
        return _NOTHING
