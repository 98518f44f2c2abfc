"""Tasks that want a commit, and are looked at again until it is there or their time is over.

Whoever wants the same commit of the same repo shares one search, which goes on as long as the most patient of
them waits: what it finds is true for all, whenever they came. Each costs its upstream a look every few
seconds, so there are only so many at once; who comes then is told so, and may have one look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from evermirror.core.schedule.search import Search
from evermirror.errors import Unavailable
from evermirror.model.failure import MISSING_COMMIT, Failure, FailureKind
from evermirror.model.messages import Refused
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId, TaskRecord
from evermirror.nodes.coordinator.tasks.submission import asked_of, sought

SEARCHES_MAX = 1_000  # at once, over all repos: some 60 looks a second
SEARCHES_OF_REPO = 16  # at once, each for another commit, or in other words

_Wish = frozenset[tuple[str, object]]  # what is asked for, however long


@dataclass(slots=True)
class _Open:
    task: TaskRecord
    search: Search
    over: bool = False  # the last look was in vain; its end is being stored


class Searches:
    """Those that are not ended."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[TaskId, _Open] = {}
        self._newest: dict[RepoKey, dict[_Wish, TaskId]] = {}
        self._coming: Counter[RepoKey] = Counter()  # that are being stored

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def room(self, key: RepoKey, params: Mapping[str, object]) -> Iterator[None]:
        """While a task is made that asks for this. ``Unavailable`` where it is one search too many."""
        if sought(params)[1] <= 0:
            yield
            return
        there = len(self._newest.get(key, ())) + self._coming[key]
        if there >= SEARCHES_OF_REPO or len(self._open) + self._coming.total() >= SEARCHES_MAX:
            whose = f"{there} commits of {key}" if there >= SEARCHES_OF_REPO else f"{len(self._open)} commits"
            raise Unavailable(
                f"{whose} are already being waited for",
                hint="Ask again in a minute; or with `within: 0`: then one look decides",
            )
        self._coming[key] += 1
        try:
            yield
        finally:
            self._coming[key] -= 1
            if not self._coming[key]:
                del self._coming[key]

    def entered(self, task: TaskRecord) -> None:
        _, within_s = sought(asked_of(task))
        if within_s > 0:
            self._open[task.id] = _Open(task, Search(task.created_at, task.created_at + within_s))
            self._newest.setdefault(task.repo, {})[_wish(asked_of(task))] = task.id

    def ended(self, task_id: TaskId) -> None:
        one = self._open.pop(task_id, None)
        if one is None:
            return
        of_repo, wish = self._newest.get(one.task.repo, {}), _wish(asked_of(one.task))
        if of_repo.get(wish) == task_id:
            del of_repo[wish]
            if not of_repo:
                del self._newest[one.task.repo]

    def left(self, key: RepoKey) -> None:
        """Nobody joins what was asked for before the repo left the catalog."""
        self._newest.pop(key, None)

    def same(self, key: RepoKey, params: Mapping[str, object]) -> TaskRecord | None:
        """A search for the same that goes on."""
        if sought(params)[1] <= 0:
            return None
        task_id = self._newest.get(key, {}).get(_wish(params))
        one = self._open.get(task_id) if task_id is not None else None
        return one.task if one is not None and not one.over else None

    def joined(self, task_id: TaskId, params: Mapping[str, object]) -> None:
        """Somebody else wants the same from now on, for a time of their own."""
        one = self._open.get(task_id)
        if one is not None:
            one.search.joined(self._clock() + sought(params)[1])

    def next_look(self, task_id: TaskId) -> float | None:
        """When the commit that was just missed is looked for again; None: it was not asked for, or the time
        is over."""
        one = self._open.get(task_id)
        if one is None:
            return None
        at = one.search.missed(self._clock())
        one.over = at is None
        return at

    def overdue(self, now: float) -> Iterator[tuple[TaskId, Failure]]:
        """Those whose time is over, and what is said to those that nobody looks for by then."""
        for task_id, one in self._open.items():
            if now >= one.search.until:
                yield task_id, _unseen(one)

    def given_up(self, report: Refused) -> Refused:
        """The report of a search that is over, in words that say so."""
        searches = [self._open[i].search for i in report.task_ids if i in self._open]
        looks = max((search.looks for search in searches), default=0)
        if looks < 2:
            return report
        took = max(0.0, report.ended_at - min(search.since for search in searches))
        words = f"{report.failure.message}: {looks} looks in {took:.0f} s did not find it"
        return replace(report, failure=replace(report.failure, message=words))


def misses_commit(report: Refused) -> bool:
    """It says that a commit is not there."""
    return MISSING_COMMIT in report.failure.context


def _wish(params: Mapping[str, object]) -> _Wish:
    return frozenset((name, value) for name, value in params.items() if name != "within")


def _unseen(one: _Open) -> Failure:
    commit, search = sought(asked_of(one.task))[0], one.search
    within = f"{search.until - search.since:.0f} s"
    why = f"{search.looks} looks did not find it, and no worker was there for another"
    return Failure(
        FailureKind.NOT_FOUND,
        f"commit {commit} was not seen within {within}: {why if search.looks else 'no worker could look'}",
        hint="`evermirror workers` says who is there; ask again when one is",
        context={MISSING_COMMIT: commit},
    )
