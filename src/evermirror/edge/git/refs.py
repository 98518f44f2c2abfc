"""A bare repository's refs: read them, decide what turns them into upstream's, change them in transactions.

Two transactions, because git refuses one in which branch ``a`` goes and ``a/b`` comes:

    1. what is kept of deleted refs; deletions      (old values given: what we read is what we delete)
    2. what is kept of rewritten refs; creations, updates, and the end of staging
                                                    (a crash before this one is finished by the next sync)

Within a transaction git writes in the order told, and deletes last: whenever it is killed, an old tip is
where it was, or kept, or both.

Fetched tips wait below ``refs/evermirror/staging/`` under their own object id. So no name that upstream chose
is written before it has been checked, none conflicts with another, and what a crash left there is of use.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from evermirror.core.keep.names import ARCHIVE, KEPT, STAMP_CHARS, archive_name, free_time, kept_tip
from evermirror.edge.git.command import Git
from evermirror.edge.git.environment import DURABLE_OBJECTS_ONLY
from evermirror.edge.git.folder import to_its_end
from evermirror.edge.git.lsrefs import valid_name
from evermirror.edge.git.ref_files import move_refs, read_ref_files
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.kept import KeptTip, Why
from evermirror.model.refs import PUBLIC_PREFIXES, Oid, RefChange, RefSnapshot, changes_between

OWN_NAMESPACE = "refs/evermirror/"  # hidden from everybody who clones
STAGING = OWN_NAMESPACE + "staging/"
RESTORED = "refs/restored/"  # public, and not upstream's: following upstream never touches it
TAGS = "refs/tags/"
OUR_DATED = (KEPT, ARCHIVE)
# HEAD must name a branch, but the branch need not exist. Where upstream's HEAD names none (empty, detached),
# ours names one that is not there: this one, or a longer name should upstream have a branch called so.
NO_HEAD = "refs/heads/no-head"

BULK_CHANGES = 200  # from here on one packed file with one fsync is cheaper than one for each ref
MOVES_MAX = 20  # written without git: a file and an fsync each, as git does it
COUNT_TIMEOUT_S = 120.0  # the largest known history is walked in less


@dataclass(frozen=True, slots=True)
class LocalRefs:
    """What is here: public refs, tips in staging, where HEAD points (also to a branch that is not there)."""

    public: RefSnapshot
    staged: frozenset[Oid] = frozenset()
    head_target: str = ""
    stamps: frozenset[str] = frozenset()  # of kept tips: each is used once


@dataclass(frozen=True, slots=True)
class RefPlan:
    """What turns the refs here into upstream's."""

    deletions: tuple[RefChange, ...] = ()
    updates: tuple[RefChange, ...] = ()  # creations too
    wants: frozenset[Oid] = frozenset()  # tips to be fetched first
    new_head: str | None = None  # what HEAD must name; None: it is right already
    staged: frozenset[Oid] = field(default=frozenset())  # in staging once ``wants`` are fetched
    kept: tuple[KeptTip, ...] = ()
    archive: bool = False  # what is kept stays public too

    @property
    def changes(self) -> tuple[RefChange, ...]:
        return tuple(sorted(self.deletions + self.updates, key=lambda c: c.name))


def plan_refs(
    local: LocalRefs, seen: RefSnapshot, *, force: bool = False, append_only: bool = False
) -> RefPlan:
    """Compare; decide. ``force`` has every tip fetched again: git then checks that all of it is here.
    Where ``append_only``, a ref that upstream deleted stays, unless it is in the way of a new one."""
    check_names(seen)
    changes = changes_between(local.public, seen)
    deletions = tuple(c for c in changes if c.new is None)
    updates = tuple(c for c in changes if c.new is not None)
    tips = {c.new for c in updates if c.new is not None}
    wants = frozenset(seen.refs.values()) if force else tips - set(local.public.refs.values()) - local.staged
    return RefPlan(
        deletions=in_the_way(deletions, seen) if append_only else deletions,
        updates=updates,
        wants=frozenset(wants),
        new_head=_new_head(local.head_target, seen),
        staged=local.staged | wants,
        archive=append_only,
    )


def in_the_way(deletions: Iterable[RefChange], seen: RefSnapshot) -> tuple[RefChange, ...]:
    """``a`` and ``a/b`` cannot both be there: those of which upstream has one, and we the other."""
    folders = {folder for name in seen.refs for folder in _folders(name)}
    return tuple(c for c in deletions if c.name in folders or any(f in seen.refs for f in _folders(c.name)))


def _folders(name: str) -> list[str]:
    return [name[:i] for i, letter in enumerate(name) if letter == "/"]


def with_kept(plan: RefPlan, local: LocalRefs, rewritten: Set[str], now: float) -> RefPlan:
    """Keep every tip that is deleted, that a tag had, or that one of the ``rewritten`` had."""
    at = free_time(now, local.stamps)
    kept = [
        kept_tip(c.name, at, Why.DELETED if c.new is None else Why.REWRITTEN, c.old, c.new)
        for c in (*plan.deletions, *plan.updates)
        if c.old is not None and (c.new is None or c.name.startswith(TAGS) or c.name in rewritten)
    ]
    return replace(plan, kept=tuple(kept))


def _new_head(target: str, seen: RefSnapshot) -> str | None:
    if seen.head is not None:
        return None if target == seen.head else seen.head
    if target and target not in seen.refs:
        return None
    absent = NO_HEAD
    while absent in seen.refs:
        absent += "-"
    return absent


def check_names(seen: RefSnapshot) -> None:
    """Refuse names that no honest upstream has: they would be ours, or nobody's."""
    for name in [*seen.refs, *([seen.head] if seen.head is not None else [])]:
        if name.startswith(OWN_NAMESPACE) or not valid_name(encode_name(name)):
            raise FailureError(
                Failure(FailureKind.UNKNOWN, f"upstream advertises an impossible ref {name!r:.200}")
            )


async def read_local(git: Git, repo: Path) -> LocalRefs:
    """From its files, where they are plain; else one process tells."""
    refs = await asyncio.to_thread(read_ref_files, repo)
    if refs is None:
        listing = await git.run(["for-each-ref", "--format=%(objectname) %(refname)"], repo=repo)
        refs = parse_listing(listing.stdout)
    return sort_refs(refs, head_target(repo), git.settings.refs_extra)


def parse_listing(listing: bytes) -> dict[str, Oid]:
    """Read for-each-ref's answer."""
    lines = listing.decode("utf-8", "surrogateescape").split("\n")
    return {name: Oid(oid) for oid, space, name in (line.partition(" ") for line in lines) if space}


def sort_refs(refs: Mapping[str, Oid], target: str, refs_extra: tuple[str, ...] = ()) -> LocalRefs:
    """Public is what upstream may have; the rest is ours."""
    public: dict[str, Oid] = {}
    staged: set[Oid] = set()
    stamps: set[str] = set()
    prefixes = (*PUBLIC_PREFIXES, *refs_extra)
    for name, oid in refs.items():
        if name.startswith(STAGING):
            staged.add(oid)
        elif name.startswith(OUR_DATED):
            stamps.add(name.removeprefix(KEPT).removeprefix(ARCHIVE)[:STAMP_CHARS])
        elif name.startswith(prefixes) and not name.startswith(OWN_NAMESPACE):
            public[name] = oid
    head = target if target in public else None
    return LocalRefs(RefSnapshot(public, head), frozenset(staged), target, frozenset(stamps))


async def apply_plan(git: Git, repo: Path, plan: RefPlan, *, lock_fd: int, durable: bool = True) -> None:
    """Change the refs, then HEAD. All of a transaction happens, or none of it.

    Where there are many, they are written without an fsync each and packed at once, with one; only a power
    cut within that moment could leave a ref unreadable, which is seen as damage and healed by a clone. No
    clone brings old tips back: so these are kept, and durable, before anything else."""
    bulk = len(plan.deletions) + len(plan.updates) >= BULK_CHANGES or not durable
    kept_before = bulk and bool(plan.kept)
    if kept_before:
        await _run_transactions(git, repo, _transaction(_keep(plan, plan.kept)), lock_fd, bulk=True)
    moved = durable and moves_only(plan) and await to_its_end(move_refs, repo, plan.updates)
    if not moved and (transactions := transaction_input(plan, kept_before=kept_before)):
        await _run_transactions(git, repo, transactions, lock_fd, bulk=bulk)
    if plan.new_head is not None:
        write_head(repo, plan.new_head)


def moves_only(plan: RefPlan) -> bool:
    """A few refs that are here get other values, and nothing else happens: that takes no process."""
    others = plan.deletions or plan.kept or plan.staged or any(c.old is None for c in plan.updates)
    return not others and 0 < len(plan.updates) <= MOVES_MAX


async def _run_transactions(git: Git, repo: Path, transactions: bytes, lock_fd: int, *, bulk: bool) -> None:
    await git.run(
        ["update-ref", "--no-deref", "-z", "--stdin"],
        repo=repo,
        stdin=transactions,
        config=(DURABLE_OBJECTS_ONLY,) if bulk else (),
        keep_fds=(lock_fd,),
    )
    if bulk:
        await git.run(["pack-refs", "--all"], repo=repo, keep_fds=(lock_fd,))


def transaction_input(plan: RefPlan, *, kept_before: bool = False) -> bytes:
    """What ``update-ref -z --stdin`` is told. What was ``kept_before`` is only looked for."""
    gone = [tip for tip in plan.kept if tip.why is Why.DELETED]
    rewritten = [tip for tip in plan.kept if tip.why is not Why.DELETED]
    first = _keep(plan, gone, verify=kept_before)
    first += [_delete(c.name, c.old) for c in plan.deletions]
    second = _keep(plan, rewritten, verify=kept_before)
    second += [_update(c) for c in plan.updates]
    second += [_delete(STAGING + oid, oid) for oid in sorted(plan.staged)]
    return b"".join(_transaction(commands) for commands in (first, second) if commands)


def _keep(plan: RefPlan, tips: Iterable[KeptTip], *, verify: bool = False) -> list[bytes]:
    word = b"verify" if verify else b"create"
    names = [(tip.name, tip.old) for tip in tips]
    if plan.archive:
        names += [(archive_name(tip.ref, tip.at), tip.old) for tip in tips]
    return [b"%b %b\0%b\0" % (word, encode_name(name), oid.encode("ascii")) for name, oid in names]


def staging_refspecs(wants: Iterable[Oid]) -> bytes:
    """For ``fetch --stdin``: each tip by its id, so that what we saw is what we get."""
    return "".join(f"{oid}:{STAGING}{oid}\n" for oid in sorted(wants)).encode("ascii")


def head_target(repo: Path) -> str:
    """What HEAD points to: a branch, which may not exist; "" where it is something else."""
    text = (repo / "HEAD").read_bytes().decode("utf-8", "surrogateescape").strip()
    return text.removeprefix("ref:").strip() if text.startswith("ref:") else ""


def write_head(repo: Path, target: str) -> None:
    """As git does it (lock, write, fsync, rename), but the name is never in an argv."""
    lock = repo / "HEAD.lock"
    descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with open(descriptor, "wb") as file:
        file.write(b"ref: " + encode_name(target) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    lock.replace(repo / "HEAD")


@dataclass(frozen=True, slots=True)
class NewCommits:
    """Times as upstream wrote them, newest first: they may be anything. Parents of each commit."""

    times: tuple[float, ...] = ()
    parents: Mapping[Oid, tuple[Oid, ...]] = field(default_factory=dict)


async def new_commits(
    git: Git,
    repo: Path,
    tips: Collection[Oid],
    known: Collection[Oid],
    *,
    limit: int,
    told: NewCommits | None = None,
) -> NewCommits:
    """What ``tips`` have and ``known`` have not; at most ``limit``. ``told``: that was asked already."""
    if told is not None:
        return replace(told, times=told.times[:limit])
    fresh = set(tips) - set(known)
    lines = [*fresh, *(f"^{oid}" for oid in set(known))]
    return await _list_commits(git, repo, lines, [], limit) if fresh else NewCommits()


async def first_parent_times(git: Git, repo: Path, tip: Oid, *, limit: int) -> tuple[float, ...]:
    """Commit times along the default branch: the best trace of when pushes happened."""
    return (await _list_commits(git, repo, [tip], ["--first-parent"], limit)).times


async def _list_commits(
    git: Git, repo: Path, revisions: Sequence[str], options: Sequence[str], limit: int
) -> NewCommits:
    """Best effort: it is told to people and to the schedule, and spares questions about ancestry."""
    command = ["rev-list", "--no-commit-header", "--format=%ct %H %P", f"--max-count={limit}"]
    try:
        listing = await git.run(
            [*command, "--ignore-missing", *options, "--stdin"],
            repo=repo,
            stdin="".join(f"{r}\n" for r in revisions).encode("ascii"),
            timeout_s=COUNT_TIMEOUT_S,
        )
    except FailureError:
        return NewCommits()
    return parse_commits(listing.stdout.splitlines())


def parse_commits(lines: Iterable[bytes]) -> NewCommits:
    """Each line is ``%ct %H %P``. A commit without a committer has no time."""
    times: list[float] = []
    parents: dict[Oid, tuple[Oid, ...]] = {}
    for line in lines:
        time, _, rest = line.decode("ascii", "replace").partition(" ")
        commit, *before = rest.split()
        parents[Oid(commit)] = tuple(map(Oid, before))
        if time.lstrip("-").isdigit():
            times.append(float(time))
    return NewCommits(tuple(times), parents)


def _transaction(commands: list[bytes]) -> bytes:
    return b"start\0" + b"".join(commands) + b"prepare\0commit\0"


def _delete(name: str, old: Oid | None) -> bytes:
    return b"delete %b\0%b\0" % (encode_name(name), (old or "").encode("ascii"))


def _update(change: RefChange) -> bytes:
    name, new = encode_name(change.name), (change.new or "").encode("ascii")
    if change.old is None:
        return b"create %b\0%b\0" % (name, new)
    return b"update %b\0%b\0%b\0" % (name, new, change.old.encode("ascii"))


def same_refs(here: RefSnapshot, seen: RefSnapshot) -> bool:
    """Success means exactly this."""
    return _plain(here.refs) == _plain(seen.refs) and here.head == seen.head


def _plain(refs: Mapping[str, Oid]) -> dict[str, Oid]:
    return dict(refs)


def encode_name(name: str) -> bytes:
    """Refs are bytes; our strings carry any byte (see model/refs.py)."""
    return name.encode("utf-8", "surrogateescape")


def with_real_head(seen: RefSnapshot) -> RefSnapshot:
    """A HEAD that names a branch which is not there counts as none: not every way of asking tells it."""
    return seen if seen.head is None or seen.head in seen.refs else RefSnapshot(seen.refs, None)
