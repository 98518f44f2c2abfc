"""Kept tips travel: those of another holder that are lacking here, checked as all that is fetched."""

from __future__ import annotations

from collections.abc import Mapping

from evermirror.core.keep.names import KEPT, parse_kept
from evermirror.edge.git.command import Git
from evermirror.edge.git.environment import Remote
from evermirror.edge.git.keep import list_refs
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.git.refs import STAGING, encode_name
from evermirror.edge.git.transfer import TIPS_PER_STEP, Transfer
from evermirror.model.kept import KeptTip
from evermirror.model.refs import Oid
from evermirror.model.repo import RepoKey

KEPT_MAX = 20_000  # brought at a time; the rest comes the next time


async def bring_kept(
    git: Git,
    mirrors: Mirrors,
    key: RepoKey,
    remote: Remote,
    theirs: Mapping[str, Oid],
    allowed: tuple[str, ...] = (),
) -> int:
    """Fetch from ``remote`` what of its kept tips (``theirs``: names and tips) is not here, under the same
    names. One that is kept here under another name is not brought. Returns how many came."""
    async with mirrors.locked(key) as lock_fd:
        repo = mirrors.path(key)
        lacking = _lacking(await list_refs(git, repo, KEPT), theirs)
        transfer = Transfer(git, repo, remote, lock_fd, allowed=allowed)
        for start in range(0, len(lacking), TIPS_PER_STEP):
            part = lacking[start : start + TIPS_PER_STEP]
            wants = {tip.old for tip in part}
            await transfer.fetch(wants)
            commands = [b"create %b\0%b\0" % (encode_name(t.name), t.old.encode("ascii")) for t in part]
            commands += [b"delete %b\0\0" % encode_name(STAGING + oid) for oid in sorted(wants)]
            await git.run(
                ["update-ref", "--no-deref", "-z", "--stdin"],
                repo=repo,
                stdin=b"start\0" + b"".join(commands) + b"prepare\0commit\0",
                keep_fds=(lock_fd,),
            )
    return len(lacking)


def _lacking(here: Mapping[str, Oid], theirs: Mapping[str, Oid]) -> list[KeptTip]:
    known = {_essence(tip) for name, oid in here.items() if (tip := parse_kept(name, oid)) is not None}
    lacking = []
    for name, oid in theirs.items():
        tip = parse_kept(name, oid)  # None for what is no kept tip: it has no business here
        if tip is not None and name not in here and _essence(tip) not in known:
            known.add(_essence(tip))
            lacking.append(tip)
    return lacking[:KEPT_MAX]


def _essence(tip: KeptTip) -> tuple[str, Oid, Oid | None]:
    """What was where, and what came instead; when that was noticed differs from node to node."""
    return tip.ref, tip.old, tip.new
