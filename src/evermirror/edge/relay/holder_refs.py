"""A holder's refs as it serves them: one question, nothing fetched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace

from evermirror import __version__
from evermirror.core.keep.names import KEPT
from evermirror.edge.git import lsrefs
from evermirror.edge.relay.ask import AnswerTooLarge, Ask, HolderFailed, HolderRefused, Reach, no_body, once
from evermirror.model.refs import PUBLIC_PREFIXES, RefSnapshot
from evermirror.model.relay import Source

PARSE_APART_BYTES = 500_000  # a longer list is read in a thread
AGENT = f"evermirror/{__version__}"
REFS_BYTES_MAX = 400_000_000  # 2,000,000 refs, with names of 150 letters
UNTRUSTED_REFS_BYTES_MAX = 64_000_000  # as much as an upstream may say


class HolderRefsInvalid(HolderRefused):
    """What it says are no refs that git can have."""


async def holder_refs(
    reach: Reach,
    source: Source,
    pass_: str,
    *,
    kept: bool = False,
    extra: tuple[str, ...] = (),
    bytes_max: int = REFS_BYTES_MAX,
) -> RefSnapshot:
    """Its branches, tags and HEAD, and what is below the prefixes ``extra``; with ``kept`` also the old tips
    that it keeps, which it shows only to those who may see them. Raises what ``Reach.ask`` does, and
    HolderRefsInvalid."""
    prefixes = tuple(dict.fromkeys((*PUBLIC_PREFIXES, *extra, *((KEPT,) if kept else ()))))
    ask = Ask(source.key, source.holder, "pack", "version=2", pass_, source.ticket)
    object_format = "sha1"
    try:
        answer = await _listing(reach, ask, prefixes, object_format, bytes_max)
    except HolderFailed:  # git does not answer a question in another object format than the repo's
        object_format = await _object_format(reach, replace(ask, service="refs"), bytes_max)
        if object_format == "sha1":
            raise
        answer = await _listing(reach, ask, prefixes, object_format, bytes_max)
    try:
        if len(answer) > PARSE_APART_BYTES:
            return await asyncio.to_thread(lsrefs.parse_answer, answer, prefixes, object_format)
        return lsrefs.parse_answer(answer, prefixes, object_format)
    except (lsrefs.NotUnderstood, lsrefs.Lying, lsrefs.Refused) as error:
        raise HolderRefsInvalid(f"not a list of refs: {error}") from None


async def _object_format(reach: Reach, ask: Ask, bytes_max: int) -> str:
    answer = await _whole(reach, ask, no_body(), bytes_max)
    try:
        said = lsrefs.parse_advertisement(answer)
    except (lsrefs.NotUnderstood, lsrefs.Lying, lsrefs.Refused) as error:
        raise HolderRefsInvalid(f"not git's capabilities: {error}") from None
    return said.object_format if isinstance(said, lsrefs.Capabilities) else "sha1"


async def _listing(
    reach: Reach, ask: Ask, prefixes: tuple[str, ...], object_format: str, bytes_max: int
) -> bytes:
    return await _whole(reach, ask, once(lsrefs.request_body(prefixes, AGENT, object_format)), bytes_max)


async def _whole(reach: Reach, ask: Ask, body: AsyncIterator[bytes], bytes_max: int) -> bytes:
    gathered = bytearray()
    async with aclosing(reach.ask(ask, body)) as pieces:
        async for piece in pieces:
            gathered += piece
            if len(gathered) > bytes_max:
                raise AnswerTooLarge(f"its refs are more than {bytes_max} bytes")
    return bytes(gathered)
