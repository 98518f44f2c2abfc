"""Read-only smart HTTP for one mirror: what ``git upload-pack`` says, streamed, and never a way to write.

    refs (advertisement, ls-refs) ─▶ the same as before? ── from memory
                                     else ── git, once ──▶ memory
    fetch ─▶ nothing hidden wanted ─▶ a clone, as before? ── from its file, also while that is written
                                     a new clone ────────── git ──▶ file ──▶ all who ask for the same
                                     client has something ─ git ──▶ that client

The HTTP face decides who may ask for what; here a request is a folder, a protocol word and a stream of bytes.
A mirror that is updated, moved or replaced meanwhile does not break a running answer: upload-pack works
inside the folder that it entered, wherever that is moved to, and packs are not removed under it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path

from evermirror.core.keep.names import KEPT
from evermirror.edge.git.command import Git
from evermirror.edge.git.pktline import encode
from evermirror.edge.git.refs import NO_HEAD, OWN_NAMESPACE, head_target
from evermirror.edge.git.serve_ask import Ask, is_protocol, wants_v2
from evermirror.edge.git.serve_cache import (
    ANSWER_BYTES_MAX,
    SMALL_ANSWER_BYTES_MAX,
    Answers,
    Pack,
    Packs,
)
from evermirror.edge.git.serve_damage import (
    ERR_BYTES,
    OnDamage,
    failed,
    is_error,
    noticed,
    tell_damage,
    without_null_refs,
)
from evermirror.edge.git.serve_gate import Gate, Place, ServerBusy
from evermirror.edge.git.serve_intake import Intake
from evermirror.edge.git.serve_refs import list_refs
from evermirror.edge.git.serve_request import (
    LS_REFS,
    BadRequest,
    RequestScan,
    RequestTooLarge,
    bounded_body,
    without_object_info,
)
from evermirror.edge.git.serve_settings import ServeFigures, ServeSettings
from evermirror.edge.git.serve_state import State, States
from evermirror.edge.git.serve_tips import Tips, TipsReader
from evermirror.edge.git.stream import StreamingChild, run_into
from evermirror.model.failure import FailureError

__all__ = [
    "BadRequest",
    "GitServer",
    "RequestTooLarge",
    "ServeFigures",
    "ServeSettings",
    "ServerBusy",
    "bounded_body",
]

SERVICE_LINE = b"001e# service=git-upload-pack\n0000"  # before a v0/v1 advertisement; v2 has none
LISTING_BYTES = 16_000_000  # that a large list of refs is expected to have: of a repository with 200,000
PIECE_BYTES = 64 * 1024  # of an answer in memory, given at once: what waits for a slow client is not copied
JOINS_MAX = 3  # answers begun by others, who then got no place, before a client has its own made
READERS_MAX = 1_000  # answers with packs on their way at a time, from files too


class AnswerEndedBadly(Exception):
    """git failed after its first byte: what it has to say about that is in the answer."""


class _HiddenWanted(Exception):
    """``oid`` is only here because it is kept."""

    def __init__(self, oid: bytes) -> None:
        super().__init__(oid)
        self.oid = oid


class GitServer:
    """Answers for bare repositories on disk."""

    def __init__(
        self, git: Git, settings: ServeSettings | None = None, utc: Callable[[], float] = time.time
    ) -> None:
        self._git = git
        s = self._settings = settings if settings is not None else ServeSettings()
        self._intake = Intake(s.filters)
        self._readers = Gate(READERS_MAX, s.per_client, s.queue, s.queue_wait_s, fair=True)
        self._packing, self._listing = (  # whoever only looks need not wait for those who clone
            Gate(s.packs_max, s.packs_max, s.queue, s.queue_wait_s, fair=True, pace_bytes_s=s.pace_bytes_s)
            for _ in range(2)
        )
        self._states = States()
        self._tips = TipsReader(git, utc=utc)
        self._answers = Answers()
        self._listings: dict[bytes, tuple[str, asyncio.Task[bytes | None]]] = {}  # and who began it
        use_files = s.cache_folder is not None and s.cache_bytes > 0
        self._packs = Packs(s.cache_folder, s.cache_bytes) if use_files and s.cache_folder else None
        self._requests: Counter[tuple[str, bool]] = Counter()
        self._sent_bytes = 0

    def figures(self) -> ServeFigures:
        """For people and for Prometheus."""
        gates = (self._readers, self._packing, self._listing)
        kept = self._packs.figures() if self._packs is not None else None
        return ServeFigures(
            requests=dict(self._requests),
            sent_bytes=self._sent_bytes,
            refused=sum(g.refused for g in gates),
            cut=sum(g.cut for g in gates),
            running=self._packing.running + self._listing.running,
            waiting=sum(g.waiting for g in gates),
            cache_packs=kept.packs if kept else 0,
            cache_bytes=(kept.bytes if kept else 0) + self._answers.bytes,
        )

    async def advertise(
        self, repo: Path, protocol: str = "", *, client: str = "", on_damage: OnDamage | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The answer to ``GET …/info/refs?service=git-upload-pack``."""
        first = b"" if wants_v2(protocol) else SERVICE_LINE
        ask = Ask(repo, protocol, client, ("--http-backend-info-refs",), b"", on_damage=on_damage)
        async with aclosing(noticed(repo, on_damage, self._list(ask, b"info/refs"))) as answer:
            async for chunk in answer:
                self._sent_bytes += len(chunk)
                yield first + chunk  # together: what fails before it is still told by a status
                first = b""

    async def upload_pack(
        self,
        repo: Path,
        body: AsyncIterator[bytes],
        protocol: str = "",
        *,
        gzipped: bool = False,
        client: str = "",
        on_damage: OnDamage | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The answer to ``POST …/git-upload-pack``. What looks like damage is told to ``on_damage``."""
        rest = bounded_body(body, self._settings.request_bytes_max, gzipped=gzipped)
        async with self._intake.read(rest, client) as request:
            ask, scan = Ask(repo, protocol, client, (), request.held, on_damage=on_damage), request.scan
            if request.whole and scan.whole and scan.command == LS_REFS and not scan.wants:
                answer = self._list(ask, scan.fingerprint())
            else:
                answer = self._fetch(ask, scan, None if request.whole else rest)
            async with aclosing(noticed(repo, on_damage, answer)) as chunks:
                async for chunk in chunks:
                    self._sent_bytes += len(chunk)
                    yield chunk

    # Refs

    async def _list(self, ask: Ask, request: bytes) -> AsyncGenerator[bytes, None]:
        """From memory, or from a file where it is large; else git is asked once for all who wait.

        A slow client keeps no place here. Only where there is no room for a file, git waits for it."""
        state = self._states.read(ask.repo)
        key = ask.key(state, request) if state is not None else secrets.token_bytes(32)
        answer = self._answers.get(key)
        filed = self._packs is not None and self._packs.find(key) is not None
        self._requests["refs", answer is not None or filed or key in self._listings] += 1
        if answer is None and not filed:
            answer = await self._list_once(key, ask, state)
        if answer is not None:
            chunks = _pieces(answer)
        else:
            told = self._together(key, ask, state, self._listing, self._told, LISTING_BYTES)
            chunks = without_null_refs(told)  # git wrote the file by itself
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk
        except AnswerEndedBadly:
            return
        except FailureError as error:
            if error.failure.corrupt and self._packs is not None:
                self._packs.forget(key)
            raise

    async def _list_once(self, key: bytes, ask: Ask, state: State | None) -> bytes | None:
        """As ``_together``, in memory. None where it is too large for that."""
        for _ in range(JOINS_MAX):
            if (begun := self._listings.get(key)) is None:
                break
            client, task = begun
            try:
                return await asyncio.shield(task)  # who leaves does not take it from the others
            except ServerBusy:
                if client == ask.client:
                    raise
        task = asyncio.create_task(self._gather(key, ask, state))
        self._listings[key] = (ask.client, task)
        task.add_done_callback(lambda task: self._listed(key, task))
        return await asyncio.shield(task)

    def _listed(self, key: bytes, task: asyncio.Task[bytes | None]) -> None:
        if (begun := self._listings.get(key)) is not None and begun[1] is task:
            del self._listings[key]
        if not task.cancelled():
            task.exception()  # is retrieved, also where all who waited have left

    async def _gather(self, key: bytes, ask: Ask, state: State | None) -> bytes | None:
        """None where it is too large for memory."""
        bytes_max = ANSWER_BYTES_MAX if self._packs is None else SMALL_ANSWER_BYTES_MAX
        gathered = bytearray()
        try:
            async with aclosing(self._told(ask)) as chunks:
                async for chunk in chunks:
                    gathered += chunk
                    if len(gathered) > bytes_max:
                        return None
        except AnswerEndedBadly:
            return bytes(gathered)
        answer = bytes(gathered)
        if state is not None and self._states.read(ask.repo) == state:  # nothing moved meanwhile
            self._answers.put(key, answer)
        return answer

    async def _told(self, ask: Ask) -> AsyncGenerator[bytes, None]:
        async with self._listing.hold(ask.client) as place:
            if (answer := await self._from_files(ask)) is not None:
                yield answer
                return
            async with aclosing(without_null_refs(self._run(ask, place))) as chunks:
                if ask.options and wants_v2(ask.protocol):  # capabilities, less than 1 kB
                    yield without_object_info(b"".join([chunk async for chunk in chunks]))
                    return
                async for chunk in chunks:
                    yield chunk

    async def _from_files(self, ask: Ask) -> bytes | None:
        if ask.options or not wants_v2(ask.protocol):
            return None
        shown = (KEPT,) if self._settings.shows_kept else ()
        return await asyncio.to_thread(list_refs, ask.repo, ask.body, OWN_NAMESPACE, shown)

    # Packs

    async def _fetch(
        self, ask: Ask, scan: RequestScan, rest: AsyncIterator[bytes] | None
    ) -> AsyncGenerator[bytes, None]:
        async with self._readers.hold(ask.client):
            state = self._states.read(ask.repo)
            tips = await self._tips.read(ask.repo, state)
            sent = False
            try:
                await self._check(ask.repo, tips, scan.wants)
                ask = replace(ask, public=tips.public)
                if not wants_v2(ask.protocol):  # v0 lists nothing here; v2 needs no ref, and might list it
                    ask = replace(ask, late=self._tips.lately(tips, scan.wants))
                async with aclosing(self._pack(ask, scan, rest, state, tips)) as chunks:
                    async for chunk in chunks:
                        sent = True
                        yield chunk
            except _HiddenWanted as wanted:
                if not sent:
                    yield encode(b"ERR upload-pack: not our ref " + wanted.oid)

    def _pack(
        self,
        ask: Ask,
        scan: RequestScan,
        rest: AsyncIterator[bytes] | None,
        state: State | None,
        tips: Tips,
    ) -> AsyncGenerator[bytes, None]:
        cacheable = rest is None and bool(scan.wants) and scan.cacheable and tips.has_all(scan.wants)
        if cacheable and state is not None and self._packs is not None:
            key = ask.key(state, scan.fingerprint())
            self._requests["pack", self._packs.find(key) is not None] += 1
            return self._together(key, ask, state, self._packing, self._alone)
        self._requests["pack", False] += 1
        return self._alone(ask, None if rest is None else self._guarded(ask.repo, tips, rest, scan))

    async def _together(
        self,
        key: bytes,
        ask: Ask,
        state: State | None,
        gate: Gate,
        alone: Callable[[Ask], AsyncGenerator[bytes, None]],
        expected: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """From the file that all who ask for the same read; ``alone`` where there is no room for one.

        Where whoever began the file got no place at the gate, it is begun anew for one of the others: no
        client is refused because of what another one has taken."""
        packs, make = self._packs, lambda pack: self._write(ask, pack, gate)
        for _ in range(JOINS_MAX):
            if (
                packs is None
                or (file := packs.share(key, ask.repo, state, make, expected, ask.client)) is None
            ):
                break
            try:
                async with aclosing(file.follow()) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except ServerBusy:  # before the first byte
                if file.client == ask.client:
                    raise
        async with aclosing(alone(ask)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _alone(self, ask: Ask, rest: AsyncIterator[bytes] | None = None) -> AsyncGenerator[bytes, None]:
        with suppress(AnswerEndedBadly):
            async with aclosing(self._packed(ask, rest)) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def _packed(
        self, ask: Ask, rest: AsyncIterator[bytes] | None = None
    ) -> AsyncGenerator[bytes, None]:
        async with (
            self._packing.hold(ask.client) as place,
            aclosing(self._run(ask, place, rest)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    async def _guarded(
        self, repo: Path, tips: Tips, rest: AsyncIterator[bytes], scan: RequestScan
    ) -> AsyncIterator[bytes]:
        async for piece in rest:
            await self._check(repo, tips, await self._intake.feed(scan, piece))
            yield piece

    async def _check(self, repo: Path, tips: Tips, wants: Collection[bytes]) -> None:
        if self._settings.shows_kept:
            return
        if (oid := await self._tips.hidden(repo, tips, wants)) is not None:
            raise _HiddenWanted(oid)

    async def _write(self, ask: Ask, pack: Pack, gate: Gate) -> bool:
        """git writes by itself: into the file that all who asked for this read from."""
        async with gate.hold(ask.client):
            code, stderr = await run_into(
                pack.file,
                self._argv(ask),
                env=self._environment(ask),
                cwd=self._git.settings.home,
                stdin=ask.body,
                silence_s=self._settings.silence_s,
                memory_bytes=self._git.settings.memory_bytes,
                grown=lambda size: None if is_error(os.pread(pack.file, ERR_BYTES, 0)) else pack.grown(size),
            )
        tell_damage(ask.repo, ask.on_damage, stderr, ask.public, sent=code == 0 or pack.size > 0)
        pack.grown(os.fstat(pack.file).st_size)
        if code != 0 and pack.size == 0:
            raise failed(stderr)
        return code == 0

    # git

    def _argv(self, ask: Ask) -> list[str]:
        options = ["--strict", "--stateless-rpc", *ask.options]
        return [self._git.binary, "upload-pack", *options, "--end-of-options", str(ask.repo)]

    async def _run(
        self, ask: Ask, place: Place, rest: AsyncIterator[bytes] | None = None
    ) -> AsyncGenerator[bytes, None]:
        child = await StreamingChild.open(
            self._argv(ask),
            env=self._environment(ask),
            cwd=self._git.settings.home,
            body=_joined(ask.body, rest),
            silence_s=self._settings.silence_s,
            memory_bytes=self._git.settings.memory_bytes,
        )
        sent, told = False, b""  # an error that git tells waits for its exit: it may be ours to tell
        place.paces, place.cut = (child.taking, child.sending), child.cut
        try:
            async for chunk in child.output():
                if not sent and is_error(told + chunk):
                    told += chunk
                    continue
                sent = True
                yield told + chunk
                told = b""
            code = await child.wait()
            tell_damage(ask.repo, ask.on_damage, bytes(child.stderr), ask.public, sent=code == 0 or sent)
            if told:
                yield told
            elif code != 0 and not sent:
                raise failed(bytes(child.stderr))
            if code != 0:
                raise AnswerEndedBadly
        finally:
            place.cut = None
            await child.close()

    def _environment(self, ask: Ask) -> dict[str, str]:
        filters = self._settings.filters
        config = [
            ("uploadpack.hideRefs", OWN_NAMESPACE.rstrip("/")),
            ("uploadpack.allowFilter", "true" if filters else "false"),
            ("uploadpackfilter.allow", "false"),
            ("transfer.advertiseObjectInfo", "false"),
            ("uploadpack.allowReachableSHA1InWant", "true"),  # for v0; v2 serves what is asked for
            *((f"uploadpackfilter.{name}.allow", "true") for name in filters),
            *(("uploadpack.hideRefs", f"!{folder}") for folder in sorted(ask.late)),
        ]
        if self._settings.shows_kept:
            config.append(("uploadpack.hideRefs", f"!{KEPT.rstrip('/')}"))
        if head_target(ask.repo).startswith(NO_HEAD):
            config.append(("lsrefs.unborn", "ignore"))  # the stand-in for "no HEAD" is nobody's business
        env = self._git.environment(config=config)
        if is_protocol(ask.protocol):
            env["GIT_PROTOCOL"] = ask.protocol
        return env


async def _pieces(answer: bytes) -> AsyncGenerator[bytes, None]:
    for at in range(0, len(answer), PIECE_BYTES):
        yield answer[at : at + PIECE_BYTES]


async def _joined(first: bytes, rest: AsyncIterator[bytes] | None) -> AsyncIterator[bytes]:
    if first:
        yield first
    if rest is not None:
        async for piece in rest:
            yield piece
