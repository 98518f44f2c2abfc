"""Kept tips of one mirror: listed, restored, forgotten when their time is over, carried into a new clone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from evermirror.core.keep.guard import GuardMemory, GuardSettings, advice, explain
from evermirror.core.keep.names import ARCHIVE, KEPT, expired, parse_kept, stamp_of
from evermirror.edge.git.command import Git
from evermirror.edge.git.folder import object_files, remove_files
from evermirror.edge.git.lsrefs import valid_name
from evermirror.edge.git.refs import RESTORED, encode_name
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.kept import KeptTip
from evermirror.model.refs import Oid, RefSnapshot

CARRIED_ALONE_MAX = 1_000  # refs tried one by one out of a damaged mirror; each costs some processes


class HeldBack(FailureError):
    """A guard holds: nothing public was changed. ``memory`` is to be passed to the next sync."""

    def __init__(self, failure: Failure, memory: GuardMemory) -> None:
        super().__init__(failure)
        self.memory = memory

    @classmethod
    def of(
        cls, memory: GuardMemory, before: RefSnapshot, seen: RefSnapshot, settings: GuardSettings
    ) -> HeldBack:
        """Tells what was seen, and how to confirm it."""
        context = {"guard": memory.reason.value}
        words = explain(memory, before, seen)
        return cls(
            Failure(FailureKind.CONFLICT, words, hint=advice(memory, settings), context=context), memory
        )


async def list_kept(git: Git, repo: Path) -> tuple[KeptTip, ...]:
    """Newest first; within one moment by the name of the ref."""
    refs = await list_refs(git, repo, KEPT)
    tips = [tip for name, oid in refs.items() if (tip := parse_kept(name, oid)) is not None]
    return tuple(sorted(tips, key=lambda tip: (-tip.at, tip.ref)))


async def list_refs(git: Git, repo: Path, *prefixes: str) -> dict[str, Oid]:
    """Every ref below ``prefixes``."""
    listing = await git.run(["for-each-ref", "--format=%(objectname) %(refname)", *prefixes], repo=repo)
    lines = listing.stdout.decode("utf-8", "surrogateescape").split("\n")
    return {name: Oid(oid) for oid, _, name in (line.partition(" ") for line in lines) if name}


async def restore(git: Git, repo: Path, kept: str, as_name: str | None, lock_fd: int) -> str:
    """A public ref that following upstream never touches; never overwrites another."""
    known = parse_kept(kept, Oid("")) is not None  # else it goes into no command line
    here = await list_refs(git, repo, kept, RESTORED) if known else {}
    tip = parse_kept(kept, here.pop(kept)) if kept in here else None
    if tip is None:
        raise FailureError(
            Failure(FailureKind.NOT_FOUND, "no such kept tip", hint="The history lists those that are here")
        )
    short = as_name if as_name is not None else f"{tip.ref.removeprefix('refs/')}-{stamp_of(tip.at)}"
    name = RESTORED + short.removeprefix(RESTORED)
    if not valid_name(encode_name(name)) or "\0" in name:
        raise FailureError(
            Failure(FailureKind.CONFLICT, f"{short!r:.200} is no name for a ref", hint="Choose another name")
        )
    if here.get(name) == tip.old:
        return name
    clash = [n for n in here if n == name or n.startswith(name + "/") or name.startswith(n + "/")]
    if clash:
        raise FailureError(
            Failure(FailureKind.CONFLICT, f"{clash[0]!r:.200} is there already", hint="Choose another name")
        )
    command = b"create %b\0%b\0" % (encode_name(name), tip.old.encode("ascii"))
    await _update_refs(git, repo, [command], lock_fd)
    return name


async def expire(git: Git, repo: Path, now: float, retention_s: float | None, lock_fd: int) -> int:
    """Forget what is older; its objects go with the next repack that drops what nothing points at."""
    old = expired(await list_kept(git, repo), now, retention_s)
    if old:
        commands = [b"delete %b\0%b\0" % (encode_name(t.name), t.old.encode("ascii")) for t in old]
        await _update_refs(git, repo, commands, lock_fd)
    return len(old)


async def ours(git: Git, damaged: Path) -> dict[str, Oid]:
    """What no upstream can give again: kept, archived and restored refs, as far as they can be read."""
    with suppress(FailureError, OSError):
        return await list_refs(git, damaged, KEPT, ARCHIVE, RESTORED)
    return {}


async def carry_over(
    git: Git, damaged: Path, fresh: Path, refs: dict[str, Oid], lock_fd: int
) -> dict[str, Oid]:
    """Bring ``refs`` and all that they need from a damaged mirror into a clone that nobody sees yet.

    All at once; where that fails, one by one, so that each that is whole is saved. Returns what came."""
    came: dict[str, Oid] = {}
    tips = sorted(set(refs.values()))
    groups: list[Sequence[Oid]] = [tips] if tips else []
    while groups:
        group = groups.pop()
        if await _bring(git, damaged, fresh, group):
            came.update({name: oid for name, oid in refs.items() if oid in group})
        elif len(group) == len(tips) > 1:
            groups = [[tip] for tip in tips[:CARRIED_ALONE_MAX]]
    if came:
        commands = [b"create %b\0%b\0" % (encode_name(n), o.encode("ascii")) for n, o in came.items()]
        await _update_refs(git, fresh, commands, lock_fd)
    return came


async def _bring(git: Git, damaged: Path, fresh: Path, tips: Iterable[Oid]) -> bool:
    """True where all of it is here afterwards, checked without the damaged mirror's help."""
    here = set((await list_refs(git, fresh)).values())
    listed = "".join([*(f"{oid}\n" for oid in tips), *(f"^{oid}\n" for oid in here)]).encode("ascii")
    before = object_files(fresh)
    try:
        with _borrowing(fresh, damaged):
            packed = await git.run(
                ["pack-objects", "--quiet", "--revs", "--non-empty", str(fresh / "objects/pack/pack")],
                repo=fresh,
                stdin=listed,
            )
        for name in packed.stdout.decode("ascii").split():
            await git.run(["verify-pack", str(fresh / f"objects/pack/pack-{name}.idx")], repo=fresh)
        await git.run(["rev-list", "--objects", "--quiet", "--stdin"], repo=fresh, stdin=listed)
    except (FailureError, OSError):
        remove_files(object_files(fresh) - before)
        return False
    return True


@contextmanager
def _borrowing(fresh: Path, damaged: Path) -> Iterator[None]:
    """git sees the objects of both."""
    alternates = fresh / "objects" / "info" / "alternates"
    alternates.parent.mkdir(exist_ok=True)
    alternates.write_text(f"{damaged / 'objects'}\n")
    try:
        yield
    finally:
        alternates.unlink(missing_ok=True)


async def _update_refs(git: Git, repo: Path, commands: list[bytes], lock_fd: int) -> None:
    transaction = b"start\0" + b"".join(commands) + b"prepare\0commit\0"
    await git.run(
        ["update-ref", "--no-deref", "-z", "--stdin"], repo=repo, stdin=transaction, keep_fds=(lock_fd,)
    )
