"""Which objects a client may name: protocol v2 serves any object that is asked for, kept history included.

A kept tip (below refs/evermirror/) that is wanted by its id is refused, as v0 does it, unless public refs
reach it too, or it was public a moment ago: who was shown it then may still fetch it. What lies behind a kept
tip is not looked for: git has no cheap way to tell.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from evermirror.core.keep.names import KEPT, stamp_of, time_of
from evermirror.edge.git.command import Git
from evermirror.edge.git.ref_files import SERVED_BYTES_MAX, read_ref_files
from evermirror.edge.git.refs import OWN_NAMESPACE, encode_name, parse_listing
from evermirror.edge.git.serve_state import State
from evermirror.model.failure import FailureError

IDS_MAX = 500_000  # remembered over all mirrors, ~100 bytes each
REMEMBER_S = 60.0  # a transaction may write a kept ref a moment after the public one
REACHABLE_S = 20.0  # to find out whether public refs reach a kept tip; longer counts as no
LATELY_S = 300.0  # a client wants what it was shown seconds ago; over a slow line, or in a queue, minutes
SHA1_CHARS = 40
_OWN = OWN_NAMESPACE.encode("ascii")
_KEPT = KEPT.encode("ascii")


@dataclass(frozen=True, slots=True)
class Tips:
    """Object ids in hex: of public refs, and of kept ones that are no public ones."""

    public: frozenset[bytes]
    hidden: frozenset[bytes]
    at: float = 0.0
    reached: dict[bytes, bool] = field(default_factory=dict)  # of hidden ones, as far as asked
    lately: dict[bytes, str] = field(default_factory=dict)  # of hidden ones kept lately: the newest stamp

    @property
    def count(self) -> int:
        return len(self.public) + len(self.hidden)

    def has_all(self, wants: Collection[bytes]) -> bool:
        return self.public.issuperset(wants)


class TipsReader:
    """Asks git once for each state of a mirror."""

    def __init__(
        self, git: Git, clock: Callable[[], float] = time.monotonic, utc: Callable[[], float] = time.time
    ) -> None:
        self._git = git
        self._clock = clock
        self._utc = utc
        self._known: OrderedDict[Path, tuple[State, Tips]] = OrderedDict()
        self._ids = 0

    async def read(self, repo: Path, state: State | None) -> Tips:
        known = self._known.get(repo)
        if known is not None and known[0] == state and self._clock() - known[1].at < REMEMBER_S:
            self._known.move_to_end(repo)
            return known[1]
        tips = await self._ask(repo)
        if state is not None:
            self._remember(repo, state, tips)
        return tips

    async def hidden(self, repo: Path, tips: Tips, wants: Collection[bytes]) -> bytes | None:
        """One of ``wants`` that is none of the client's business."""
        for oid in _named_hidden(tips, wants):
            if self._is_late(tips, oid):
                continue
            if oid not in tips.reached:
                tips.reached[oid] = await self._reached(repo, oid)
            if not tips.reached[oid]:
                return oid
        return None

    def lately(self, tips: Tips, wants: Collection[bytes]) -> frozenset[str]:
        """The kept folders in which those of ``wants`` are that were public a moment ago."""
        late = (oid for oid in _named_hidden(tips, wants) if self._is_late(tips, oid))
        return frozenset(KEPT + tips.lately[oid] for oid in late)

    def _is_late(self, tips: Tips, oid: bytes) -> bool:
        """Asked each time: what is remembered of a mirror grows old. A date in the future is no excuse."""
        at = time_of(tips.lately.get(oid, ""))
        return at is not None and abs(self._utc() - at) < LATELY_S

    def _remember(self, repo: Path, state: State, tips: Tips) -> None:
        if (old := self._known.pop(repo, None)) is not None:
            self._ids -= old[1].count
        self._known[repo] = (state, tips)
        self._ids += tips.count
        while self._ids > IDS_MAX:
            self._ids -= self._known.popitem(last=False)[1][1].count

    async def _ask(self, repo: Path) -> Tips:
        public: set[bytes] = set()
        hidden: set[bytes] = set()
        lately: dict[bytes, str] = {}
        oldest = stamp_of(self._utc() - LATELY_S)
        for name, oid in await self._refs(repo):
            (hidden if name.startswith(_OWN) else public).add(oid)
            if (stamp := _stamp(name)) >= oldest:
                lately[oid] = max(stamp, lately.get(oid, ""))
        tags: set[bytes] = set()
        if hidden - public:
            form = "--format=%(objectname) %(*objectname)"
            peeled = await self._git.run(["for-each-ref", form, OWN_NAMESPACE.rstrip("/")], repo=repo)
            for line in peeled.stdout.splitlines():
                tag, _, commit = line.partition(b" ")
                if commit:
                    tags.add(tag)
                    hidden.add(commit)
                    if tag in lately:
                        lately[commit] = max(lately[tag], lately.get(commit, ""))
        hidden -= public
        # No commit leads to a tag object: it is public only where a public ref names it.
        reached = dict.fromkeys(tags & hidden, False)
        return Tips(frozenset(public), frozenset(hidden), self._clock(), reached, lately)

    async def _refs(self, repo: Path) -> list[tuple[bytes, bytes]]:
        """From its files, where they are plain and not large."""
        refs = await asyncio.to_thread(read_ref_files, repo, SERVED_BYTES_MAX)
        if refs is None:
            listing = await self._git.run(["for-each-ref", "--format=%(objectname) %(refname)"], repo=repo)
            refs = parse_listing(listing.stdout)
        return [(encode_name(name), oid.encode("ascii")) for name, oid in refs.items()]

    async def _reached(self, repo: Path, oid: bytes) -> bool:
        """Nothing is left of it once everything public is taken away."""
        try:
            left = await self._git.run(
                ["rev-list", "--max-count=1", "--stdin", "--not", f"--exclude={OWN_NAMESPACE}*", "--all"],
                repo=repo,
                stdin=oid + b"\n",
                timeout_s=REACHABLE_S,
            )
        except FailureError:
            return False
        return not left.stdout.strip()


def _named_hidden(tips: Tips, wants: Collection[bytes]) -> frozenset[bytes]:
    named = {*wants, *(w[:SHA1_CHARS] for w in wants)}  # where ids are short git overlooks the rest
    return tips.hidden & named


def _stamp(name: bytes) -> str:
    """The date in a kept tip's name; empty for all else."""
    dated = name[len(_KEPT) :] if name.startswith(_KEPT) else b""
    return dated.partition(b"/")[0].decode("ascii", "replace")
