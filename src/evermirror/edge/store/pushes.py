"""When a repo was pushed to, by the tasks that found its mirror another than before.

A clone is no push, whoever made it, nor is what only a target got. Both are known by how a task's result
begins, in which a name that occurs in a text cannot look like this, as its quotes are escaped there.

One push may leave several tasks: one for each that waited for its sync, and one for each worker that holds
the repo. In the order in which these began to look, upstream was the same for all of them: neighbours with
the same digest are one push, and who found it first tells it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.edge.store import rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.part import StorePart
from evermirror.edge.store.tables import tasks
from evermirror.edge.store.tasks import OPEN
from evermirror.edge.store.whole import whole
from evermirror.model.figures import PushDay, PushHistory, PushSeen
from evermirror.model.repo import RepoKey
from evermirror.model.report import DAY_S

TASKS_MAX = 5_000  # of a repo, the newest: older ones are not looked through, whatever they are
RECENT_MAX = 100

# {"digest":"…","head_commit":"…","refs_count":…,"first":false,"changes":[],"changes_total":0, and no more
_HEAD = sa.func.substr(tasks.c.result, 1, 300)
_REFS_MOVED = sa.and_(
    tasks.c.has_changes,
    _HEAD.like('{"digest":"%"first":false,"changes":[%'),
    _HEAD.not_like('%"changes":[],"changes_total":0,%'),
)


class PushStore(StorePart):
    async def pushes(self, repo: RepoKey, begin: float) -> PushHistory:
        """Of one repo since ``begin``; ``since`` is None where no task of anybody is kept."""
        return await whole(_pushes(self._db, repo, begin))


@dataclass(frozen=True, slots=True)
class _Found:
    """A task that found refs moved."""

    id: int
    began: float
    at: float
    commits: int
    digest: str


async def _pushes(db: Database, repo: RepoKey, begin: float) -> PushHistory:
    if not rows.storable(repo):
        return PushHistory((), (), None)
    kept = sa.select(tasks.c.updated_at).where(sa.not_(OPEN)).order_by(tasks.c.updated_at).limit(1)
    async with db.read() as c:
        first, since = await _oldest_looked_at(c, repo)
        these = (tasks.c.repo == repo, tasks.c.id >= first, tasks.c.completed_at >= begin, _REFS_MOVED)
        columns = (tasks.c.id, tasks.c.started_at, tasks.c.completed_at, tasks.c.changes_count, _HEAD)
        found = await c.execute(sa.select(*columns).where(*these))
        pushes = _told_once(
            _Found(task_id, began, at, commits, head.split('"', 4)[3])
            for task_id, began, at, commits, head in found
        )
        recent = await _seen(c, pushes[:RECENT_MAX])
        known = (await c.execute(kept)).scalar_one_or_none()
    return PushHistory(_by_day(pushes), recent, known if since is None else max(since, known or since))


async def _oldest_looked_at(c: AsyncConnection, repo: RepoKey) -> tuple[int, float | None]:
    """Its id, and when it ended; None: there are no older ones."""
    newest = sa.select(tasks.c.id, tasks.c.updated_at).where(tasks.c.repo == repo).order_by(tasks.c.id.desc())
    last = (await c.execute(newest.offset(TASKS_MAX - 1).limit(2))).all()
    return (last[0].id, last[0].updated_at) if len(last) > 1 else (0, None)


def _told_once(found: Iterable[_Found]) -> list[_Found]:
    """Newest first."""
    in_order = sorted(found, key=lambda f: (f.began, f.id))
    same = groupby(in_order, key=lambda f: f.digest)
    pushes = [min(tasks_of_one, key=lambda f: f.at) for _, tasks_of_one in same]
    return sorted(pushes, key=lambda f: (f.at, f.id), reverse=True)


async def _seen(c: AsyncConnection, pushes: Sequence[_Found]) -> tuple[PushSeen, ...]:
    these = tasks.c.id.in_([push.id for push in pushes])
    told = await c.execute(sa.select(tasks.c.id, tasks.c.result).where(these))
    refs = {task_id: rows.json_out(result)["changes_total"] for task_id, result in told}
    return tuple(PushSeen(push.at, push.commits, refs[push.id]) for push in pushes)


def _by_day(pushes: Iterable[_Found]) -> tuple[PushDay, ...]:
    count, commits = Counter[int](), Counter[int]()
    for push in pushes:
        day = int(push.at // DAY_S)
        count[day] += 1
        commits[day] += push.commits
    return tuple(PushDay(day, count[day], commits[day]) for day in sorted(count))
