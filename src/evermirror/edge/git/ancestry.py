"""Which branches upstream rewrote: asked of git in as few processes as the answer needs.

the usual push        no process: the parents of the new commits, listed anyway, lead to the old tip
the default branch    one ``merge-base``: it also tells a history that is unrelated to the old one
many others           one ``rev-list`` first: what no new tip reaches was rewritten
the rest              one ``merge-base --is-ancestor`` each
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evermirror.core.keep.ancestry import moved_forward
from evermirror.edge.git.command import Git
from evermirror.edge.git.refs import TAGS, RefPlan
from evermirror.model.failure import FailureError
from evermirror.model.refs import Oid, RefChange, RefSnapshot

TOGETHER_FROM = 3  # questions: from here on asking them together first is cheaper
LISTED_MAX = 10_000  # commits: old tips come early, being the newest of what went
ASKED_MAX = 1_000  # questions one by one; what is left then is kept, perhaps for nothing
AT_ONCE = 4
_COMMIT = " commit"
PUBLIC_TIMEOUT_S = 20.0  # whoever asked waits: where git needs longer, it counts that the commit is here
ANSWER_TIMEOUT_S = 120.0  # as refs.COUNT_TIMEOUT_S: the largest known history is walked in less


@dataclass(frozen=True, slots=True)
class Ancestry:
    """Names of rewritten branches; and whether the default branch's history is not the old one any more."""

    rewritten: frozenset[str] = frozenset()
    unrelated: bool = False


def questions(plan: RefPlan) -> tuple[RefChange, ...]:
    """Updates that may be rewrites. Tags that moved always are: nobody asks where to."""
    return tuple(c for c in plan.updates if c.old is not None and not c.name.startswith(TAGS))


async def find_rewritten(
    git: Git,
    repo: Path,
    plan: RefPlan,
    before: RefSnapshot,
    after: RefSnapshot,
    parents: Mapping[Oid, Sequence[Oid]],
) -> Ancestry:
    """Judge every update of ``plan``; the objects are here."""
    asked = [(c.name, c.old, c.new) for c in questions(plan) if c.old is not None and c.new is not None]
    forward = moved_forward([(old, new) for _, old, new in asked], parents)
    unknown = {name: (old, new) for name, old, new in asked if (old, new) not in forward}
    rewritten: set[str] = set()
    unrelated = False
    if before.head is not None and (before.head in unknown or before.head not in after.refs):
        old = before.refs[before.head]
        successor = after.refs.get(before.head) or after.head_oid
        if successor is not None:
            base = await _merge_base(git, repo, old, successor)
            unrelated = base == ""
            if unknown.pop(before.head, None) is not None and base != old:
                rewritten.add(before.head)
    if len(unknown) >= TOGETHER_FROM:
        lost = await _not_reached(git, repo, unknown)
        rewritten |= lost
        unknown = {name: pair for name, pair in unknown.items() if name not in lost}
    rewritten |= await _ask_each(git, repo, unknown)
    return Ancestry(frozenset(rewritten), unrelated)


async def is_unrelated(git: Git, repo: Path, before: RefSnapshot, after: RefSnapshot) -> bool:
    """Has the default branch nothing in common with what it was? False where git cannot tell."""
    if before.head is None or before.refs[before.head] == after.refs.get(before.head):
        return False
    successor = after.refs.get(before.head) or after.head_oid
    return successor is not None and await _merge_base(git, repo, before.refs[before.head], successor) == ""


async def moves_forward(git: Git, repo: Path, pairs: Mapping[str, tuple[Oid, Oid]]) -> set[str]:
    """Names of those whose first object is here, and in the history of the second."""
    asked = "".join(f"{old}\n" for old in {old for old, _ in pairs.values()})
    found = await git.run(
        ["cat-file", "--batch-check=%(objectname) %(objecttype)"], repo=repo, stdin=asked.encode("ascii")
    )
    commits = {
        line[: -len(_COMMIT)] for line in found.stdout.decode("ascii").splitlines() if line.endswith(_COMMIT)
    }
    unknown = {name: pair for name, pair in pairs.items() if pair[0] in commits}
    if len(unknown) >= TOGETHER_FROM:
        lost = await _not_reached(git, repo, unknown)
        unknown = {name: pair for name, pair in unknown.items() if name not in lost}
    return unknown.keys() - await _ask_each(git, repo, unknown)


async def is_public(git: Git, repo: Path, oid: str) -> bool:
    """Do branches and tags lead to this commit? What only kept tips lead to, upstream has no more."""
    public = ["--branches", "--tags", *(f"--glob={prefix}*" for prefix in git.settings.refs_extra)]
    commit = f"{oid}^{{commit}}"
    try:
        left = await git.run(
            ["rev-list", "--max-count=1", commit, "--not", *public],
            repo=repo,
            check=False,
            timeout_s=PUBLIC_TIMEOUT_S,
        )
    except FailureError:
        found = await git.run(["cat-file", "-e", commit], repo=repo, check=False)
        return found.returncode == 0
    return left.returncode == 0 and not left.stdout.strip()


async def _merge_base(git: Git, repo: Path, old: Oid, new: Oid) -> Oid | None:
    """A best common ancestor; "" where there is none; None where git cannot tell (no commits)."""
    try:
        found = await git.run(["merge-base", old, new], repo=repo, check=False, timeout_s=ANSWER_TIMEOUT_S)
    except FailureError:
        return None
    if found.returncode > 1:
        return None
    return Oid(found.stdout.decode("ascii", "replace").strip())


async def _not_reached(git: Git, repo: Path, unknown: Mapping[str, tuple[Oid, Oid]]) -> set[str]:
    """Best effort: those whose old tip no new tip has."""
    old, new = {pair[0] for pair in unknown.values()}, {pair[1] for pair in unknown.values()}
    lines = "".join([*(f"{oid}\n" for oid in old), *(f"^{oid}\n" for oid in new)])
    try:
        listing = await git.run(
            ["rev-list", f"--max-count={LISTED_MAX}", "--ignore-missing", "--stdin"],
            repo=repo,
            stdin=lines.encode("ascii"),
            timeout_s=ANSWER_TIMEOUT_S,
        )
    except FailureError:
        return set()
    lost = set(listing.stdout.decode("ascii", "replace").split())
    return {name for name, pair in unknown.items() if pair[0] in lost}


async def _ask_each(git: Git, repo: Path, unknown: Mapping[str, tuple[Oid, Oid]]) -> set[str]:
    """Those that git does not say yes to: what it cannot judge is kept."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def descends(old: Oid, new: Oid) -> bool:
        async with turn:
            try:
                answer = await git.run(
                    ["merge-base", "--is-ancestor", old, new],
                    repo=repo,
                    check=False,
                    timeout_s=ANSWER_TIMEOUT_S,
                )
            except FailureError:
                return False
            return answer.returncode == 0

    names = list(unknown)[:ASKED_MAX]
    async with asyncio.TaskGroup() as group:
        answers = [group.create_task(descends(*unknown[name])) for name in names]
    return set(unknown) - {name for name, answer in zip(names, answers, strict=True) if answer.result()}
