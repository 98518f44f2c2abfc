"""Read-only smart HTTP for one mirror: what ``git upload-pack`` says, streamed, and never a way to write.

The HTTP face decides who may ask for what; here a request is a folder, a protocol word and a stream of bytes.
A mirror that is updated, moved or replaced meanwhile does not break a running answer: upload-pack works
inside the folder that it entered, wherever that is moved to, and packs are not removed under it.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from evermirror.edge.git.classify import classify
from evermirror.edge.git.command import Git
from evermirror.edge.git.refs import NO_HEAD, OWN_NAMESPACE, head_target
from evermirror.edge.git.stream import StreamingChild
from evermirror.errors import EvermirrorError
from evermirror.model.failure import FailureError

SERVICE_LINE = b"001e# service=git-upload-pack\n0000"  # before a v0/v1 advertisement; v2 has none
CHUNK_BYTES = 64 * 1024
_PROTOCOL = re.compile(r"version=[0-2](?::[a-z0-9=-]{1,32}){0,4}")


class ServerBusy(EvermirrorError):
    """Too many packs are being made; ``retry_after_s`` is a guess at when it is worth another try."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__("too many clones at once", hint=f"try again in {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class BadRequest(EvermirrorError):
    """A request body that cannot be read."""


class RequestTooLarge(BadRequest):
    """A request body beyond the limit, as sent or unpacked."""


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Bounds on what all clients together may use."""

    packs_max: int = 16  # upload-packs at a time
    queue_wait_s: float = 10.0  # in line for one of them; then 503
    request_bytes_max: int = 64_000_000  # unpacked: haves and wants of a repository with 600,000 refs
    silence_s: float = 300.0  # a client that neither sends nor takes anything


class GitServer:
    """Answers for bare repositories on disk."""

    def __init__(self, git: Git, settings: ServeSettings | None = None) -> None:
        self._git = git
        self._settings = settings if settings is not None else ServeSettings()
        self._slots = asyncio.Semaphore(self._settings.packs_max)

    async def advertise(self, repo: Path, protocol: str = "") -> AsyncGenerator[bytes, None]:
        """The answer to ``GET …/info/refs?service=git-upload-pack``."""
        if not _wants_v2(protocol):
            yield SERVICE_LINE
        async for chunk in self._answer(repo, protocol, None, "--http-backend-info-refs"):
            yield chunk

    async def upload_pack(
        self, repo: Path, body: AsyncIterator[bytes], protocol: str = "", *, gzipped: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """The answer to ``POST …/git-upload-pack``."""
        bounded = bounded_body(body, self._settings.request_bytes_max, gzipped=gzipped)
        async for chunk in self._answer(repo, protocol, bounded):
            yield chunk

    async def _answer(
        self, repo: Path, protocol: str, body: AsyncIterator[bytes] | None, *options: str
    ) -> AsyncIterator[bytes]:
        argv = [self._git.binary, "upload-pack", "--strict", "--stateless-rpc", *options]
        async with self._slot():
            child = await StreamingChild.open(
                [*argv, "--end-of-options", str(repo)],
                env=self._environment(repo, protocol),
                cwd=self._git.settings.home,
                body=body,
                silence_s=self._settings.silence_s,
            )
            try:
                async for chunk in child.output():
                    yield chunk
                # An exit code after an answer is in the answer already, in git's own way.
                if await child.wait() != 0 and child.sent_bytes == 0:
                    raise FailureError(classify(1, child.stderr.decode("utf-8", "replace")))
            finally:
                await child.close()

    def _environment(self, repo: Path, protocol: str) -> dict[str, str]:
        config = [("uploadpack.hideRefs", OWN_NAMESPACE.rstrip("/")), ("uploadpack.allowFilter", "true")]
        if head_target(repo).startswith(NO_HEAD):
            config.append(("lsrefs.unborn", "ignore"))  # the stand-in for "no HEAD" is nobody's business
        env = self._git.environment(config=config)
        if _PROTOCOL.fullmatch(protocol):
            env["GIT_PROTOCOL"] = protocol
        return env

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._settings.queue_wait_s):
                await self._slots.acquire()
        except TimeoutError:
            raise ServerBusy(self._settings.queue_wait_s) from None
        try:
            yield
        finally:
            self._slots.release()


async def bounded_body(body: AsyncIterator[bytes], bytes_max: int, *, gzipped: bool) -> AsyncIterator[bytes]:
    """The request as git reads it: unpacked piece by piece, so that a small bomb never becomes large."""
    unpacker = zlib.decompressobj(wbits=31) if gzipped else None  # 31: gzip, largest window
    total = 0
    async for sent in body:
        for piece in [sent] if unpacker is None else _unpacked(unpacker, sent):
            total += len(piece)
            if total > bytes_max:
                raise RequestTooLarge(f"the request is larger than {bytes_max} bytes")
            yield piece


def _unpacked(unpacker: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    try:
        while data and not unpacker.eof:
            yield unpacker.decompress(data, CHUNK_BYTES)
            data = unpacker.unconsumed_tail
    except zlib.error as error:
        raise BadRequest("the request is not gzip, as it says") from error


def _wants_v2(protocol: str) -> bool:
    return _PROTOCOL.fullmatch(protocol) is not None and "version=2" in protocol.split(":")
