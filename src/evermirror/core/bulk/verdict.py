"""What an order means for one repo, as it and its pull project are now."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from evermirror.model.bulk import BulkAction, BulkWish
from evermirror.model.pull import Project
from evermirror.model.repo import RepoRecord, RepoStatus

_TROUBLED = frozenset({RepoStatus.FAILING, RepoStatus.GONE, RepoStatus.AUTH})


class Plain(Enum):
    ACT = "act"
    NOTHING = "nothing"  # it is so already


@dataclass(frozen=True, slots=True)
class Refused:
    """It cannot be, and what to do; the repo's name goes before."""

    why: str


Verdict = Plain | Refused


def verdict(wish: BulkWish, record: RepoRecord, project: Project | None) -> Verdict:
    match wish.action:
        case BulkAction.SYNC:
            return _may_look(record, project)
        case BulkAction.RETRY:
            return _may_look(record, project) if is_failing(record, project) else Plain.NOTHING
        case BulkAction.RESET:
            return _reset(record, project)
        case BulkAction.PAUSE:
            return _act_if(record.enabled)
        case BulkAction.RESUME:
            return _act_if(not record.enabled)
        case BulkAction.PRIORITY:
            return _act_if(record.spec.priority is not wish.priority)


def is_failing(record: RepoRecord, project: Project | None) -> bool:
    """Whether the last look at it went wrong, or the last push of its project. One that is paused does not
    fail: nobody looks."""
    if not record.enabled:
        return False
    if record.consecutive_failures or record.status in _TROUBLED:
        return True
    return project is not None and _has_failures(project)


def _has_failures(project: Project) -> bool:
    return bool(project.failures or project.paused or any(t.failures or t.paused for t in project.targets))


def _is_put_aside(project: Project) -> bool:
    """By a person, whose word stands; one that paused itself says why."""
    return not project.config.enabled and not project.paused


def _reset(record: RepoRecord, project: Project | None) -> Verdict:
    if not record.enabled:
        return Refused("is paused: resume it first")
    if project is not None and _is_put_aside(project):
        return Plain.NOTHING
    return _act_if(is_failing(record, project))


def _may_look(record: RepoRecord, project: Project | None) -> Verdict:
    if not record.enabled:
        return Refused("is paused: resume it first")
    if project is not None and _is_put_aside(project):
        return Refused("is a pull project that a person disabled: enable it first")
    if project is not None and not project.config.enabled:
        return Refused(f"is a pull project that is disabled by itself ({project.paused}): reset it first")
    return Plain.ACT


def _act_if(needed: bool) -> Verdict:
    return Plain.ACT if needed else Plain.NOTHING
