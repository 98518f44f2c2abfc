"""What people are told of the schedule: when and why, hosts, warnings. Reads only."""

from __future__ import annotations

from collections.abc import Iterable

from evermirror.core.schedule.hosts import HostState
from evermirror.core.schedule.intensity import DAY_S, intensity
from evermirror.core.schedule.queue import Phase, Tracked
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.shares import Shares
from evermirror.core.schedule.views import Explanation, HostView, ScheduleWarning
from evermirror.model.repo import Host

_UNDER_WAY = {
    Phase.POLLING: "is being polled",
    Phase.CHANGED: "changed; waits for a git slot",
    Phase.SYNCING: "is being synced",
}


def explain(
    repo: Tracked, host: HostState, shares: Shares, settings: ScheduleSettings, now: float
) -> Explanation:
    """When the repo is looked at next, and why then."""
    gap = shares.aimed_gap_s(repo, host, settings)
    at: float | None
    if repo.phase is Phase.WAITING and repo.quiet and not repo.request:
        at, reason = None, "looked at when it is asked for"
    elif repo.phase is Phase.WAITING:
        at, reason = _next_poll(repo, host, gap, settings, now)
    else:
        at, reason = None, _UNDER_WAY[repo.phase]
    return Explanation(
        key=repo.spec.key,
        phase=repo.phase,
        reason=reason,
        next_poll_at=at,
        aimed_gap_s=gap,
        last_poll_at=repo.last_poll_at,
        failures=repo.failures,
        failure_kind=repo.failure_kind,
        pushes_per_day=intensity(repo.activity, now) * DAY_S,
    )


def _next_poll(
    repo: Tracked, host: HostState, gap: float, settings: ScheduleSettings, now: float
) -> tuple[float, str]:
    """The latest of what holds the repo back, by name; the max gap cuts the wait for its turn short."""
    if repo.request:
        at, reason = now, "was asked for"
    elif repo.interval_s is not None:
        at, reason = max(now, repo.due_at), "its interval"
    else:
        part_to_go = max(0.0, repo.priority - host.queue.clock) / repo.stride if repo.stride else 0.0
        at, reason = now + gap * min(1.0, part_to_go), f"its turn under {settings.policy}"
        if host.max_gap_s is not None and repo.since + host.max_gap_s < at:
            at, reason = max(now, repo.since + host.max_gap_s), "the max gap"
        if repo.last_poll_at and repo.last_poll_at + settings.min_gap_s > at:
            at, reason = repo.last_poll_at + settings.min_gap_s, "the min gap"
    if not repo.request and repo.not_before > at:
        at, reason = repo.not_before, "retry"
    if repo.failure_kind is not None and not repo.request and repo.not_before:
        reason = f"retry after failure {repo.failures}, {repo.failure_kind.value}"
    weather = host.weather
    if weather.kind is not None and not repo.request and weather.probe_at > at:
        at, reason = weather.probe_at, f"host-wide failure, {weather.kind.value}: probed now and then"
    if weather.blocked_until > at:
        at, reason = weather.blocked_until, "the host asked us to wait"
    return at, reason


def view(host: HostState, now: float) -> HostView:
    """One host as it stands."""
    weather = host.weather
    return HostView(
        host=host.name,
        repos=host.repos,
        polls=host.connections.polls,
        transfers=host.connections.transfers,
        blocked_until=weather.blocked_until if weather.blocked_until > now else None,
        storm=weather.kind,
        probe_at=weather.probe_at if weather.kind is not None else None,
        max_gap_s=host.max_gap_s,
    )


def warnings(
    hosts: Iterable[HostState],
    repos: Iterable[Tracked],
    settings: ScheduleSettings,
    network_down: bool,
    now: float,
) -> tuple[ScheduleWarning, ...]:
    """What an operator should know: limits that contradict each other, and hosts that do not answer."""
    found = []
    if network_down:
        found.append(ScheduleWarning("network-down", "no host answers: our own network seems to be down"))
    for host in hosts:
        weather = host.weather
        if (
            settings.max_gap_s is not None
            and host.max_gap_s is not None
            and host.max_gap_s > settings.max_gap_s
        ):
            text = f"max_gap {settings.max_gap_s:g} s is beyond the budgets: {host.max_gap_s:.0f} s is kept"
            found.append(ScheduleWarning("max-gap", text, host.name))
        if weather.kind is not None:
            text = f"{weather.kind.value} everywhere: next probe in {max(0, weather.probe_at - now):.0f} s"
            found.append(ScheduleWarning("host-down", text, host.name))
        if weather.blocked_until > now:
            text = f"the host asked us to wait another {weather.blocked_until - now:.0f} s"
            found.append(ScheduleWarning("host-limited", text, host.name))
    return (*found, *_interval_warnings(repos, settings))


def _interval_warnings(repos: Iterable[Tracked], settings: ScheduleSettings) -> list[ScheduleWarning]:
    """Intervals that ask for more polls than the budgets have."""
    asked: dict[Host, float] = {}
    for repo in repos:
        if repo.interval_s is not None:
            rate = 1.0 / max(repo.interval_s, settings.min_gap_s, 1e-3)
            asked[repo.host] = asked.get(repo.host, 0.0) + rate
    found = []
    limits: list[tuple[Host | None, float, float | None]] = [
        (host, rate, settings.rate_of(host)) for host, rate in asked.items()
    ]
    limits.append((None, sum(asked.values()), settings.polls_per_second))
    for host, rate, limit in limits:
        if limit is not None and rate > limit:
            text = f"intervals ask for {rate:.3g} polls/s, the limit is {limit:.3g}: repos are polled late"
            found.append(ScheduleWarning("intervals", text, host))
    return found
