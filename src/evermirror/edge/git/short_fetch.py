"""The short way to a small change: one question, one pack in memory, two processes of git instead of six.

    wants, haves ─▶ Remote.ask ─▶ ready, pack ─▶ index-pack --strict ─▶ rev-list --objects
                       │    ▲                          │                    │
                       │    └ some are common: done    │                    │
                       └──── anything else ────────────┴────────────────────┴─▶ None: ``git fetch`` does it

Nothing is taken on trust that ``git fetch`` would not take: each object is checked, and that all which the
tips need is here. The same rev-list tells which commits are new, so nobody needs to ask for these again.

Where it came to nothing twice in a row the repo goes the long way for an hour: what is asked for in vain is
sent all the same.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from evermirror import __version__
from evermirror.edge.git import folder
from evermirror.edge.git.environment import PACK_BYTES_MAX
from evermirror.edge.git.fsck import Complaints, strict_option
from evermirror.edge.git.pktline import PktError, Sign, encode, packets, text
from evermirror.edge.git.probe import PARSE_APART_BYTES
from evermirror.edge.git.refs import LocalRefs, NewCommits, RefPlan, parse_commits
from evermirror.edge.git.transfer import Transfer
from evermirror.edge.relay.ask import HolderAway, HolderFailed, HolderRefused
from evermirror.errors import EvermirrorError
from evermirror.model.failure import FailureError
from evermirror.model.refs import Oid
from evermirror.model.task import SyncPhase

WANTS_MAX = 100
HAVES_MAX = 64  # those of the refs that change come first: mostly the first is enough
ASK_S_MAX = 60.0  # for a small answer; who sends a little now and then is git's to watch
FRAMES_MAX = 10_000  # of an answer; git fills its frames
LISTING_BYTES_MAX = 4_000_000  # of rev-list: 90,000 objects
CONNECTED_TIMEOUT_S = 120.0  # as refs.COUNT_TIMEOUT_S
FAILURES_MAX = 2  # in a row: one large push does not say that the next is large
AVOIDED_S = 3600.0
FAILED_REPOS_MAX = 10_000  # remembered, ~300 bytes each
_AGENT = f"agent=evermirror/{__version__}\n".encode("ascii")
_SHA256_CHARS = 64
_PACK_HEADER_BYTES = 12  # "PACK", version, number of objects
_DATA, _PROGRESS = b"\1", b"\2"  # bands
_EACH_COMMIT = ("--no-commit-header", "--format=commit %ct %H %P")


class ShortWay:
    """Tries it, and remembers where that was in vain."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: OrderedDict[Path, tuple[int, float]] = OrderedDict()  # how often in a row, and when

    async def fetch(self, transfer: Transfer, plan: RefPlan, local: LocalRefs) -> NewCommits | None:
        """Bring what ``plan`` wants. By the short way: then this tells what is new, and nothing is staged, as
        the caller, who holds the mirror's lock, publishes at once. Else None, and it is in staging. Raises
        HolderAway and HolderRefused where it is not worth asking again by git."""
        if not plan.wants:
            return None
        told: NewCommits | None = None
        haves = _haves(plan, local)
        if haves and not _is_unusual(transfer, plan, local) and not self._avoids(transfer.repo):
            with transfer.phase("fetch"):
                told = await _fetch_short(transfer, plan.wants, haves, set(local.public.refs.values()))
            self._learn(transfer.repo, failed=told is None)
        if told is None:
            await transfer.fetch(plan.wants)
        return told

    def _avoids(self, repo: Path) -> bool:
        times, at = self._failed.get(repo, (0, 0.0))
        return times >= FAILURES_MAX and self._clock() - at < AVOIDED_S

    def _learn(self, repo: Path, *, failed: bool) -> None:
        times, _ = self._failed.pop(repo, (0, 0.0))
        if failed:
            self._failed[repo] = (times + 1, self._clock())
            if len(self._failed) > FAILED_REPOS_MAX:
                self._failed.popitem(last=False)


def _is_unusual(transfer: Transfer, plan: RefPlan, local: LocalRefs) -> bool:
    """What was staged before, what is fetched although it is here, what is shallow: git knows how."""
    changed = {change.new for change in plan.updates}
    if transfer.remote.ask is None or len(plan.wants) > WANTS_MAX:
        return True
    return bool(local.staged) or not plan.wants <= changed or (transfer.repo / "shallow").exists()


async def _fetch_short(
    transfer: Transfer, wants: Collection[Oid], haves: Collection[Oid], known: Collection[Oid]
) -> NewCommits | None:
    try:
        async with asyncio.timeout(min(ASK_S_MAX, transfer.git.settings.no_progress_s)):
            pack = await _ask_for_pack(transfer, wants, haves)
    except HolderFailed:  # it may have stumbled over the question
        return None
    except (HolderAway, HolderRefused):
        raise
    except (EvermirrorError, PktError, OSError):  # git asks again, and finds words for it
        return None
    if pack is None:
        return None
    told = None
    if not _is_too_large(transfer, pack):
        transfer.tell(SyncPhase.CHECKING, more_bytes=len(pack))
        told = await _take_in(transfer, pack, wants, known)
    if told is None:
        transfer.discarded_bytes += len(pack)
    else:
        transfer.received_bytes += len(pack)
    return told


def _haves(plan: RefPlan, local: LocalRefs) -> list[Oid]:
    head = local.public.head_oid
    first = [change.old for change in plan.updates if change.old is not None]
    first += [head] if head is not None else []
    return list(dict.fromkeys([*first, *local.public.refs.values()]))[:HAVES_MAX]


async def _ask_for_pack(transfer: Transfer, wants: Collection[Oid], haves: Collection[Oid]) -> bytes | None:
    """Without ``done`` there is a pack only where what we have is enough to go by. Commits whose clock was
    wrong hide that from git: then what it has in common with us is told again, and is enough."""
    said = await _said(transfer, _request(wants, haves))
    if said.pack is None and said.common and not said.unusual:
        common = [oid for oid in haves if oid in said.common]
        said = await _said(transfer, _request(wants, common, done=True))
    return said.pack


def _request(wants: Iterable[Oid], haves: Iterable[Oid], *, done: bool = False) -> bytes:
    """v2's fetch."""
    wanted = sorted(wants)
    lines = [encode(b"command=fetch\n"), encode(_AGENT)]
    if len(wanted[0]) == _SHA256_CHARS:
        lines.append(encode(b"object-format=sha256\n"))
    lines += [Sign.DELIM.value, encode(b"thin-pack\n"), encode(b"no-progress\n"), encode(b"ofs-delta\n")]
    lines += [encode(f"want {oid}\n".encode("ascii")) for oid in wanted]
    lines += [encode(f"have {oid}\n".encode("ascii")) for oid in haves]
    lines += [encode(b"done\n")] if done else []
    return b"".join([*lines, Sign.FLUSH.value])


async def _said(transfer: Transfer, request: bytes) -> _Said:
    answer = await _answer(transfer, request)
    return await asyncio.to_thread(_read, answer) if len(answer) > PARSE_APART_BYTES else _read(answer)


async def _answer(transfer: Transfer, request: bytes) -> bytes:
    """Nothing where it is not whole, or too large."""
    if transfer.remote.ask is None:
        return b""
    gathered, whole = bytearray(), False
    try:
        async with aclosing(transfer.remote.ask(request)) as pieces:
            async for piece in pieces:
                gathered += piece
                if len(gathered) > PACK_BYTES_MAX:
                    return b""
                transfer.tell(SyncPhase.RECEIVING, more_bytes=len(gathered))
        whole = True
    finally:
        if not whole:
            transfer.discarded_bytes += len(gathered)
    return bytes(gathered)


@dataclass(frozen=True, slots=True)
class _Said:
    """An answer: what it has in common with us, the pack where there is one, whole."""

    common: frozenset[str] = frozenset()
    pack: bytes | None = None
    unusual: bool = False


_UNUSUAL = _Said(unusual=True)


def _read(answer: bytes) -> _Said:
    """Acknowledgments, ``packfile``, or both. Another section (shallow-info: who answers lacks a part of
    history), an error, an end that is missing, more than was asked about: unusual."""
    frames = _bounded(packets(answer))
    section = _text_of(next(frames, None))
    common: set[str] = set()
    if section == b"acknowledgments":
        ready, sign = False, Sign.RESPONSE_END
        for frame in frames:
            if isinstance(frame, Sign):
                sign = frame
                break
            line = text(frame)
            ready = ready or line == b"ready"
            if line.startswith(b"ACK "):
                common.add(line.removeprefix(b"ACK ").decode("ascii", "replace"))
            if len(common) > HAVES_MAX:
                return _UNUSUAL
        if not ready:
            return _Said(frozenset(common)) if sign is Sign.FLUSH else _UNUSUAL
        section = _text_of(next(frames, None))
    pack = _pack_of(frames) if section == b"packfile" else None
    return _UNUSUAL if pack is None else _Said(frozenset(common), pack)


def _bounded(frames: Iterable[bytes | Sign]) -> Iterator[bytes | Sign]:
    for count, frame in enumerate(frames):
        if count == FRAMES_MAX:
            raise PktError(f"more than {FRAMES_MAX} pkt-lines")
        yield frame


def _pack_of(frames: Iterator[bytes | Sign]) -> bytes | None:
    pack, ended = bytearray(), False
    for frame in frames:
        if ended or frame in (Sign.DELIM, Sign.RESPONSE_END):
            return None
        if isinstance(frame, Sign):
            ended = True
        elif frame[:1] == _DATA:
            pack += frame[1:]
        elif frame[:1] != _PROGRESS:
            return None
    return bytes(pack) if ended and pack[:4] == b"PACK" else None


def _text_of(frame: bytes | Sign | None) -> bytes:
    return text(frame) if isinstance(frame, bytes) else b""


def _is_too_large(transfer: Transfer, pack: bytes) -> bool:
    most = transfer.bytes_max
    return most is not None and transfer.bytes_before + transfer.received_bytes + len(pack) > most


async def _take_in(
    transfer: Transfer, pack: bytes, wants: Collection[Oid], known: Collection[Oid]
) -> NewCommits | None:
    """Checked, durable and connected; else nothing of it stays."""
    git, repo = transfer.git, transfer.repo
    strict = await strict_option(git, transfer.allowed)
    before = _packs(repo)
    complaints = Complaints(repo)
    done = False
    try:
        if int.from_bytes(pack[8:_PACK_HEADER_BYTES], "big"):
            await git.run(
                ["index-pack", "--stdin", "--fix-thin", "--threads=1", strict],
                repo=repo,
                stdin=pack,
                on_stderr=complaints.feed,
                keep_fds=(transfer.lock_fd,),
                env=git.settings.taking_in,
            )
            if await complaints.judge(git) is not None:
                return None
        lines = [*wants, *(f"^{oid}" for oid in known)]
        listing = await git.run(
            ["rev-list", "--objects", "--no-object-names", *_EACH_COMMIT, "--stdin"],
            repo=repo,
            stdin="".join(f"{line}\n" for line in lines).encode("ascii"),
            stdout_limit=LISTING_BYTES_MAX,
            timeout_s=CONNECTED_TIMEOUT_S,
        )
        done = True
    except FailureError:
        return None
    finally:
        if not done:
            folder.remove_files(str(repo / "objects" / "pack" / name) for name in _packs(repo) - before)
            complaints.over()
    prefix = b"commit "
    return parse_commits(
        line.removeprefix(prefix) for line in listing.stdout.split(b"\n") if line.startswith(prefix)
    )


def _packs(repo: Path) -> set[str]:
    try:
        return set(os.listdir(repo / "objects" / "pack"))
    except FileNotFoundError:
        return set()
