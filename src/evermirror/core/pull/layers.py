"""What a project is by three voices: the defaults, its repo with its line in the catalog, and people.

    defaults ◀── what the catalog's line or the repo says ◀── overrides: what a person set, until it is reset

A repo is a project as long as its line names targets, or a person set something. What happened to it so far
(last sync, failures, what is at a target) stays, whoever speaks.

The priority is the repo's own: a person who sets it of a project sets it of the repo, and whoever changes the
repo's changes the project's. What was there before is remembered for the day that it is taken back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from evermirror.model.failure import FailureKind
from evermirror.model.pull import INTERVALS_S, Project, PullConfig, RetryPolicy, Target, TargetSpec
from evermirror.model.push import TargetId
from evermirror.model.repo import Priority, RepoRecord

NEW_TARGET = TargetId(0)  # until the store gives it its number
SOURCE_SAYS = "its source says "  # begins the reason of a pause by a source that is gone, or keeps us out
USUAL = RetryPolicy()
LEFT = "discovery: "  # begins the reason of a pause that is a discovery's word, and no trouble


class Setting(Enum):
    """What a person may override, by the name that people see."""

    PRIORITY = "priority"
    INTERVAL = "sync_interval"
    ENABLED = "enabled"
    RETRIES = "max_retries"
    RETRY_DELAY = "retry_delay"
    TARGETS = "targets"


@dataclass(frozen=True, slots=True)
class ProjectChange:
    """What a person sets; None: not said. ``targets`` replaces all of them."""

    priority: Priority | None = None
    interval_s: float | None = None
    enabled: bool | None = None
    max_retries: int | None = None
    retry_delay_s: float | None = None
    targets: tuple[TargetSpec, ...] | None = None

    def said(self) -> frozenset[str]:
        """The names of what it sets."""
        values = (
            (Setting.PRIORITY, self.priority),
            (Setting.INTERVAL, self.interval_s),
            (Setting.ENABLED, self.enabled),
            (Setting.RETRIES, self.max_retries),
            (Setting.RETRY_DELAY, self.retry_delay_s),
            (Setting.TARGETS, self.targets),
        )
        return frozenset(setting.value for setting, value in values if value is not None)


def followed(
    record: RepoRecord,
    said: Sequence[TargetSpec],
    project: Project | None,
    now: float,
    priority: Priority | None = None,
    policy: RetryPolicy = USUAL,
) -> Project | None:
    """The project after its repo changed, or the targets that its line names; None: it is none, or no
    longer. ``priority``: what the line says, where a person's word is over it."""
    if project is None:
        return laid(_new(record, now), record, said, now, policy) if said else None
    if not said and not project.overrides:
        return None
    if priority is not None and project.priority_before is not None:
        project = replace(project, priority_before=priority)
    return laid(project, record, said, now, policy)


def changed(
    record: RepoRecord,
    project: Project | None,
    change: ProjectChange,
    now: float,
    policy: RetryPolicy = USUAL,
) -> Project:
    """The project after a person set something; a repo becomes one by that. Its priority is then to be the
    repo's too."""
    before = project or _new(record, now)
    config = before.config
    if change.priority is not None:
        if Setting.PRIORITY.value not in before.overrides:
            before = replace(before, priority_before=record.spec.priority)
        record = with_priority(record, change.priority)
    after = replace(
        before,
        config=replace(
            config,
            interval_s=config.interval_s if change.interval_s is None else change.interval_s,
            max_retries=config.max_retries if change.max_retries is None else change.max_retries,
            retry_delay_s=config.retry_delay_s if change.retry_delay_s is None else change.retry_delay_s,
        ),
        overrides=before.overrides | change.said(),
    )
    if change.targets is not None:
        after = replace(after, targets=_targets(before.targets, change.targets))
    if change.enabled is False:
        after = disabled(after)
    elif change.enabled and not config.enabled:
        after = enabled(after, now)
    return _timed(before, laid(after, record, before.catalog, now, policy), now)


def taken_back(
    record: RepoRecord, project: Project, now: float, policy: RetryPolicy = USUAL
) -> Project | None:
    """The project without what people set; None: it is none by that. The targets of one that the API made
    are its own: nobody else names any."""
    own = record.source == "api" and Setting.TARGETS.value in project.overrides
    kept = frozenset({Setting.TARGETS.value} if own else ())
    if not kept and not project.catalog:
        return None
    record = with_priority(record, project.priority_before or record.spec.priority)
    config = replace(PullConfig(), enabled=project.config.enabled)
    bare = replace(project, config=config, overrides=kept, priority_before=None)
    if Setting.ENABLED.value in project.overrides and not project.config.enabled and not project.paused:
        bare = enabled(bare, now)
    return _timed(project, laid(bare, record, project.catalog, now, policy), now)


def laid(
    project: Project,
    record: RepoRecord,
    said: Sequence[TargetSpec],
    now: float,
    policy: RetryPolicy = USUAL,
) -> Project:
    """``project`` with everything that nobody overrode as its repo, its line and the settings have it."""
    over, spec = project.overrides, record.spec
    config = replace(by_policy(project, policy).config, priority=spec.priority)
    if Setting.INTERVAL.value not in over:
        config = replace(config, interval_s=spec.interval_s or INTERVALS_S[config.priority])
    after = replace(
        project,
        name=record.alias or record.key,
        host=spec.host,
        config=config,
        catalog=tuple(said),
        source_credential=spec.credential,
    )
    if Setting.TARGETS.value not in over:
        after = replace(after, targets=_targets(project.targets, said))
    if not record.enabled and config.enabled:
        after = disabled(after)
    elif record.enabled and not config.enabled and not project.paused and Setting.ENABLED.value not in over:
        after = enabled(after, now)  # it was, with its repo
    return _timed(project, after, now)


def by_policy(project: Project, policy: RetryPolicy) -> Project:
    """With the settings' count and delay of retries, where nobody overrode them."""
    config, over = project.config, project.overrides
    if Setting.RETRIES.value not in over:
        config = replace(config, max_retries=policy.max_retries)
    if Setting.RETRY_DELAY.value not in over:
        config = replace(config, retry_delay_s=policy.retry_delay_s)
    return replace(project, config=config) if config != project.config else project


def with_priority(record: RepoRecord, priority: Priority) -> RepoRecord:
    return replace(record, spec=replace(record.spec, priority=priority))


def enabled(project: Project, now: float) -> Project:
    """As new: what failed before is forgotten, it is due at once, and so are its targets."""
    return replace(
        project,
        config=replace(project.config, enabled=True),
        failures=0,
        paused="",
        last_status=None,
        next_sync_at=now,
        targets=tuple(forgiven(target) for target in project.targets),
    )


def disabled(project: Project) -> Project:
    """By a person's word, and not by itself."""
    return replace(project, config=replace(project.config, enabled=False), paused="")


def left(project: Project, why: str) -> Project:
    """Paused by a discovery, which no longer finds it; what a person or other trouble disabled stays as it
    is. A sync may have met its absence first: that pause is the discovery's from now on."""
    if not project.config.enabled and not is_kept_out(project):
        return project
    return replace(project, config=replace(project.config, enabled=False), paused=LEFT + why)


def has_left(project: Project) -> bool:
    """Whether a discovery paused it, and nobody said anything since."""
    return not project.config.enabled and project.paused.startswith(LEFT)


def is_kept_out(project: Project) -> bool:
    """Whether its source paused it: it is not there, or not for us."""
    return not project.config.enabled and project.paused.startswith(SOURCE_SAYS)


def is_wanted(project: Project) -> bool:
    """Whether somebody waits for it: it is synced, or would be, had trouble not paused it."""
    return project.config.enabled or (bool(project.paused) and not has_left(project))


def forgiven(target: Target) -> Target:
    """Tried again at once."""
    return replace(target, failures=0, not_before=0.0, paused="")


def adopted(project: Project, urls: Collection[str], now: float) -> Project:
    """What is at these targets may be overwritten by the next push, which is due at once. A project that its
    targets had paused is enabled by that."""
    after = enabled(project, now) if paused_by_targets(project) else project
    targets = tuple(
        replace(forgiven(target), adopt=True) if target.url in urls else target for target in project.targets
    )
    return replace(after, targets=targets, next_sync_at=min(after.next_sync_at, now))


def paused_by_targets(project: Project) -> bool:
    """Whether it was disabled by itself, as nothing could be pushed anywhere."""
    return bool(project.paused and project.targets and all(target.paused for target in project.targets))


def placed_by(project: Project | None) -> tuple[bool, bool]:
    """What the fleet must know of it: whether it is one, and needs trust."""
    return project is not None, has_credentials(project)


def has_credentials(project: Project | None) -> bool:
    """Whether whoever pushes it needs to be trusted with a password."""
    return project is not None and any(target.credential is not None for target in project.targets)


def waits_for_a_person(project: Project | None) -> bool:
    """Whether something at a target needs a person's word."""
    failures = [t.last_failure for t in project.targets if t.failures] if project is not None else []
    return any(f is not None and f.kind is FailureKind.CONFLICT and not f.exposes for f in failures)


def _new(record: RepoRecord, now: float) -> Project:
    spec = record.spec
    config = PullConfig(spec.priority, spec.interval_s or INTERVALS_S[spec.priority], record.enabled)
    return Project(
        spec.key,
        record.alias or spec.key,
        spec.host,
        config,
        next_sync_at=now,
        created_at=now,
        updated_at=now,
    )


def _targets(known: Sequence[Target], wanted: Sequence[TargetSpec]) -> tuple[Target, ...]:
    """Those wanted, in that order, each with what is known of it; another credential is worth a try."""
    by_url = {target.url: target for target in known}
    found: list[Target] = []
    for spec in wanted:
        target = by_url.get(spec.url)
        if target is None:
            target = Target(NEW_TARGET, spec.url, spec.credential)
        elif target.credential != spec.credential:
            target = forgiven(replace(target, credential=spec.credential))
        found.append(target)
    return tuple(found)


def _timed(before: Project, after: Project, now: float) -> Project:
    """Due at once where a target is new, or may be tried again; otherwise by the new interval."""
    known = {target.url: target.credential for target in before.targets}
    if any(known.get(target.url, "") != target.credential for target in after.targets):
        return replace(after, next_sync_at=min(after.next_sync_at, now))
    if after.config.interval_s == before.config.interval_s or after.failures:
        return after
    due = now if after.last_sync_at is None else after.last_sync_at + after.config.interval_s
    return replace(after, next_sync_at=min(due, now + after.config.interval_s))
