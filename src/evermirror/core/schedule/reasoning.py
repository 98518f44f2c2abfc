"""When a repo is looked at next, as steps from what is known of it to a time. Reads only.

    how often   pushes | age ─▶ policy_gap ─▶ hooked ─┐
                interval ─────────────────────────────┴─▶ max_gap ─▶ min_gap        its `s`: the gap
    when        last_poll ─▶ turn | due ─▶ overdue ─▶ rest ─▶ backoff ─┐
                         the last `at`: the next look ◀── budget ◀── limited ◀── weather

Rules
- The steps are the only place where the next look is told from: what is not a step does not count.
- They start from what the queue goes by (priority, `due_at`, weather, buckets): there is no second reckoning.
- A step that changes nothing is left out; a failure is told also where something else holds the repo longer.
- A place in the queue is no time: `turn` is when those before it have had their polls, if all of them may.
"""

from __future__ import annotations

from dataclasses import dataclass

from evermirror.core.schedule.bucket import TokenBucket
from evermirror.core.schedule.hosts import HostState
from evermirror.core.schedule.intensity import DAY_S
from evermirror.core.schedule.outlook import expected
from evermirror.core.schedule.queue import Phase, Tracked
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.shares import Aim
from evermirror.core.schedule.trail import Trail
from evermirror.model.plan import StepCode

_UNDER_WAY = {
    Phase.POLLING: (StepCode.RUNNING, "is being polled"),
    Phase.CHANGED: (StepCode.SLOT, "changed; waits for a git slot"),
    Phase.SYNCING: (StepCode.RUNNING, "is being synced"),
}
_ROUNDING = 1e-6  # of a poll: sums over all repos are not exact
_LESS = "; its hooks have proved reliable: polled less"


@dataclass(frozen=True, slots=True)
class Standpoint:
    """What a repo's next look follows from, at ``now``."""

    repo: Tracked
    host: HostState
    aim: Aim
    settings: ScheduleSettings
    whole: TokenBucket  # over all hosts
    rivals: float  # sum of 1 / stride over all repos
    now: float


def reason(here: Standpoint) -> Trail:
    """All steps, in their order."""
    trail, repo = Trail(), here.repo
    if repo.phase is not Phase.WAITING:
        trail.stop(*_UNDER_WAY[repo.phase])
    elif repo.request:
        _detour(here, trail)
        trail.move(StepCode.ASKED, here.now, "was asked for")
        _limited(here, trail)
    elif repo.quiet:
        trail.stop(StepCode.ON_REQUEST, "looked at when it is asked for")
    else:
        _how_often(here, trail)
        _detour(here, trail)
        _turn(here, trail)
        _held(here, trail)
        _weather(here, trail)
        _limited(here, trail)
        _budget(here, trail)
    return trail


def _how_often(here: Standpoint, trail: Trail) -> None:
    repo, aim = here.repo, here.aim
    if repo.interval_s is not None:
        whose = "set on it" if repo.spec.interval_s is not None else "its class's"
        trail.note(StepCode.INTERVAL, aim.share_s, f"a fixed interval, {whose}")
    else:
        _activity(here, trail)
        trail.note(StepCode.POLICY_GAP, aim.share_s, f"its share of the polls under {here.settings.policy}")
        if repo.told:
            trail.note(StepCode.HOOKED, aim.rarer_s, _LESS.removeprefix("; "))
    if aim.bounded_s < aim.rarer_s:
        trail.note(StepCode.MAX_GAP, aim.bounded_s, "cut to the max gap")
    if aim.gap_s > aim.bounded_s:
        trail.note(StepCode.MIN_GAP, aim.gap_s, "raised to the min gap")


def _activity(here: Standpoint, trail: Trail) -> None:
    """What the policy goes by."""
    activity, policy = here.repo.activity, here.settings.policy
    if policy == "adaptive":
        rate = expected(activity, here.now, here.aim.gap_s)
        trail.note(StepCode.PUSHES, 1.0 / rate, f"{rate * DAY_S:.3g} pushes a day are expected")
    elif policy == "cbrt-age" and activity.last_push_at:
        trail.note(StepCode.AGE, max(0.0, here.now - activity.last_push_at), "since the last commit")


def _detour(here: Standpoint, trail: Trail) -> None:
    if here.repo.url != here.repo.spec.url:
        trail.note(StepCode.DETOUR, None, f"asked at {here.host.name}, as its own host does not do")


def _turn(here: Standpoint, trail: Trail) -> None:
    """Its place: by its interval, or by its stride, which the max gap cuts short."""
    repo, host, now = here.repo, here.host, here.now
    if repo.last_poll_at:
        trail.note(StepCode.LAST_POLL, None, "the last look", at=repo.last_poll_at)
    if repo.interval_s is not None:
        trail.move(StepCode.DUE, max(now, repo.due_at), "its interval")
        return
    at = max(now, _queued_until(here))
    less = _LESS * repo.told
    trail.move(StepCode.TURN, at, f"its turn under {here.settings.policy}{less}")
    if host.max_gap_s is not None and repo.since + host.max_gap_s < at:
        trail.move(StepCode.OVERDUE, max(now, repo.since + host.max_gap_s), f"the max gap{less}")


def _queued_until(here: Standpoint) -> float:
    """When those before it have had their polls, counted from the last token that was taken: so the time
    stands still while nobody takes one."""
    repo, host = here.repo, here.host
    part = min(1.0, max(0.0, repo.priority - host.queue.clock) / repo.stride) if repo.stride else 0.0
    at = 0.0
    for bucket, rate, rivals in (
        (host.bucket, host.rate, host.rate_sum),
        (here.whole, here.settings.polls_per_second, here.rivals),
    ):
        polls = part * repo.stride * rivals  # its own is the last of them
        if rate is not None and polls > 1.0 + _ROUNDING:
            at = max(at, bucket.ready_at() + (polls - 1.0) / rate)
    return at


def _held(here: Standpoint, trail: Trail) -> None:
    """Until when it may not be looked at whoever's turn it is."""
    repo, at = here.repo, trail.at or 0.0
    if repo.interval_s is None and repo.due_at > max(at, repo.not_before):
        at = repo.due_at
        trail.move(StepCode.REST, at, f"the min gap{_LESS * repo.told}", s=at - repo.last_poll_at)
    kind = repo.failure_kind
    if repo.not_before > at or (repo.not_before and kind is not None):
        words = "retry" if kind is None else f"retry after failure {repo.failures}, {kind.value}"
        wait_s = max(0.0, repo.not_before - repo.last_poll_at)
        trail.move(StepCode.BACKOFF, max(at, repo.not_before), words, s=wait_s)


def _weather(here: Standpoint, trail: Trail) -> None:
    weather = here.host.weather
    if weather.kind is not None and weather.probe_at > (trail.at or 0.0):
        words = f"host-wide failure, {weather.kind.value}: probed now and then"
        trail.move(StepCode.WEATHER, weather.probe_at, words, s=weather.probe_gap_s)


def _limited(here: Standpoint, trail: Trail) -> None:
    until = here.host.weather.blocked_until
    if until > (trail.at or 0.0):
        trail.move(StepCode.LIMITED, until, "the host asked us to wait", s=until - here.now)


def _budget(here: Standpoint, trail: Trail) -> None:
    """A request waits for no token, everything else does."""
    at = trail.at or 0.0
    host_at, whole_at = here.host.bucket.ready_at(), here.whole.ready_at()
    if max(host_at, whole_at) > at:
        whose = "the host's rate" if host_at >= whole_at else "the rate of all polls"
        ready_at = max(host_at, whole_at)
        trail.move(StepCode.BUDGET, ready_at, f"{whose} has no poll left before", s=ready_at - at)
