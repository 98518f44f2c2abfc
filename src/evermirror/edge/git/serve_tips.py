"""Which objects a client may name: protocol v2 serves any object that is asked for, kept history included.

A kept tip (below refs/evermirror/) that is wanted by its id is refused, as v0 does it, unless public refs
reach it too. What lies behind a kept tip is not looked for: git has no cheap way to tell.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from evermirror.edge.git.command import Git
from evermirror.edge.git.refs import OWN_NAMESPACE
from evermirror.edge.git.serve_state import State
from evermirror.model.failure import FailureError

IDS_MAX = 500_000  # remembered over all mirrors, ~100 bytes each
REMEMBER_S = 60.0  # a transaction may write a kept ref a moment after the public one
REACHABLE_S = 20.0  # to find out whether public refs reach a kept tip; longer counts as no
SHA1_CHARS = 40
_OWN = OWN_NAMESPACE.encode("ascii")


@dataclass(frozen=True, slots=True)
class Tips:
    """Object ids in hex: of public refs, and of kept ones that are no public ones."""

    public: frozenset[bytes]
    hidden: frozenset[bytes]
    at: float = 0.0
    reached: dict[bytes, bool] = field(default_factory=dict)  # of hidden ones, as far as asked

    @property
    def count(self) -> int:
        return len(self.public) + len(self.hidden)

    def has_all(self, wants: Collection[bytes]) -> bool:
        return self.public.issuperset(wants)


class TipsReader:
    """Asks git once for each state of a mirror."""

    def __init__(self, git: Git, clock: Callable[[], float] = time.monotonic) -> None:
        self._git = git
        self._clock = clock
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
        named = {*wants, *(w[:SHA1_CHARS] for w in wants)}  # where ids are short git overlooks the rest
        for oid in tips.hidden & named:
            if oid not in tips.reached:
                tips.reached[oid] = await self._reached(repo, oid)
            if not tips.reached[oid]:
                return oid
        return None

    def _remember(self, repo: Path, state: State, tips: Tips) -> None:
        if (old := self._known.pop(repo, None)) is not None:
            self._ids -= old[1].count
        self._known[repo] = (state, tips)
        self._ids += tips.count
        while self._ids > IDS_MAX:
            self._ids -= self._known.popitem(last=False)[1][1].count

    async def _ask(self, repo: Path) -> Tips:
        listing = await self._git.run(["for-each-ref", "--format=%(objectname) %(refname)"], repo=repo)
        public: set[bytes] = set()
        hidden: set[bytes] = set()
        for line in listing.stdout.splitlines():
            oid, _, name = line.partition(b" ")
            (hidden if name.startswith(_OWN) else public).add(oid)
        tags: set[bytes] = set()
        if hidden - public:
            form = "--format=%(objectname) %(*objectname)"
            peeled = await self._git.run(["for-each-ref", form, OWN_NAMESPACE.rstrip("/")], repo=repo)
            for line in peeled.stdout.splitlines():
                tag, _, commit = line.partition(b" ")
                if commit:
                    tags.add(tag)
                    hidden.add(commit)
        hidden -= public
        # No commit leads to a tag object: it is public only where a public ref names it.
        reached = dict.fromkeys(tags & hidden, False)
        return Tips(frozenset(public), frozenset(hidden), self._clock(), reached)

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
