"""Which alerts stand, by the facts of this moment, and what has changed since the last look.

| rule                                              | level                                    |
|---------------------------------------------------|------------------------------------------|
| a project failed 3 times in a row                 | warning; error once it is paused for it  |
| one kind of error occurred 10 times in an hour    | error                                    |
| more than 5 % of all projects are failed          | critical                                 |

An alert is what it is about, not what it says: one that stands is not told again, however its figures change,
unless it became more serious; when it no longer stands, its end is told, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from evermirror.model.failure import FailureKind
from evermirror.model.figures import ClassProgress, KindCount
from evermirror.model.pull import Level as Level
from evermirror.model.pull import Project

MESSAGE_MAX_CHARS = 200  # of an error's own words in an alert
EVERYTHING = "all"  # what the failure rate is about


@dataclass(frozen=True, slots=True)
class Alert:
    """``kind`` and ``about`` say which one it is; level and text may change while it stands."""

    kind: str  # "project-failing", "error-kind", "failure-rate"
    about: str
    level: Level
    text: str

    @property
    def identity(self) -> tuple[str, str]:
        return self.kind, self.about


@dataclass(frozen=True, slots=True)
class Rules:
    """From when on something is worth an alert."""

    failures_in_a_row: int = 3
    errors_of_a_kind: int = 10
    window_s: float = 3600.0  # that errors of a kind are counted in
    failure_rate: float = 0.05  # more than this share of all projects


@dataclass(frozen=True, slots=True)
class Facts:
    """``failing``: projects with failures in a row (others may be among them). ``errors``: of the last
    ``window_s``. ``overall``: all projects."""

    failing: Sequence[Project]
    errors: Mapping[FailureKind, KindCount]
    overall: ClassProgress


@dataclass(frozen=True, slots=True)
class AlertChanges:
    """What to tell: the most serious first."""

    raised: tuple[Alert, ...] = field(default=())
    over: tuple[Alert, ...] = field(default=())  # as they last stood


def standing(facts: Facts, rules: Rules) -> tuple[Alert, ...]:
    """Every alert that the facts call for, the most serious first."""
    alerts = [*_of_projects(facts, rules), *_of_kinds(facts, rules), *_of_rate(facts, rules)]
    return _serious_first(alerts)


def changes(before: Iterable[Alert], after: Iterable[Alert]) -> AlertChanges:
    """From one look to the next."""
    stood = {alert.identity: alert for alert in before}
    stands = {alert.identity: alert for alert in after}
    raised = (a for i, a in stands.items() if i not in stood or a.level.rank > stood[i].level.rank)
    over = (a for i, a in stood.items() if i not in stands)
    return AlertChanges(_serious_first(raised), _serious_first(over))


def _serious_first(alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    return tuple(sorted(alerts, key=lambda a: (-a.level.rank, a.kind, a.about)))


def _of_projects(facts: Facts, rules: Rules) -> Iterator[Alert]:
    for project in facts.failing:
        if project.failures >= rules.failures_in_a_row:
            level = Level.ERROR if project.paused else Level.WARNING
            yield Alert("project-failing", project.name, level, _failing(project))


def _failing(project: Project) -> str:
    text = f"{project.name} failed {project.failures} times in a row"
    if project.last_failure is not None:
        words = " ".join(project.last_failure.message.split())[:MESSAGE_MAX_CHARS]
        text += f": {project.last_failure.kind.value}, {words}"
    if project.paused:
        text += f"; it is paused until a person resets it ({project.paused})"
    return text


def _of_kinds(facts: Facts, rules: Rules) -> Iterator[Alert]:
    for kind, found in facts.errors.items():
        if found.count >= rules.errors_of_a_kind:
            minutes, projects = rules.window_s / 60, found.affected_projects
            text = (
                f"{kind.value} occurred {found.count} times in the last {minutes:g} minutes, "
                f"in {projects} project{'' if projects == 1 else 's'}"
            )
            yield Alert("error-kind", kind.value, Level.ERROR, text)


def _of_rate(facts: Facts, rules: Rules) -> Iterator[Alert]:
    failed, total = facts.overall.failed, facts.overall.total
    if total and failed / total > rules.failure_rate:
        text = f"{failed} of {total} projects are failed: {failed / total:.1%}"
        yield Alert("failure-rate", EVERYTHING, Level.CRITICAL, text)
