"""Signs of damage in what git says while it serves a mirror; the mirror's fsck has the last word."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from pathlib import Path

from evermirror.edge.git.classify import CAUSE, LACKING, classify
from evermirror.model.failure import Failure, FailureError, FailureKind

OnDamage = Callable[[Failure], None]  # is told what looks like damage of the mirror

ERR_BYTES = 8  # how far an answer is read to know an error by: its length and its word
_ERR = re.compile(rb"[0-9a-f]{4}ERR ")
_PARTS = ("HEAD", "objects", "refs")
_NOT_OURS = re.compile(r"not our ref ([0-9a-f]{40,64})")
_CONCLUSION = re.compile(r"possible repository corruption|pack-objects died")  # from any end of pack-objects
_CORRUPT = re.compile(
    r"^fatal: (?:git upload-pack: aborting due to (possible repository corruption) on the remote side\."
    r"|'.*' (does not appear to be a git repository))$",
    re.MULTILINE,
)
# git repeats what a client sent and it does not understand: those words are the client's, and no sign.
_REPEATED = re.compile(
    r"(?:fatal|error): (?:git upload-pack: )?(?:unexpected line: |unknown capability |protocol error"
    r"|expected SHA1 |invalid shallow |invalid deepen|unknown ref |(?:unknown|mismatched) object format"
    r"|(?:ambiguous )?deepen-not |invalid filter-spec |filter )",
    re.IGNORECASE,
)
# A ref whose file holds no object id: git lists it with an id of zeros. An empty repository's
# "capabilities^{}" has the same, and is no ref.
_NULL_REF = re.compile(rb"[0-9a-f]{4}(?:0{64}|0{40}) (?:refs/|HEAD)")
_ZEROS = b"0" * 40  # found much faster than the pattern
_NULL_REF_BYTES_MAX = 4 + 64 + 6


def damage_met(repo: Path, stderr: str = "", public: Collection[bytes] = ()) -> Failure | None:
    """The damage that a failed upload-pack met, by its words and the mirror's folder. None where there is no
    sign of any, or the folder has gone: it was moved."""
    if not repo.is_dir():
        return None
    missing = [part for part in _PARTS if not (repo / part).exists()]
    if missing:
        return _damage(f"{', '.join(missing)} missing")
    stderr = _own_words(stderr)
    denied = _NOT_OURS.search(stderr)
    if denied is not None and denied[1].encode("ascii") in public:  # its refs name it, its packs lack it
        return _damage(f"object {denied[1]} of a public ref cannot be read")
    cause = "\n".join(line for line in stderr.split("\n") if _CONCLUSION.search(line) is None)
    failure = classify(1, cause)
    if failure.corrupt:
        return failure
    if failure.context.get(CAUSE) in LACKING or failure.kind is FailureKind.DISK_FULL:
        return None
    if (words := _CORRUPT.search(stderr)) is not None:
        return _damage(words[1] or words[2])
    return None


def failed(stderr: bytes) -> FailureError:
    """Of an upload-pack that ended before it told anything."""
    return FailureError(classify(1, _own_words(stderr.decode("utf-8", "replace"))))


def _own_words(stderr: str) -> str:
    """Without lines that repeat a client's; no request passes in which such a line could begin another."""
    return "\n".join(line for line in stderr.split("\n") if _REPEATED.match(line) is None)


def tell_damage(
    repo: Path, on_damage: OnDamage | None, stderr: bytes, public: Collection[bytes], *, sent: bool
) -> None:
    """Raise the damage that an upload-pack met, where the client has got nothing yet; else tell it to whoever
    mends it. git serves what it finds in another pack, and complains all the same."""
    if sent and not stderr:
        return
    damage = damage_met(repo, stderr.decode("utf-8", "replace"), public)
    if damage is None:
        return
    if not sent:
        raise FailureError(damage)  # ``noticed`` tells it
    if on_damage is not None:
        on_damage(damage)


async def noticed(
    repo: Path, on_damage: OnDamage | None, answer: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """The answer; a failure of it that looks like damage is told to whoever mends it."""
    sent = False
    async with aclosing(answer):
        try:
            async for chunk in answer:
                sent = True
                yield chunk
        except (FailureError, FileNotFoundError) as error:
            failure = error.failure if isinstance(error, FailureError) else damage_met(repo)
            if failure is None or not failure.corrupt:
                raise
            if on_damage is not None:
                on_damage(failure)
            if not sent:
                raise FailureError(failure) from None
            # Else the answer lacks its end, by which the client knows that it is not whole.


def is_error(beginning: bytes) -> bool:
    """Whether an answer is git's ERR packet and nothing else."""
    return _ERR.match(beginning) is not None


async def without_null_refs(answer: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """A list of refs, checked as it passes: one that names no object is damage, and is not passed on."""
    tail = b""
    async with aclosing(answer):
        async for chunk in answer:
            held = tail + chunk
            if _ZEROS in held and _NULL_REF.search(held) is not None:
                raise FailureError(_damage("a ref without an object id"))
            tail = held[-_NULL_REF_BYTES_MAX:]
            if len(held) > len(tail):
                yield held[: -len(tail)]
    if tail:
        yield tail


def _damage(what: str) -> Failure:
    return Failure(FailureKind.UNKNOWN, f"the mirror here seems damaged: {what}", corrupt=True)
