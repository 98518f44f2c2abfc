"""What is asked of our own mirror before a push is decided: whether it has what is at the target now.

target's refs ─▶ ours by our file, by the coordinator's digest, or by our history ─▶ plan
    ─▶ what the target would lose by it, and the mirror has not ─▶ plan without these
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from evermirror.core.keep.guard import GuardSettings
from evermirror.core.push.plan import LastPut, PushPlan, known_put, plan_push, to_be_judged
from evermirror.edge.git import keep
from evermirror.edge.git.ancestry import moves_forward
from evermirror.edge.git.command import Git
from evermirror.model.push import PushTo
from evermirror.model.refs import Oid, RefSnapshot

BRANCHES = "refs/heads/"
_MISSING = " missing"
_ANSWER_BYTES = 100  # for one object, at most


@dataclass(frozen=True, slots=True)
class Planning:
    """One push to be decided. ``recorded`` is our own file's word."""

    git: Git
    repo: Path
    wanted: RefSnapshot
    recorded: LastPut | None
    to: PushTo
    guard: GuardSettings
    accept: bool
    force: bool

    async def plan(self, target: Mapping[str, Oid]) -> PushPlan:
        """``target`` is what is there now."""
        last, first = await asyncio.to_thread(known_put, self.recorded, self.to.put, self.wanted.refs, target)
        if self.force or self.accept or self.to.adopt:  # a person's word: what was refused is tried again
            last = replace(last, refused={})
        history: frozenset[str] = frozenset()
        if first:
            pairs = await asyncio.to_thread(to_be_judged, self.wanted.refs, target, last)
            history = await self._in_history(pairs) if pairs else history
        plan = await self._decide(target, last, history, frozenset())
        stake = await asyncio.to_thread(lambda: plan.at_stake)
        if not stake or self.to.adopt or self.accept:
            return plan
        only_there = await self._lacking(stake)
        return await self._decide(target, last, history, only_there) if only_there else plan

    async def _decide(
        self, target: Mapping[str, Oid], last: LastPut, history: frozenset[str], only_there: frozenset[str]
    ) -> PushPlan:
        return await asyncio.to_thread(
            plan_push,
            self.wanted,
            target,
            last,
            self.guard,
            in_history=history,
            only_there=only_there,
            adopt=self.to.adopt,
            accept=self.accept,
        )

    async def _in_history(self, pairs: Mapping[str, tuple[Oid, Oid]]) -> frozenset[str]:
        """Whose value at the target is an older one of the same branch, or one that upstream threw away."""
        kept = {(tip.ref, tip.old) for tip in await keep.list_kept(self.git, self.repo)}
        ours = {name for name, (old, _) in pairs.items() if (name, old) in kept}
        branches = {n: pair for n, pair in pairs.items() if n.startswith(BRANCHES) and n not in ours}
        return frozenset(ours | await moves_forward(self.git, self.repo, branches))

    async def _lacking(self, stake: Mapping[str, Oid]) -> frozenset[str]:
        """Names whose object is not in the mirror. That our file names it proves nothing: it may know it by
        the coordinator's digest alone, and by then it would be the last one to know."""
        found = await self.git.run(
            ["cat-file", "--batch-check=%(objectname)"],
            repo=self.repo,
            stdin=await asyncio.to_thread(_question, stake),
            stdout_limit=_ANSWER_BYTES * len(stake),
        )
        return await asyncio.to_thread(_answer, stake, found.stdout)


def _question(stake: Mapping[str, Oid]) -> bytes:
    return "".join(f"{oid}\n" for oid in set(stake.values())).encode("ascii")


def _answer(stake: Mapping[str, Oid], output: bytes) -> frozenset[str]:
    lines = output.decode("ascii", "replace").splitlines()
    missing = {line.removesuffix(_MISSING) for line in lines if line.endswith(_MISSING)}
    return frozenset(name for name, oid in stake.items() if oid in missing)
