"""Is a mirror damaged? Only git's own evidence counts, and fsck has to confirm it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from evermirror.edge.git.classify import CAUSE, LACKING, classify
from evermirror.edge.git.command import Completed, Git
from evermirror.edge.git.fsck import fsck_config, is_unjudged
from evermirror.edge.git.incoming import is_empty_of_other_format
from evermirror.edge.git.mend import put_back
from evermirror.edge.git.refs import NO_HEAD, LocalRefs, read_local, write_head
from evermirror.edge.git.upkeep import is_damaged, mark_damaged
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.refs import RefSnapshot


def must_be_replaced(path: Path, seen: RefSnapshot) -> bool:
    """By a fresh clone, before anything else is done with it."""
    return is_damaged(path) or is_unjudged(path) or is_empty_of_other_format(path, seen)


async def read_or_damaged(git: Git, repo: Path) -> LocalRefs:
    """The refs here; a repository without its parts is told as damage."""
    try:
        return await read_local(git, repo)
    except (FileNotFoundError, NotADirectoryError) as error:
        message = f"the mirror here seems damaged: {error.strerror}: {error.filename}"
        raise FailureError(Failure(FailureKind.UNKNOWN, message, corrupt=True)) from error


async def confirm_damage(git: Git, repo: Path, evidence: Failure) -> None:
    """Raise ``evidence`` as an ordinary failure where fsck finds nothing: it was upstream's doing."""
    if not await asyncio.to_thread((repo / "HEAD").is_file):
        return
    config = await fsck_config(git)
    for depth in (
        "--connectivity-only",
        "--full",
    ):  # the quick look finds what is missing, the long one what is bad
        found = await git.run(
            ["fsck", depth, "--no-dangling", "--progress"],
            repo=repo,
            config=config,
            no_progress_s=git.settings.no_progress_s,
            check=False,
        )
        if found.returncode != 0 and not _lacked_memory(found):
            return
    raise FailureError(replace(evidence, corrupt=False))


def _lacked_memory(found: Completed) -> bool:
    """Then fsck says nothing about the mirror."""
    return classify(found.returncode, found.stderr).context.get(CAUSE) in LACKING


async def judge_damage(git: Git, repo: Path, evidence: Failure) -> Failure:
    """``evidence`` where fsck confirms it: the mirror is marked then, for its next sync to replace it. Else
    the same as an ordinary failure. For the holder of the mirror's lock."""
    if not await asyncio.to_thread(is_damaged, repo):
        try:
            await confirm_damage(git, repo, evidence)
        except FailureError:
            return replace(evidence, corrupt=False)
        await asyncio.to_thread(mark_damaged, repo, evidence.message)
    return evidence


def make_readable(repo: Path) -> None:
    """git reads nothing of a repository without these; what else is there may be whole."""
    for part in ("refs", "objects"):
        (repo / part).mkdir(exist_ok=True)
    put_back(repo)
    if not (repo / "HEAD").is_file():
        write_head(repo, NO_HEAD)


def with_likely_head(here: RefSnapshot, seen: RefSnapshot) -> RefSnapshot:
    """Where HEAD was lost it was upstream's, if that branch is here."""
    return RefSnapshot(here.refs, here.head or (seen.head if seen.head in here.refs else None))
