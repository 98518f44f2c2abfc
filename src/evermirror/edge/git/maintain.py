"""Does one job of upkeep on one mirror: bounded in time, on idle processors, and never under a reader's feet.

    facts ─▶ job ─▶ ended ──────────────────────────────▶ remembered in the mirror ─▶ JobResult
              ├──▶ failed, too slow ─▶ leftovers removed ─▶ (damage? fsck confirms) ─▶ JobResult with why
              └──▶ cancelled: a sync wants the mirror ─▶ leftovers removed ─▶ cancelled, nothing remembered

Why readers are not disturbed: git writes and syncs the new pack first, then the new multi-pack index, and
removes the old packs last. upload-pack holds the packs open that it uses, and looks again where one that it
did not open yet is gone. Nothing that a ref reaches (kept tips are refs too) is ever dropped; what no ref
reaches goes to a cruft pack and stays there for ``cruft_expiry_s``.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from evermirror.core.maintain.facts import Job, Past, RepoUpkeep, UpkeepSettings
from evermirror.core.maintain.plan import Due, next_due
from evermirror.edge.git import folder, upkeep
from evermirror.edge.git.classify import CAUSE, LACKING, classify
from evermirror.edge.git.command import SHOWN_OUTPUT_BYTES, Completed, Git
from evermirror.edge.git.fsck import fsck_config
from evermirror.edge.git.mend import mend_packs
from evermirror.model.failure import Failure, FailureError, FailureKind

log = structlog.get_logger(__name__)

DISK_ROOM_FACTOR = 1.1  # a repack writes all packs again before it removes the old ones
LEAST_TIME_S = 0.05  # for the next command of a job whose time is up: git is then ended at once
# fsck's exit code is a sum of these; the others are 1: objects, 2: reachable ones, 4: packs, 8: refs.
_FSCK_GRAPH, _FSCK_MIDX = 16, 32
_FSCK_DIED = 64  # from here on it did not come to an end
_COMPLAINT = re.compile(r"^(?:error|fatal|missing|broken|bad|\s+to )", re.IGNORECASE)

# One thread: upkeep takes what nobody else wants.
_FRUGAL = (
    ("pack.threads", "1"),
    ("pack.writeReverseIndex", "true"),  # else each clone computes it
    ("pack.writeBitmapLookupTable", "true"),
    ("repack.updateServerInfo", "false"),  # for dumb HTTP, which is not served
)
_NO_REV = (("pack.writeReverseIndex", "false"),)  # of an index that is not in its place yet
_MIDX_AND_BITMAP = ("--write-midx", "--write-bitmap-index")


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job went. ``damaged`` is fsck's word that the mirror must be replaced; ``failure`` is any other
    reason for which the job did not come to its end."""

    job: Job
    before: RepoUpkeep
    after: RepoUpkeep
    duration_s: float
    failure: Failure | None = None
    damaged: Failure | None = None


@dataclass(frozen=True, slots=True)
class Tended:
    """One look at a mirror: what was done, if anything was due, and when it is due again."""

    result: JobResult | None
    facts: RepoUpkeep
    due: Due


class _Watch:
    """What is left of a job's time."""

    def __init__(self, limit_s: float) -> None:
        self._started = time.monotonic()
        self._limit_s = limit_s

    @property
    def used_s(self) -> float:
        return time.monotonic() - self._started

    @property
    def left_s(self) -> float:
        return max(self._limit_s - self.used_s, LEAST_TIME_S)


class Maintenance:
    """Upkeep of bare mirrors. Who calls holds the mirror's lock; git inherits its descriptor."""

    def __init__(
        self, git: Git, settings: UpkeepSettings | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._git = git
        self._settings = settings if settings is not None else UpkeepSettings()
        self._clock = clock

    async def facts(self, repo: Path) -> RepoUpkeep:
        """The mirror's figures now. Needs no lock."""
        try:
            return await asyncio.to_thread(upkeep.read_upkeep, repo)
        except OSError as error:
            raise FailureError(folder.failure_of(error)) from error

    async def tend(self, repo: Path, lock_fd: int | None, chance: float) -> Tended:
        """Look at a mirror, do what it needs most, and say when it needs something again."""
        facts = await self.facts(repo)
        now = self._clock()
        due = next_due(facts, self._settings, now, chance)
        if due.job is None or due.at > now:
            return Tended(None, facts, due)
        result = await self.run(repo, due.job, lock_fd)
        return Tended(result, result.after, next_due(result.after, self._settings, self._clock(), chance))

    async def run(self, repo: Path, job: Job, lock_fd: int | None) -> JobResult:
        """Do one job. Raises only where the folder itself cannot be read, or when cancelled."""
        before = await self.facts(repo)
        orphans = await asyncio.to_thread(upkeep.orphans, repo)
        await folder.to_its_end(_clean, repo, orphans)  # of those who were killed together with us
        watch = _Watch(self._settings.time_limit_s)
        failure = damaged = None
        try:
            try:
                damaged = await self._do(repo, job, before, lock_fd, watch)
            except OSError as error:
                raise FailureError(folder.failure_of(error)) from error
        except FailureError as error:
            failure = _explained(error.failure)
            await folder.to_its_end(_clean, repo, orphans)
            if failure.corrupt:
                damaged = await self._confirmed(repo, failure, lock_fd, watch)
                failure = replace(failure, corrupt=False) if damaged is None else None
        except BaseException:  # cancelled: whoever waits for the lock must find the folder clean
            _clean(repo, orphans)
            raise
        done = failure is None and damaged is None
        if damaged is not None or (done and job is Job.FSCK):
            await folder.to_its_end(
                upkeep.mark_damaged, repo, damaged.message if damaged is not None else None
            )
        after = await folder.to_its_end(self._remember, repo, job, before, done)
        return JobResult(job, before, after, watch.used_s, failure, damaged)

    def _remember(self, repo: Path, job: Job, before: RepoUpkeep, done: bool) -> RepoUpkeep:
        """Write down what happened. Where that fails the job is done again, which does no harm."""
        facts = upkeep.read_upkeep(repo)
        now = self._clock()
        last = facts.past.get(job, Past(now))
        if done:
            this = Past(now, now, 0, facts.packs_id)
        else:
            this = replace(last, tried_at=now, failures=last.failures + 1)
        past = {**facts.past, job: this}
        if not before.past and before.is_one_pack:  # nothing for a full repack to do before this changes
            past.setdefault(Job.FULL, Past(before.first_seen_at, packs_id=before.packs_id))
        try:
            upkeep.write_past(repo, past)
        except OSError:
            (repo / (upkeep.PAST_FILE + ".new")).unlink(missing_ok=True)
        return replace(facts, past=past)

    # The jobs

    async def _do(
        self, repo: Path, job: Job, facts: RepoUpkeep, lock_fd: int | None, watch: _Watch
    ) -> Failure | None:
        """Returns the damage that was found, if this is a job that looks for it."""
        match job:
            case Job.PACK_REFS:
                await self._run(["pack-refs", "--all", "--prune"], repo, lock_fd, watch)
            case Job.COMMIT_GRAPH:
                await self._write_graph(repo, lock_fd, watch, "--split")
            case Job.GEOMETRIC:
                _check_repackable(repo, facts)
                await self._adopt_orphans(repo, lock_fd, watch)
                words = ["repack", "--geometric=2", "-d", "-q", *_MIDX_AND_BITMAP]
                await self._run(words, repo, lock_fd, watch)
                await self._write_graph(repo, lock_fd, watch, "--split")
            case Job.FULL:
                _check_repackable(repo, facts)
                await self._adopt_orphans(repo, lock_fd, watch)
                expiry = f"--cruft-expiration={round(self._settings.cruft_expiry_s)}.seconds.ago"
                words = ["repack", "--cruft", expiry, "-d", "-q", *_MIDX_AND_BITMAP]
                await self._run(words, repo, lock_fd, watch)
                # Replaced, not added to: it must not name commits that have expired.
                await self._write_graph(repo, lock_fd, watch, "--split=replace")
            case Job.FSCK:
                return await self._fsck_and_mend(repo, lock_fd, watch)
        return None

    async def _fsck_and_mend(self, repo: Path, lock_fd: int | None, watch: _Watch) -> Failure | None:
        """What is broken and cannot be mended by what is here, if anything."""
        damage = await self._fsck(repo, lock_fd, watch)
        if damage is None:
            return None

        async def run(*words: str) -> int:
            return (await self._run(words, repo, lock_fd, watch, config=_NO_REV, check=False)).returncode

        async def is_sound() -> bool:
            return await self._fsck(repo, lock_fd, watch) is None

        try:
            mended = await mend_packs(repo, run, is_sound)
        except (FailureError, OSError) as error:  # too slow, no room: what fsck has found stays true
            log.warning("broken packs not mended", repo=repo.name, reason=str(error))
            return damage
        if mended:
            log.warning("broken packs mended from what is here", repo=repo.name, packs=mended)
        return None if mended else damage

    async def _adopt_orphans(self, repo: Path, lock_fd: int | None, watch: _Watch) -> None:
        """Packs without an index, left by a kill: one that is whole gets its index back, others are removed.

        git 2.39 refuses a cruft repack while one lies there."""
        found = await asyncio.to_thread(upkeep.orphans, repo)
        for pack in sorted(path for path in found if path.endswith(upkeep.PACK_SUFFIX)):
            made = await self._run(["index-pack", pack], repo, lock_fd, watch, check=False)
            if made.returncode != 0:
                failure = classify(made.returncode, made.stderr)
                ours = failure.kind is FailureKind.DISK_FULL or failure.context.get(CAUSE) in LACKING
                if made.returncode < 0 or ours:
                    raise FailureError(failure)
        folder.remove_files(await asyncio.to_thread(upkeep.orphans, repo))

    async def _write_graph(self, repo: Path, lock_fd: int | None, watch: _Watch, split: str) -> None:
        await self._run(
            ["commit-graph", "write", "--reachable", split, "--no-progress"], repo, lock_fd, watch
        )

    async def _fsck(self, repo: Path, lock_fd: int | None, watch: _Watch) -> Failure | None:
        """What is broken, if anything. Broken indexes over sound objects are removed, to be remade."""
        words = ["fsck", "--full", "--no-dangling", "--no-progress"]
        config = await fsck_config(self._git)
        found = await self._run(words, repo, lock_fd, watch, config=config, check=False)
        code = found.returncode
        if code < 0 or code >= _FSCK_DIED:
            failure = classify(code, found.stderr)
            if failure.corrupt:
                return _damage(repo, words, found)
            raise FailureError(replace(failure, git_command=f"git {' '.join(words)}", stderr=found.stderr))
        if code & (_FSCK_GRAPH | _FSCK_MIDX):
            await folder.to_its_end(upkeep.remove_derived, repo)
            code &= ~(_FSCK_GRAPH | _FSCK_MIDX)
        if code == 0:
            return None
        return _damage(repo, words, found)

    async def _confirmed(
        self, repo: Path, evidence: Failure, lock_fd: int | None, watch: _Watch
    ) -> Failure | None:
        """A job stumbled over something: damage is only what fsck calls so."""
        try:
            return await self._fsck(repo, lock_fd, watch)
        except FailureError as error:
            return evidence if error.failure.corrupt else None

    async def _run(
        self,
        words: Sequence[str],
        repo: Path,
        lock_fd: int | None,
        watch: _Watch,
        *,
        config: Sequence[tuple[str, str]] = (),
        check: bool = True,
    ) -> Completed:
        return await self._git.run(
            words,
            repo=repo,
            config=(*_FRUGAL, *config),
            timeout_s=watch.left_s,
            keep_fds=() if lock_fd is None else (lock_fd,),
            check=check,
            background=True,
        )


def _check_repackable(repo: Path, facts: RepoUpkeep) -> None:
    if facts.has_alternates:
        raise FailureError(
            Failure(
                FailureKind.CONFLICT,
                "this mirror borrows objects from another one: it is not repacked",
                hint="git 2.39 can write no bitmap in a repository with alternates",
            )
        )
    needed = (facts.pack_bytes + facts.cruft_bytes) * DISK_ROOM_FACTOR
    free = shutil.disk_usage(repo).free
    if free < needed:
        message = f"a repack needs {needed:.0f} bytes of disk for a while, and {free} are free"
        raise FailureError(Failure(FailureKind.DISK_FULL, message, hint="free some space in the data folder"))


def _clean(repo: Path, known_orphans: set[str]) -> None:
    """Remove what a git that was ended left; files that lay there before it began are not its own."""
    folder.clean_leftovers(repo)
    folder.remove_files([*upkeep.graph_leftovers(repo), *(upkeep.orphans(repo) - known_orphans)])


def _explained(failure: Failure) -> Failure:
    if failure.message.startswith("git did not end within"):
        return replace(failure, hint=failure.hint or "maintenance.time_limit can be raised")
    return failure


def _damage(repo: Path, words: Sequence[str], found: Completed) -> Failure:
    stdout = found.stdout[:SHOWN_OUTPUT_BYTES].decode("utf-8", "replace")
    lines = [line for line in (*found.stderr.splitlines(), *stdout.splitlines()) if _COMPLAINT.match(line)]
    first = lines[0].strip().replace(f"{repo}/", "")[:300] if lines else f"fsck ended with {found.returncode}"
    return Failure(
        FailureKind.UNKNOWN,
        f"the mirror here is damaged: {first}",
        hint="it is replaced by a fresh clone; check the disk if this happens again",
        git_command=f"git {' '.join(words)}",
        stdout=stdout,
        stderr=found.stderr,
        corrupt=True,
    )
