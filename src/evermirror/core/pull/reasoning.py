"""When a project is pulled next, and why then, as steps; and what a task that was asked for waits for. Reads
only.

    project ─▶ peak ─▶ last_poll ─▶ due | backoff ─▶ weather ─▶ window ─▶ budget

The time is the project's own ``next_sync_at``, as the queue has it; what keeps it from being started then
(its host, the hours of its class, the limit) comes after.
"""

from __future__ import annotations

from dataclasses import dataclass

from evermirror.core.pull.pace import Pace
from evermirror.core.pull.retry import effective_rank
from evermirror.core.pull.settings import PullSettings
from evermirror.core.pull.sources import Sources
from evermirror.core.pull.strategy import by_window
from evermirror.core.pull.stretched import Stretched
from evermirror.core.pull.tracked import Tracked
from evermirror.core.schedule.trail import Trail
from evermirror.model.plan import PollPlan, StepCode
from evermirror.model.pull import Wait, WaitReason

POLICY = "pull"
_GAPS = (StepCode.PROJECT, StepCode.PEAK)  # steps that say how often


@dataclass(frozen=True, slots=True)
class Grounds:
    """What all projects have in common; ``running`` counts those that run."""

    settings: PullSettings
    pace: Pace
    sources: Sources
    stretched: Stretched
    running: int
    now: float


def plan_of(tracked: Tracked, grounds: Grounds) -> PollPlan:
    """What is told of one project."""
    trail, project = Trail(), tracked.project
    if tracked.runs:
        trail.stop(StepCode.RUNNING, "is being pulled")
    elif tracked.batch_waiting() is not None:
        trail.move(StepCode.ASKED, grounds.now, "was asked for")
        _asked(tracked, grounds, trail)
    elif not project.config.enabled or not grounds.pace.strategy.enabled:
        whose = "it is disabled" if not project.config.enabled else "the schedule of all pulls is off"
        trail.stop(StepCode.DISABLED, whose)
    else:
        _when(tracked, grounds, trail)
    steps = tuple(trail.steps)
    gap_s = next((step.s for step in reversed(steps) if step.code in _GAPS), project.config.interval_s)
    last_at = project.last_sync_at
    return PollPlan(trail.at, trail.reason, gap_s, last_at, policy=POLICY, steps=steps)


def _asked(tracked: Tracked, grounds: Grounds, trail: Trail) -> None:
    wait = wait_of(tracked, grounds)
    if wait is None:
        return
    if wait.until is not None:
        code = StepCode.WINDOW if wait.reason is WaitReason.PEAK else StepCode.WEATHER
        trail.move(code, wait.until, wait.text)
    else:
        trail.note(StepCode.BUDGET, None, wait.text)
        trail.reason = f"was asked for; {wait.text}"


def _when(tracked: Tracked, grounds: Grounds, trail: Trail) -> None:
    project, now = tracked.project, grounds.now
    interval_s = project.config.interval_s
    trail.note(StepCode.PROJECT, interval_s, "pulled in its own interval")
    if grounds.stretched.holds(project):
        stretched_s = interval_s * grounds.settings.stretch
        trail.note(StepCode.PEAK, stretched_s, "stretched while its source was under load")
    if project.last_sync_at is not None:
        trail.note(StepCode.LAST_POLL, None, "the last pull", at=project.last_sync_at)
    at = max(now, project.next_sync_at)
    if project.failures:
        trail.move(StepCode.BACKOFF, at, f"after {project.failures} failures in a row")
    else:
        trail.move(StepCode.DUE, at, "its interval")
    until = grounds.sources.closed_until(tracked.host, now)
    if until is not None and until > at:
        trail.move(StepCode.WEATHER, until, "its source fails for all, or asked us to wait")
    _window(tracked, grounds, trail)
    _limit(tracked, grounds, trail)


def _window(tracked: Tracked, grounds: Grounds, trail: Trail) -> None:
    """Hours in which its class does not run."""
    at = trail.at or grounds.now
    hours = grounds.pace.hours(at)
    if _rank(tracked, grounds) not in by_window(grounds.pace.strategy, hours).ranks:
        until = grounds.pace.peak_ends(at)
        if until is None:
            trail.stop(StepCode.WINDOW, "its class is not pulled in peak hours, which never end")
        else:
            trail.move(StepCode.WINDOW, until, "its class is not pulled in peak hours")


def _limit(tracked: Tracked, grounds: Grounds, trail: Trail) -> None:
    """Of one that is due now: nobody can say when there is room."""
    if trail.at is None or trail.at > grounds.now:
        return
    allowed = grounds.pace.allowance(grounds.now)
    if _rank(tracked, grounds) not in allowed.ranks:
        trail.note(StepCode.BUDGET, None, f"its class waits: {allowed.why}")
    elif grounds.running >= allowed.limit:
        trail.note(StepCode.BUDGET, None, f"{grounds.running} run, and no more may: {allowed.why}")


def _rank(tracked: Tracked, grounds: Grounds) -> int:
    return effective_rank(tracked.project, grounds.settings.demote_after)


# What a task that was asked for waits for


def wait_of(tracked: Tracked, grounds: Grounds) -> Wait | None:
    """None: nothing waits, or it begins at once."""
    if tracked.runs or not tracked.tasks:
        return None
    if tracked.batch_waiting() is None:
        return Wait(WaitReason.WORKER, "waits for a worker that can do it")
    by_class = class_wait(tracked.rank, grounds)
    if by_class is not None:
        return by_class
    now, pace, sources = grounds.now, grounds.pace, grounds.sources
    until = sources.closed_until(tracked.host, now)
    if until is not None:
        clock = pace.clock(until)
        text = f"waits until {clock}: its source fails for all, or asked us to wait"
        return Wait(WaitReason.SOURCE, text, until, clock)
    limit = pace.allowance(now).limit
    if grounds.running >= limit or not sources.has_room(tracked.host, now):
        return Wait(WaitReason.ROOM, f"waits for room: {grounds.running} of {limit} run")
    return None


def class_wait(rank: int, grounds: Grounds) -> Wait | None:
    """What keeps a whole class from running now."""
    now, pace = grounds.now, grounds.pace
    window = by_window(pace.strategy, pace.hours(now))
    if rank not in window.ranks:
        until = pace.peak_ends(now)
        clock = "" if until is None else pace.clock(until)
        then = f" until {clock}" if clock else ""
        who = " and ".join(p.value for p in window.classes)
        return Wait(WaitReason.PEAK, f"waits{then}: only {who} run in peak hours", until, clock)
    if rank not in pace.allowance(now).ranks:
        load = pace.load(now)
        why = f": {load.reason}" if load is not None and load.reason else ""
        return Wait(WaitReason.LOAD, f"waits while the source is under load{why}")
    return None
