"""Sends a plan's changes to a target in commands of bounded length, and gathers what is said of each ref.

A hook that judges a whole push refuses every ref for the sake of one. Then the command is cut in halves, and
so on, within bounds, until that one stands alone with its reason and the others are through. Where both
halves are refused and much was sent by then, it is no single ref that is meant, and the search ends.

git compares each ref of a command with each that the target has, some million pairs a second, and is silent
meanwhile: the more refs are there, the fewer go in one command.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from evermirror.core.keep.guard import GuardSettings
from evermirror.core.push.plan import RefPush, batches, halves
from evermirror.core.push.settle import Told
from evermirror.edge.git.classify import MESSAGE_CHARS_MAX, classify_push
from evermirror.edge.git.command import SHOWN_OUTPUT_BYTES, Completed, Git
from evermirror.edge.git.environment import Remote
from evermirror.edge.git.progress import GitProgress, ProgressReader
from evermirror.edge.git.push_command import HOOK_REFUSED_ALL, push_args, read_porcelain, shown_command
from evermirror.model.failure import OURS, Failure, FailureError, FailureKind
from evermirror.model.printable import one_line
from evermirror.model.push import VisibilityRule
from evermirror.model.url import UrlRules

PAIRS_MAX = 20_000_000  # of a ref to be pushed and one that is there, in one command: about 20 s
PAIRS_PER_S = 200_000  # waited for: a busy machine is five times slower than ours (1.2 million)
BATCH_REFS_MIN = 10
_REMOTE_PROGRESS = re.compile(r"[A-Z][A-Za-z ]{2,40}: +\d")


@dataclass(frozen=True, slots=True)
class PushSettings:
    """What the operator decides about pushes. Durations are seconds, sizes bytes."""

    rules: UrlRules = field(default_factory=UrlRules)  # which URLs may be targets
    guard: GuardSettings = field(default_factory=GuardSettings)  # how much may vanish at once
    batch_refs: int = 500
    batch_bytes: int = 100_000  # of a command line; Linux takes 2 MB, the environment included
    silence_s: float = 300.0
    batch_s: float = 6 * 3600.0  # a target that takes a little now and then does not hold us up for ever
    whole_s: float = 24 * 3600.0  # of all commands of one push
    splits_max: int = 60  # commands more than planned, where hooks refuse
    in_vain_bytes: int = 10_000_000  # sent for nothing: from here on it is a cost
    lock_wait_s: float = 60.0
    ca_file: Path | None = None  # for the forges' APIs, as git has it in its own settings
    visibility: VisibilityRule = VisibilityRule.HOLD
    public_targets: tuple[str, ...] = ()  # that may be more visible than their sources


@dataclass(slots=True)
class Sending:
    """One push under way. ``refs_there`` is how many the target has. ``begun`` names what a command was
    started for; ``failure`` ended it."""

    git: Git
    repo: Path
    remote: Remote
    settings: PushSettings
    lock_fd: int
    may_push: Callable[[], bool]
    progressed: Callable[[GitProgress], None]
    refs_there: int = 0
    told: dict[str, Told] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    sent_bytes: int = 0
    splits: int = 0
    in_vain_bytes: int = 0  # sent in commands of which nothing was taken
    failure: Failure | None = None
    declined: Completed | None = None  # the last command of which a ref was refused, in ``declined_command``
    declined_command: str = ""
    ends_at: float = field(init=False)  # by the loop's clock

    def __post_init__(self) -> None:
        self.ends_at = asyncio.get_running_loop().time() + self.settings.whole_s

    async def send(self, changes: Sequence[RefPush]) -> bool:
        """False where it makes no sense to go on; ``failure`` says why."""
        planned = batches(changes, self.refs_max, self.settings.batch_bytes)
        halved: deque[_Piece] = deque()
        while piece := halved.popleft() if halved else _piece(next(planned, ())):
            self.failure = self._ended()
            if self.failure is not None:
                return False
            told, self.failure = await self._push(piece.batch)
            if self.failure is None and self._to_be_split(piece, told):
                self.splits += 1
                # The second half first: mostly it is a main branch that was meant, and those come first. What
                # gets through takes the history along, so that the rest is small when it is sent again.
                refused: list[int] = []
                halved.extendleft(_Piece(half, refused) for half in halves(piece.batch))
                continue
            self.told |= told
            if self.failure is not None:
                return False
        return True

    @property
    def refs_max(self) -> int:
        """In one command."""
        bearable = max(BATCH_REFS_MIN, PAIRS_MAX // max(self.refs_there, 1))
        return min(self.settings.batch_refs, bearable)

    def _ended(self) -> Failure | None:
        """Why nothing more is to be sent."""
        if not self.may_push():
            return out_of_contact()
        return out_of_time(self.settings.whole_s) if self._left_s() <= 0 else None

    def _left_s(self) -> float:
        return self.ends_at - asyncio.get_running_loop().time()

    def _to_be_split(self, piece: _Piece, told: dict[str, Told]) -> bool:
        if not _refused_by_one_hook(piece.batch, told):
            return False
        piece.refused.append(len(piece.batch))
        if len(piece.refused) > 1 and self.in_vain_bytes > self.settings.in_vain_bytes:
            self.splits = self.settings.splits_max
        return self.splits < self.settings.splits_max and len(piece.batch) > 1

    async def _push(self, batch: Sequence[RefPush]) -> tuple[dict[str, Told], Failure | None]:
        """What was said of each ref; and why the command as a whole failed, where it did."""
        self.begun.update(change.name for change in batch)
        before = self.sent_bytes
        try:
            done = await self.git.run(
                push_args(self.remote.url, batch),
                repo=self.repo,
                remote=self.remote,
                on_stderr=self._listener(),
                no_progress_s=self.settings.silence_s + len(batch) * self.refs_there / PAIRS_PER_S,
                timeout_s=min(self.settings.batch_s, max(self._left_s(), 0.0)),
                keep_fds=(self.lock_fd,),
                check=False,
            )
        except FailureError as error:
            return {}, replace(error.failure, git_command=shown_command(self.remote.url, batch))
        clean = self.git.credentials.redactor.clean
        told = {n: replace(t, reason=clean(t.reason)) for n, t in read_porcelain(done.stdout).items()}
        if not any(t.ok for t in told.values()):
            self.in_vain_bytes += self.sent_bytes - before
            costly = self.sent_bytes - before > self.settings.in_vain_bytes
            told = {n: replace(t, in_vain=costly) for n, t in told.items()}
        if _refused_by_one_hook(batch, told):
            failure = classify_push(done.returncode, done.stderr, url=self.remote.url)
            if failure.kind is FailureKind.PERMISSION_DENIED:
                return told, self._failed(failure, batch, done)
        if not all(t.ok for t in told.values()):
            self.declined, self.declined_command = done, shown_command(self.remote.url, batch)
        if all(change.name in told for change in batch):
            return _with_words(told, done.stderr) if len(batch) == 1 else told, None
        return told, self._failed(
            classify_push(done.returncode, done.stderr, url=self.remote.url), batch, done
        )

    def _failed(self, failure: Failure, batch: Sequence[RefPush], done: Completed) -> Failure:
        return self._with_output(failure, shown_command(self.remote.url, batch), done)

    def with_declined(self, failure: Failure) -> Failure:
        """``failure``, which is about refs that were refused, with the command that they were sent by."""
        if self.declined is None or failure.git_command:
            return failure
        return self._with_output(failure, self.declined_command, self.declined)

    def _with_output(self, failure: Failure, command: str, done: Completed) -> Failure:
        stdout, stderr = self.git.shown(done.stdout), done.stderr[-SHOWN_OUTPUT_BYTES:]
        return replace(failure, git_command=command, stdout=stdout, stderr=stderr)

    def _listener(self) -> Callable[[bytes], None]:
        reader, before = ProgressReader(), self.sent_bytes

        def listen(data: bytes) -> None:
            if not self.may_push():
                raise FailureError(out_of_contact())  # which ends that git
            steps = reader.feed(data)
            self.sent_bytes = before + reader.received_bytes
            if steps:
                self.progressed(GitProgress(steps[-1].phase, steps[-1].percent, self.sent_bytes))

        return listen


@dataclass(frozen=True, slots=True)
class _Piece:
    """One command's changes. ``refused`` has an entry for each half of the same split that was refused."""

    batch: tuple[RefPush, ...]
    refused: list[int]


def _piece(batch: tuple[RefPush, ...]) -> _Piece | None:
    return _Piece(batch, []) if batch else None


def out_of_contact() -> Failure:
    """Who does not hear its coordinator may not be the one who is to push any more."""
    return Failure(
        FailureKind.NETWORK_TIMEOUT,
        "not pushed: this worker has not heard its coordinator for too long",
        hint="it is pushed once they hear each other again",
        context={OURS: "contact"},
    )


def out_of_time(whole_s: float) -> Failure:
    """A target that takes its time with every command does not hold up the others of the repo for ever."""
    return Failure(
        FailureKind.NETWORK_TIMEOUT,
        f"the push did not end within {whole_s:g} s",
        hint="the next one goes on where this one ended",
    )


def _refused_by_one_hook(batch: Sequence[RefPush], told: dict[str, Told]) -> bool:
    return all(HOOK_REFUSED_ALL in told[c.name].reason if c.name in told else False for c in batch)


def _with_words(told: dict[str, Told], stderr: str) -> dict[str, Told]:
    """What the target says beside a refusal of one ref is about that ref."""
    lines = [
        line.removeprefix("remote: ").strip()
        for line in re.split(r"[\r\n]+", stderr)
        if line.startswith("remote: ")
    ]
    words = " ".join(line for line in lines if line and not _REMOTE_PROGRESS.match(line))
    if not words:
        return told
    return {
        name: one if one.ok else replace(one, reason=one_line(f"{one.reason}: {words}")[:MESSAGE_CHARS_MAX])
        for name, one in told.items()
    }
