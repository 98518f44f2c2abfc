"""Nobody is started much later than it was due, apart from what its class, the source or a crash excuse."""

from __future__ import annotations

from evermirror.model.pull import Project
from evermirror.model.repo import Priority
from evermirror.sim.pull.store import OpenRow
from evermirror.sim.pull.truth import Broken, Truth

TICK_S = 60.0
BOUNDS_S = {  # from its time until it is started, while its class may run
    Priority.CRITICAL.rank: 60.0,
    Priority.HIGH.rank: 180.0,
    Priority.NORMAL.rank: 900.0,
    Priority.LOW.rank: 1800.0,
}
TASK_MAX_S = 3600.0  # no task is open for longer than this and its excuses
OVERLOADED = 0.8  # others keep so much of the source busy that everything takes many times as long
SLOW_SHARE = 0.8  # of that time is excused
BOOT_S = 120.0  # given to what waited for the coordinator
BACKLOG_S = 900.0  # given to what waited while its class might not run


class Punctual:
    """Excused time is added up for each class, minute by minute: what is late is late beyond it.

    ``cron_s``: the schedule wakes by a cron only, so far apart."""

    def __init__(self, truth: Truth, began_at: float, warm_up_s: float, cron_s: float) -> None:
        self._truth = truth
        self._bounds_s = {rank: bound_s + cron_s for rank, bound_s in BOUNDS_S.items()}
        self._began_at = began_at
        self._warm_until = began_at + warm_up_s
        self._excused_s: dict[int, list[float]] = {rank: [0.0] for rank in BOUNDS_S}
        self._busy_until = dict.fromkeys(BOUNDS_S, began_at)
        self._slow_until = began_at
        self.latest_s = dict.fromkeys(BOUNDS_S, 0.0)

    def tick(self, now: float, weather: bool) -> None:
        """Every minute; ``weather``: the source excuses everybody."""
        truth = self._truth
        for rank, added in self._excused_s.items():
            if not truth.may_run(rank, now):
                self._busy_until[rank] = now + BACKLOG_S
            excused = truth.away or weather or now < self._warm_until or now < self._busy_until[rank]
            added.append(added[-1] + TICK_S * (1.0 if excused else self._slow_share(now)))
        if truth.away:
            return
        running = {row.key for row in truth.store.open.values()}
        for project in truth.store.projects.values():
            if project.next_sync_at < now and project.config.enabled and project.key not in running:
                self._look_at(project, now)
        for row in truth.store.open.values():
            self._look_at_task(row, now)

    def opened(self, project: Project, now: float) -> None:
        """By the schedule; as it was before. Judged to the second where nothing is excused."""
        rank, due_at = self._truth.rank(project), project.next_sync_at
        late_s, added = now - due_at, self._excused_s[rank]
        if added[-1] == added[self._minute(due_at - TICK_S, added)] and not self._excuses(rank, now):
            self.latest_s[rank] = max(self.latest_s[rank], late_s)
            if late_s > self._bounds_s[rank]:
                raise Broken(f"{project.key} was started {late_s:.1f} s late: {project}")

    def _excuses(self, rank: int, now: float) -> bool:
        booting = self._truth.booted_at + BOOT_S
        return now < max(self._warm_until, self._busy_until[rank], self._slow_until, booting)

    def _slow_share(self, now: float) -> float:
        if self._truth.source.others >= OVERLOADED:
            self._slow_until = now + BACKLOG_S
        return SLOW_SHARE if now < self._slow_until else 0.0

    def _late_s(self, since: float, rank: int, now: float) -> float:
        added = self._excused_s[rank]
        return now - since - (added[-1] - added[self._minute(since, added)])

    def _minute(self, time: float, added: list[float]) -> int:
        return min(max(0, int((time - self._began_at) / TICK_S)), len(added) - 1)

    def _look_at(self, project: Project, now: float) -> None:
        rank = self._truth.rank(project)
        late_s = self._late_s(project.next_sync_at, rank, now)
        if late_s > self._bounds_s[rank] + 2 * TICK_S:
            raise Broken(f"{project.key} ({project.config.priority.value}) is {late_s:.0f} s late: {project}")

    def _look_at_task(self, row: OpenRow, now: float) -> None:
        rank = self._truth.rank(self._truth.store.projects[row.key])
        if self._late_s(row.opened_at, rank, now) > TASK_MAX_S:
            raise Broken(f"{row} has been open for {now - row.opened_at:.0f} s")
