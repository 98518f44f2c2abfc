"""Clones not visible yet: made and finished in ``.incoming``, kept in part where the network broke."""

from __future__ import annotations

import asyncio
from pathlib import Path

from evermirror.edge.git import folder
from evermirror.edge.git.command import Git
from evermirror.edge.git.fsck import is_unjudged
from evermirror.edge.git.refs import (
    LocalRefs,
    apply_plan,
    plan_refs,
    read_local,
    same_refs,
)
from evermirror.edge.git.transfer import STEP_FILE, Reprobe, Seed, Transfer, follow, read_step, write_step
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import RepoKey, RepoSpec

SHA256_HEX_DIGITS = 64
_DESCRIPTION = "mirror of "

# Also in force when somebody runs git in a mirror by hand, or serves the folder with another server.
MIRROR_CONFIG = """\
[gc]
	auto = 0
[maintenance]
	auto = false
[uploadpack]
	hideRefs = refs/evermirror
	allowFilter = true
[http]
	receivepack = false
	getanyfile = false
"""


class Incoming:
    """The folder of unfinished clones; each is named by its repo's id, and guarded by its repo's lock."""

    def __init__(self, root: Path, git: Git, *, steps_after_bytes: int) -> None:
        self.folder = root / ".incoming"
        self._git = git
        self._steps_after_bytes = steps_after_bytes

    async def clone(
        self,
        spec: RepoSpec,
        transfer: Transfer,
        seen: RefSnapshot,
        reprobe: Reprobe,
        seed: Seed | None = None,
    ) -> tuple[Path, RefSnapshot]:
        """A complete, verified and durable clone, and what it is equal to. The caller moves it into place."""
        repo = self.folder / folder.folder_id(spec.key)
        transfer.repo = repo
        try:
            staged = (await self._prepare(spec.key, repo, transfer, seen)).staged
            wants = frozenset(seen.refs.values()) - staged
            staged |= await transfer.fetch_seed(seed, wants, seen, RefSnapshot({}))

            async def fetch_for(seen: RefSnapshot) -> None:
                wants = plan_refs(LocalRefs(RefSnapshot({}), staged), seen).wants
                if read_step(repo) is not None and seen.refs:
                    await transfer.fetch_in_steps(seen, staged)
                elif wants:
                    await transfer.fetch(wants)

            seen = await follow(fetch_for, seen, reprobe)
            await self._finish(repo, transfer, seen)
        except FailureError as error:
            await self._keep_or_remove(repo, transfer, error.failure)
            raise
        except BaseException:
            if read_step(repo) is None:  # whole packs that arrived in steps are worth keeping
                folder.remove_tree(repo)
            raise
        return repo, seen

    async def _prepare(self, key: RepoKey, repo: Path, transfer: Transfer, seen: RefSnapshot) -> LocalRefs:
        """An empty repository; or what an earlier attempt left, where that went in steps."""
        if read_step(repo) is not None and object_format(repo) == format_of(seen) and not is_unjudged(repo):
            await asyncio.to_thread(folder.clean_leftovers, repo)
            transfer.bytes_before = await asyncio.to_thread(folder.size_of, repo)
            return await read_local(self._git, repo)
        await asyncio.to_thread(folder.remove_tree, repo)
        with transfer.phase("prepare"):
            await self._git.run(
                [
                    "init",
                    "--quiet",
                    "--bare",
                    "--template=",
                    "-b",
                    "main",
                    f"--object-format={format_of(seen)}",
                ],
                repo=repo,
            )
            with (repo / "config").open("a") as config:
                config.write(MIRROR_CONFIG)
            (repo / "description").write_text(f"{_DESCRIPTION}{key}\n", "utf-8", "surrogatepass")
        return LocalRefs(RefSnapshot({}))

    async def _finish(self, repo: Path, transfer: Transfer, seen: RefSnapshot) -> None:
        if (repo / "shallow").exists():
            raise FailureError(Failure(FailureKind.UNKNOWN, "upstream itself is a shallow clone"))
        with transfer.phase("update"):
            plan = plan_refs(await read_local(self._git, repo), seen)
            await apply_plan(self._git, repo, plan, lock_fd=transfer.lock_fd, durable=False)
        with transfer.phase("verify"):
            here = (await read_local(self._git, repo)).public
            if not same_refs(here, seen):
                raise FailureError(
                    Failure(FailureKind.UNKNOWN, "refs after the clone differ from upstream's")
                )
            (repo / STEP_FILE).unlink(missing_ok=True)
            await asyncio.to_thread(folder.fsync_tree, repo)

    async def _keep_or_remove(self, repo: Path, transfer: Transfer, failure: Failure) -> None:
        """What arrived is worth keeping only where going on later can succeed."""
        if failure.kind is FailureKind.NETWORK_TIMEOUT:
            if read_step(repo) is None and transfer.received_bytes >= self._steps_after_bytes:
                write_step(repo, 0)
            if read_step(repo) is not None:
                await asyncio.to_thread(folder.clean_leftovers, repo)
                return
        await asyncio.to_thread(folder.remove_tree, repo)

    # Leftovers

    def names(self) -> list[str]:
        """Every folder here."""
        return [path.name for path in self.folder.iterdir()]

    def tidy(self, name: str, before: float) -> None:
        """Remove one that no attempt goes on with, or that last moved before this time (UTC seconds)."""
        repo = self.folder / name
        try:
            keep = (repo / STEP_FILE).stat().st_mtime >= before
        except FileNotFoundError:
            keep = False
        if not keep:
            folder.remove_tree(repo)


def format_of(seen: RefSnapshot) -> str:
    """Which hash upstream uses; sha1 where it has no refs yet."""
    return "sha256" if len(next(iter(seen.refs.values()), "")) == SHA256_HEX_DIGITS else "sha1"


def object_format(repo: Path) -> str:
    """Which hash the repository here uses."""
    try:
        return (
            "sha256" if "objectformat = sha256" in (repo / "config").read_text("utf-8", "replace") else "sha1"
        )
    except FileNotFoundError:
        return ""


def is_empty_of_other_format(repo: Path, seen: RefSnapshot) -> bool:
    """An upstream that was empty, and turns out to use sha256, needs a new mirror; nothing is lost."""
    if format_of(seen) != "sha256" or object_format(repo) == "sha256":
        return False
    return not (repo / "packed-refs").exists() and not any(p.is_file() for p in (repo / "refs").rglob("*"))


def named_key(repo: Path) -> RepoKey | None:
    """Whose mirror this is, by its own description."""
    try:
        text = (repo / "description").read_text("utf-8", "surrogatepass")
    except OSError:
        return None
    return RepoKey(text.removeprefix(_DESCRIPTION).rstrip("\n")) if text.startswith(_DESCRIPTION) else None
