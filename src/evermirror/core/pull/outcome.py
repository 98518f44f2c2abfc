"""What the end of a task means for its project: the tables of retry.py applied, and what people are told.

    end ──▶ each target that was tried ──▶ the project ──▶ alerts: what is different from before

Rules
- Failed without pushes: the source failed. Failed with pushes: every target that was tried did.
- A success, or a skip, resets the failures; not where a project has targets and none of them is well.
- A project is retried early where one of its targets is to be; a look that finds nothing new costs little.
- With all targets paused, at least one of them for good, the project is paused too.
- A person's word to overwrite a target (``adopt``) is used up by the next push that reached it and had been
  told of it, and void where it is paused.
- A failure of what began before a person said that it be tried anew counts for nothing, and pauses nothing.
- Trouble of our own (``Failure.ours``, a damaged mirror) and of the target's whole host (its ssh host key
  changed) counts against no target: it is tried again after the first delay. A credential that a worker lacks
  pauses nothing at once; people are told.
- Alerts follow from the difference between two states alone: so each is told once, and its end too,
  whatever led to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from evermirror.core.pull.events import TaskEnded
from evermirror.core.pull.layers import SOURCE_SAYS, has_left, is_wanted
from evermirror.core.pull.retry import SOURCE_RULES, Then, is_weather, retry_delay_s, target_rule
from evermirror.core.pull.settings import PullSettings
from evermirror.core.pull.silence import Silence
from evermirror.model.alert import Alert, Level
from evermirror.model.failure import CREDENTIAL, OURS, Failure, FailureKind
from evermirror.model.pull import Project, Target
from evermirror.model.push import Pushed, PushTo, TargetId
from evermirror.model.task import TaskStatus

WORDS_MAX_CHARS = 200  # of a failure's own words, where it is told in one line
PROBE_OTHERS_S = 60.0  # for another to be the host's next probe: one that always fails must not keep it shut
# The target's host is there, whatever it said.
_ANSWERS = frozenset(
    {
        FailureKind.AUTH_FAILED,
        FailureKind.NOT_FOUND,
        FailureKind.PERMISSION_DENIED,
        FailureKind.RATE_LIMITED,
    }
)
_UNTOLD = Failure(FailureKind.UNKNOWN, "nobody told why")


@dataclass(frozen=True, slots=True)
class Moment:
    """``interval_s``: the project's, as it is stretched now. ``host_until``: when its host may be asked
    again; None: it is open. ``renewed``: what a person wants tried anew since the sync began (tracked.py)."""

    now: float
    interval_s: float
    host_until: float | None = None
    renewed: frozenset[TargetId | None] = frozenset()


def conclude(
    project: Project, end: TaskEnded, moment: Moment, silence: Silence, settings: PullSettings
) -> Project:
    """The project after the end of a sync."""
    pushed, told = {push.target: push for push in end.pushes}, {to.target: to for to in end.told}
    counted = False
    targets = []
    for target in project.targets:
        if (push := pushed.get(target.id)) is not None:
            after, counts = _pushed(project, target, push, moment, silence, settings)
            anew = push.failure is not None and target.id in moment.renewed
            target = _still_said(target, after, told.get(target.id), anew=anew)
            counted |= counts and not anew
        targets.append(target)
    project = replace(project, targets=tuple(targets), last_status=end.status)
    if end.status is not TaskStatus.FAILED:
        return _succeeded(project, end, moment)
    failure = end.failure or _UNTOLD
    project = replace(project, last_failure=failure, last_failure_at=end.ended_at)
    if end.pushes:
        return _targets_failed(project, failure, counted, moment, settings)
    if None in moment.renewed:
        return project
    return _source_failed(project, failure, end.counted, moment, settings)


def excuse(project: Project, settings: PullSettings, count: int = 1) -> Project:
    """Its latest failures were its host's: as if they had not been."""
    failures = max(project.failures - count, 0)
    by_targets = project.targets and all(target.paused for target in project.targets)
    ours = project.paused and not has_left(project)
    if ours and not by_targets and failures < settings.pause_after:
        project = replace(project, paused="", config=replace(project.config, enabled=True))
    return replace(project, failures=failures)


def words(failure: Failure) -> str:
    """A failure in one line."""
    return f"{failure.kind.value}, {' '.join(failure.message.split())[:WORDS_MAX_CHARS]}"


# The project


def _succeeded(project: Project, end: TaskEnded, moment: Moment) -> Project:
    well = not project.targets or any(_is_well(target) for target in project.targets)
    return replace(
        project,
        last_sync_at=end.ended_at,
        failures=0 if well else project.failures,
        next_sync_at=min(project.next_sync_at, _targets_wish(project, moment.now)),
    )


def _source_failed(
    project: Project, failure: Failure, counted: bool, moment: Moment, settings: PullSettings
) -> Project:
    now, rule = moment.now, SOURCE_RULES[failure.kind]
    if is_weather(failure.kind, counted=counted):
        until = moment.host_until
        at = now + project.config.retry_delay_s if until is None else until + PROBE_OTHERS_S
        return replace(project, next_sync_at=at)
    if rule.then is Then.PAUSE and not failure.ours:
        return _gone(project, failure, moment, settings)
    if rule.counted:
        return _counted(project, failure, moment, settings)
    wait_s = project.config.retry_delay_s if rule.then is Then.FIRST_DELAY else moment.interval_s
    return replace(project, next_sync_at=now + wait_s)


def _gone(project: Project, failure: Failure, moment: Moment, settings: PullSettings) -> Project:
    """Its source is gone, or does not let us in."""
    if project.targets or project.source_credential:
        project = replace(project, failures=project.failures + 1)
        return _pause(project, f"{SOURCE_SAYS}{words(failure)}")
    return replace(
        project,
        failures=min(project.failures + 1, settings.pause_after - 1),
        next_sync_at=moment.now + max(moment.interval_s, settings.slow_s),
    )


def _targets_failed(
    project: Project, failure: Failure, counted: bool, moment: Moment, settings: PullSettings
) -> Project:
    if counted:
        project = _counted(project, failure, moment, settings)
    if project.targets and all(target.paused for target in project.targets):
        rules = [target_rule(target.last_failure) for target in project.targets if target.last_failure]
        if not project.paused and any(rule.then is Then.PAUSE for rule in rules):
            return _pause(project, f"all its targets are paused: {words(failure)}")
    return replace(project, next_sync_at=min(project.next_sync_at, _targets_wish(project, moment.now)))


def _counted(project: Project, failure: Failure, moment: Moment, settings: PullSettings) -> Project:
    failures = project.failures + 1
    wait_s = retry_delay_s(project.config, failures, moment.interval_s, settings.retry.backoff_multiplier)
    project = replace(project, failures=failures, next_sync_at=moment.now + wait_s)
    if failures >= settings.pause_after:
        return _pause(project, f"it failed {failures} times in a row: {words(failure)}")
    return project


def _pause(project: Project, why: str) -> Project:
    if not project.config.enabled:
        return project
    return replace(project, paused=why, config=replace(project.config, enabled=False))


# Targets


def _pushed(
    project: Project,
    target: Target,
    push: Pushed,
    moment: Moment,
    silence: Silence,
    settings: PullSettings,
) -> tuple[Target, bool]:
    """The target after a push, and whether it failed in a way that counts."""
    ended_at = push.ended_at or moment.now
    failure = push.failure
    target = replace(
        target,
        put=target.put if push.put is None else push.put,
        commit=target.commit if push.commit is None else push.commit,
    )
    if failure is None:
        if push.changed:  # else it may be known from our own files alone
            silence.succeeded(target.url)
        put_at = ended_at if push.changed or target.put_at is None else target.put_at
        return replace(target, put_at=put_at, failures=0, not_before=0.0, paused="", adopt=False), False
    target = replace(target, last_failure=failure, last_failure_at=ended_at)
    if push.changed or failure.kind is FailureKind.CONFLICT or failure.of_refs:
        target = replace(target, adopt=False)
    silent = False
    if _is_ours(failure):
        wait_s = project.config.retry_delay_s
        return replace(target, failures=max(target.failures, 1), not_before=moment.now + wait_s), False
    if failure.kind is FailureKind.NETWORK_TIMEOUT:
        silent = silence.failed(target.url, (project.key, target.id))
    elif failure.kind in _ANSWERS:
        silence.succeeded(target.url)
    return _target_failed(project, target, failure, moment, silent, settings)


def _target_failed(
    project: Project, target: Target, failure: Failure, moment: Moment, silent: bool, settings: PullSettings
) -> tuple[Target, bool]:
    now, rule, config = moment.now, target_rule(failure), project.config
    if rule.counted and not silent:
        failures = target.failures + 1
        wait_s = retry_delay_s(config, failures, moment.interval_s, settings.retry.backoff_multiplier)
        target = replace(target, failures=failures, not_before=now + wait_s)
        if rule.then is Then.PAUSE:
            target = replace(target, paused=words(failure), adopt=False)
        elif failures >= settings.pause_after:
            why = f"it failed {failures} times in a row: {words(failure)}"
            target = replace(target, paused=why, adopt=False)
        return target, True
    failures = max(target.failures, 1)
    wait_s = 0.0
    if silent:
        wait_s = retry_delay_s(config, failures, moment.interval_s, settings.retry.backoff_multiplier)
    elif rule.then is Then.FIRST_DELAY:
        wait_s = config.retry_delay_s if failure.retry_after_s is None else failure.retry_after_s
    return replace(target, failures=failures, not_before=now + wait_s if wait_s else 0.0), False


def _still_said(before: Target, after: Target, told: PushTo | None, *, anew: bool) -> Target:
    """``after`` with what people said of the target while the push was on its way."""
    if anew:
        after = replace(after, failures=before.failures, not_before=before.not_before, paused=before.paused)
    unheard = before.adopt and told is not None and not told.adopt
    return replace(after, adopt=True) if unheard else after


def _is_ours(failure: Failure) -> bool:
    return failure.ours or failure.corrupt or failure.host_wide


def _is_well(target: Target) -> bool:
    return not target.failures and not target.paused


def _targets_wish(project: Project, now: float) -> float:
    """When the first of its targets is to be tried again before the normal interval is over."""
    failing = (target for target in project.targets if target.failures and not target.paused)
    return min((target.not_before for target in failing if target.not_before > now), default=inf)


# What people are told


def unremarkable(project: Project) -> Project:
    """The same without anything to be told of."""
    return replace(project, failures=0, paused="", targets=())


def standing_alerts(projects: Iterable[Project], settings: PullSettings) -> Iterator[Alert]:
    """All that follow from how these are."""
    for project in projects:
        if project.failures or project.paused or any(map(is_noted, project.targets)):
            yield from alerts_between(unremarkable(project), project, settings)


def alerts_between(before: Project, after: Project, settings: PullSettings) -> Iterator[Alert]:
    """What is different for those who watch; one that has another name is told of anew."""
    if before.name != after.name:
        for alert in alerts_between(before, unremarkable(before), settings):
            yield replace(alert, text=f"{before.name} is called {after.name} now")
        before = unremarkable(after)
    name = after.name
    failing = (_is_failing(before, settings), _is_failing(after, settings))
    if failing == (False, True):
        text = f"{name} failed {after.failures} times in a row"
        facts = {"project": name, "failures": str(after.failures)}
        if after.last_failure is not None:
            facts["reason"] = words(after.last_failure)
            text += f": {facts['reason']}"
        yield Alert("project-failing", name, text, facts=facts)
    elif failing == (True, False):
        over = "no longer fails" if is_wanted(after) else "is disabled"
        yield Alert("project-failing", name, f"{name} {over}", over=True)
    in_trouble = (before.paused and not has_left(before), after.paused and not has_left(after))
    if in_trouble[1] and not in_trouble[0]:
        text = f"{name} is paused until a person resets it: {after.paused}"
        facts = {"project": name, "reason": after.paused}
        yield Alert("project-paused", name, text, level=Level.ERROR, facts=facts)
    elif in_trouble[0] and not in_trouble[1]:
        yield Alert("project-paused", name, f"{name} is no longer paused", over=True)
    yield from _target_alerts(before, after)


def _is_failing(project: Project, settings: PullSettings) -> bool:
    return project.failures >= settings.demote_after and is_wanted(project)


def _target_alerts(before: Project, after: Project) -> Iterator[Alert]:
    known = {target.id: target for target in before.targets}
    for target in after.targets:
        was = known.pop(target.id, None)
        about = f"{after.name} → {target.url}"
        if target.paused and not (was and was.paused):
            text = f"{target.url} is paused: {target.paused}"
            facts = {"target": target.url, "reason": target.paused}
            yield Alert("target-paused", about, text, level=Level.ERROR, facts=facts)
        elif was and was.paused and not target.paused:
            yield Alert("target-paused", about, f"{target.url} is no longer paused", over=True)
        for kind, (stands, text, over) in _TARGET_STANDS.items():
            if stands(target) and not (was and stands(was)) and target.last_failure is not None:
                facts = {"target": target.url, "reason": words(target.last_failure)}
                yield Alert(kind, about, f"{text.format(target.url)}: {facts['reason']}", facts=facts)
            elif was and stands(was) and not stands(target):
                yield Alert(kind, about, over.format(target.url), over=True)
    for target in known.values():
        about, text = f"{after.name} → {target.url}", f"{target.url} is no longer a target"
        if target.paused:
            yield Alert("target-paused", about, text, over=True)
        for kind, (stands, *_) in _TARGET_STANDS.items():
            if stands(target):
                yield Alert(kind, about, text, over=True)


def is_noted(target: Target) -> bool:
    """Whether an alert stands about it."""
    return bool(target.paused) or any(stands(target) for stands, *_ in _TARGET_STANDS.values())


def _in_conflict(target: Target) -> bool:
    failure = target.last_failure
    in_conflict = failure is not None and failure.kind is FailureKind.CONFLICT and not failure.exposes
    return bool(target.failures and in_conflict)


def _exposes(target: Target) -> bool:
    return bool(target.failures and target.last_failure is not None and target.last_failure.exposes)


def _refuses_refs(target: Target) -> bool:
    return bool(target.failures and target.last_failure is not None and target.last_failure.of_refs)


def _is_locked_out(target: Target) -> bool:
    """Whoever was to push there lacks the credential for it."""
    failure = target.last_failure
    return bool(target.failures and failure is not None and failure.context.get(OURS) == CREDENTIAL)


# Kind of alert: whether it stands, its text before the failure's own words, and the text of its end.
_TARGET_STANDS: Mapping[str, tuple[Callable[[Target], bool], str, str]] = {
    "target-conflict": (_in_conflict, "a person is needed at {}", "{} has no conflict any more"),
    "visibility": (_exposes, "{} is more visible than its source", "{} is as visible as its source, or less"),
    "target-refused": (_refuses_refs, "{} does not take every ref", "{} takes every ref again"),
    "target-credential": (_is_locked_out, "a worker cannot sign in at {}", "nobody is kept out of {}"),
}
