"""Which alerts stand, by the facts of this moment. What that means for people is the book's (book.py).

| rule                                              | level    | over                                      |
|---------------------------------------------------|----------|-------------------------------------------|
| a project failed 3 times in a row                 | warning  | it was synced; or nobody wants it to be   |
| one kind of error occurred 10 times in an hour    | error    | fewer than 8 times                        |
| more than 5 % of all projects are failed, and     | critical | 4 % or less, or fewer than 2              |
| at least 3 of them                                |          |                                           |

The second and third carry the statistics of errors and name some of the projects. What goes up and down
around its bound is so told once. That a project is paused is told by another alert.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest

from evermirror.core.pull.layers import is_wanted
from evermirror.model.alert import Alert, Level
from evermirror.model.failure import FailureKind
from evermirror.model.figures import PROJECTS_NAMED, ClassProgress, KindCount
from evermirror.model.pull import Project

MESSAGE_MAX_CHARS = 200  # of an error's own words in an alert
NAME_MAX_CHARS = 100  # of a project's in an alert
EVERYTHING = "all"  # what the failure rate is about
EASED = 0.8  # what stands is over below this share of its bound
NEW_MAX = 2_000  # projects that begin to be told of at one look; further ones come at the next


@dataclass(frozen=True, slots=True)
class Rules:
    """From when on something is worth an alert."""

    failures_in_a_row: int = 3
    errors_of_a_kind: int = 10
    window_s: float = 3600.0  # that errors of a kind are counted in
    failure_rate: float = 0.05  # more than this share of all projects
    failed_min: int = 3  # and at least so many: of a few projects one is a large share


@dataclass(frozen=True, slots=True)
class Facts:
    """``failing``: projects with failures in a row (others may be among them). ``errors``: of the last
    ``window_s``. ``overall``: all projects. ``failed``: names of those that count as failed; ``affected``: of
    those that a kind of error affects; some of them where they are many."""

    failing: Sequence[Project]
    errors: Mapping[FailureKind, KindCount]
    overall: ClassProgress
    failed: Sequence[str] = ()
    affected: Mapping[FailureKind, Sequence[str]] = field(default_factory=dict)


def standing(
    facts: Facts, rules: Rules, stood: Collection[tuple[str, str]] = frozenset()
) -> tuple[Alert, ...]:
    """Every alert that the facts call for, the most serious first. ``stood``: identities of those before."""
    alerts = [
        *_of_projects(facts, rules, stood),
        *_of_kinds(facts, rules, stood),
        *_of_rate(facts, rules, stood),
    ]
    return _serious_first(alerts)


def _serious_first(alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    return tuple(sorted(alerts, key=lambda a: (-a.level.rank, a.kind, a.about)))


def _of_projects(facts: Facts, rules: Rules, stood: Collection[tuple[str, str]]) -> Iterator[Alert]:
    failing = [p for p in facts.failing if p.failures >= rules.failures_in_a_row and is_wanted(p)]
    known = [project for project in failing if ("project-failing", project.name) in stood]
    others = (project for project in failing if ("project-failing", project.name) not in stood)
    for project in (*known, *nsmallest(NEW_MAX, others, key=lambda project: project.name)):
        text, told = _failing(project)
        yield Alert("project-failing", project.name, text, facts=told)


def _failing(project: Project) -> tuple[str, Mapping[str, str]]:
    """In words, and the facts in them."""
    text = f"{project.name} failed {project.failures} times in a row"
    told = {"project": project.name, "failures": str(project.failures)}
    if project.last_failure is not None:
        words = " ".join(project.last_failure.message.split())[:MESSAGE_MAX_CHARS]
        told["reason"] = f"{project.last_failure.kind.value}, {words}"
        text += f": {told['reason']}"
    return text, told


def _of_kinds(facts: Facts, rules: Rules, stood: Collection[tuple[str, str]]) -> Iterator[Alert]:
    for kind, found in facts.errors.items():
        eased = EASED if ("error-kind", kind.value) in stood else 1.0
        if found.count >= rules.errors_of_a_kind * eased:
            minutes, projects = f"{rules.window_s / 60:g}", found.affected_projects
            text = (
                f"{kind.value} occurred {found.count} times in the last {minutes} minutes, "
                f"in {_projects(projects)}"
            )
            told = {"error": kind.value, "count": str(found.count), "minutes": minutes}
            told["projects"] = str(projects)
            told["errors"] = _statistics(facts.errors)
            if names := facts.affected.get(kind):
                told["affected"] = _some(names, projects)
                text += f": {told['affected']}"
            yield Alert("error-kind", kind.value, text, level=Level.ERROR, facts=told)


def _of_rate(facts: Facts, rules: Rules, stood: Collection[tuple[str, str]]) -> Iterator[Alert]:
    failed, total = facts.overall.failed, facts.overall.total
    before = ("failure-rate", EVERYTHING) in stood
    eased, least = (EASED, rules.failed_min - 1) if before else (1.0, rules.failed_min)
    if total and failed >= least and failed / total > rules.failure_rate * eased:
        percent = f"{failed / total:.1%}"
        text = f"{failed} of {total} projects are failed: {percent}"
        told = {"failed": str(failed), "total": str(total), "percent": percent}
        told["minutes"] = f"{rules.window_s / 60:g}"
        told["errors"] = _statistics(facts.errors) or "–"
        told["affected"] = _some(facts.failed, failed) or "–"
        text += (
            f"; affected: {told['affected']}; errors of the last {told['minutes']} minutes: {told['errors']}"
        )
        yield Alert("failure-rate", EVERYTHING, text, level=Level.CRITICAL, facts=told)


def _projects(count: int) -> str:
    return f"{count} project{'' if count == 1 else 's'}"


def _statistics(errors: Mapping[FailureKind, KindCount]) -> str:
    """``NETWORK_TIMEOUT 15× (8), AUTH_FAILED 3× (3)``: how often, and in how many projects."""
    return ", ".join(f"{kind.value} {one.count}× ({one.affected_projects})" for kind, one in errors.items())


def _some(names: Sequence[str], total: int) -> str:
    """``a, b, … (8)``: some of so many."""
    shown = [name if len(name) <= NAME_MAX_CHARS else f"{name[:NAME_MAX_CHARS]}…" for name in names]
    text = ", ".join(shown[:PROJECTS_NAMED])
    return text if total <= min(len(shown), PROJECTS_NAMED) else f"{text}, … ({total})"
