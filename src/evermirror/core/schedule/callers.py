"""Who waits for which repo: requests merge, and every caller gets exactly one answer.

              ask                 started                ended
    (nobody) -----> queued callers -------> running callers -----> answered
                      ^     ask while it runs: queued again, one more run follows
                      +------------------------------------------+

Rules
- A request for a repo whose poll has not begun joins those who wait for it.
- One that comes while the poll or sync runs waits for a run of its own: the running one may have looked too
  early.
- One who asked before the repo was assigned may join a first clone that began since (``join``).
- A poll that begins again at another address takes those along who came meanwhile.
- So there is at most one running and one queued round per repo, each with any number of callers, up to a
  bound.
- The same task asked for twice (a command that was sent again) is one caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId

# Per repo and round: who asks a thousand times for the same repo has an error in their script.
CALLERS_MAX = 1000


class Asked(Enum):
    """What became of a request."""

    NEW = "new"  # the first for its round
    MERGED = "merged"  # others already wait for the same
    KNOWN = "known"  # this very task waits already
    REFUSED = "refused"  # too many wait for this repo


@dataclass(frozen=True, slots=True)
class Round:
    """A round that ended: who is answered by it, and whether another must follow."""

    answered: tuple[TaskId, ...]
    again: bool


class Callers:
    """``ask``, ``started``, ``ended``; ``dropped`` when the repo is taken away."""

    __slots__ = ("_queued", "_running")

    def __init__(self) -> None:
        self._queued: dict[RepoKey, dict[TaskId, None]] = {}  # dicts keep the order of arrival
        self._running: dict[RepoKey, dict[TaskId, None]] = {}

    def ask(self, key: RepoKey, task_id: TaskId) -> Asked:
        """A caller wants the repo looked at, from now on."""
        queued = self._queued.get(key)
        if task_id in self._running.get(key, ()) or (queued is not None and task_id in queued):
            return Asked.KNOWN
        if queued is None:
            self._queued[key] = {task_id: None}
            return Asked.NEW
        if len(queued) >= CALLERS_MAX:
            return Asked.REFUSED
        queued[task_id] = None
        return Asked.MERGED

    def join(self, key: RepoKey, task_id: TaskId) -> Asked:
        """A caller for whom the run that is under way has certainly not looked too early."""
        running = self._running.get(key, {})
        if task_id in running or task_id in self._queued.get(key, ()):
            return Asked.KNOWN
        if len(running) >= CALLERS_MAX:
            return Asked.REFUSED
        self._running[key] = running | {task_id: None}
        return Asked.MERGED

    def started(self, key: RepoKey) -> tuple[TaskId, ...]:
        """A poll of the repo begins, asked for or not; returns those whose round this is."""
        if key in self._running:
            raise ValueError(f"{key} runs already")
        running = self._queued.pop(key, {})
        if running:
            self._running[key] = running
        return tuple(running)

    def put_off(self, key: RepoKey) -> None:
        """The poll saw nothing and begins again elsewhere: whoever asked meanwhile has come in time."""
        running = self._running.pop(key, {})
        if running:
            self._queued[key] = running | self._queued.get(key, {})

    def running(self, key: RepoKey) -> tuple[TaskId, ...]:
        """Those whose round is under way, to be told of its progress."""
        return tuple(self._running.get(key, ()))

    def ended(self, key: RepoKey) -> Round:
        """The round is over: poll without change, sync done, or failure."""
        return Round(tuple(self._running.pop(key, ())), key in self._queued)

    def dropped(self, key: RepoKey) -> tuple[TaskId, ...]:
        """The repo is no longer ours: all who wait for it, to be told so."""
        return tuple(self._running.pop(key, ())) + tuple(self._queued.pop(key, ()))
