"""What may be asked of a node that holds a repo, and what can come of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

from evermirror.errors import EvermirrorError
from evermirror.model.access import Role
from evermirror.model.relay import NodeId, Ticket
from evermirror.model.repo import RepoKey

Service = Literal["refs", "pack"]
SERVICES: tuple[Service, ...] = ("refs", "pack")
PROTOCOL_CHARS_MAX = 100  # of git's own word for it; "version=2" has 9


@dataclass(frozen=True, slots=True)
class Ask:
    """A reader's question: ``refs`` is git's ``info/refs``, ``pack`` its ``git-upload-pack``.

    ``reader_pass`` says who asks; a worker's ``ticket`` that it may. An aggregator needs none."""

    key: RepoKey
    holder: NodeId
    service: Service
    protocol: str
    reader_pass: str = field(repr=False)
    ticket: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The same as it arrives at the holder, checked: the reader is an aggregator, or has this ticket."""

    key: RepoKey
    service: Service
    protocol: str
    reader: NodeId
    role: Role
    ticket: Ticket | None = None


class HolderAway(EvermirrorError):
    """It cannot answer now: no line to it, too much at once, or the line broke before its first byte."""

    def __init__(self, why: str, retry_after_s: float = 5.0) -> None:
        super().__init__(why, hint=f"try again in {retry_after_s:g} s, or ask another holder")
        self.retry_after_s = retry_after_s


class HolderFailed(HolderAway):
    """It tried, and git failed there: the mirror is damaged, or the question is not one for this repo."""


class HolderRefused(EvermirrorError):
    """It will not answer this reader."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"refused: {reason}")
        self.reason = reason


class HolderLacks(HolderRefused):
    """It does not hold that repo (any more)."""


class ReaderRefused(HolderRefused):
    """The relay does not let this reader ask: the holder has not heard of it."""


class AnswerBroken(EvermirrorError):
    """The line broke in the midst of an answer: what came so far is not all."""


class AnswerTooLarge(AnswerBroken):
    """More came than the reader takes."""


class Reach(Protocol):
    """How a node reads from holders."""

    def ask(self, ask: Ask, body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """The answer. Raises HolderAway and HolderRefused before the first byte, AnswerBroken after it;
        closing the generator ends the request."""
        ...

    def reachable(self, holder: NodeId) -> bool:
        """Whether it is worth asking now."""
        ...


async def no_body() -> AsyncIterator[bytes]:
    """What is sent with a question for refs."""
    return
    yield b""


async def once(body: bytes) -> AsyncIterator[bytes]:
    """What is sent with a question that is here whole."""
    yield body
