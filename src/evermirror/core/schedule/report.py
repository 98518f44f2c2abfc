"""What people are told of the schedule: when and why, hosts, warnings. Reads only."""

from __future__ import annotations

from collections.abc import Iterable

from evermirror.core.schedule.bucket import TokenBucket
from evermirror.core.schedule.hosts import HostState
from evermirror.core.schedule.intensity import DAY_S
from evermirror.core.schedule.outlook import expected
from evermirror.core.schedule.queue import Tracked
from evermirror.core.schedule.reasoning import Standpoint, reason
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.shares import Shares
from evermirror.core.schedule.views import Explanation, HostView, ScheduleWarning
from evermirror.model.repo import Host


def explain(
    repo: Tracked,
    host: HostState,
    shares: Shares,
    settings: ScheduleSettings,
    whole: TokenBucket,
    now: float,
) -> Explanation:
    """When the repo is looked at next, and why then; ``whole`` is the budget over all hosts."""
    aim = shares.aim(repo, host, settings)
    trail = reason(Standpoint(repo, host, aim, settings, whole, shares.total, now))
    return Explanation(
        key=repo.spec.key,
        phase=repo.phase,
        reason=trail.reason,
        next_poll_at=trail.at,
        aimed_gap_s=aim.gap_s,
        last_poll_at=repo.last_poll_at,
        failures=repo.failures,
        failure_kind=repo.failure_kind,
        pushes_per_day=expected(repo.activity, now, aim.gap_s) * DAY_S,
        policy=settings.policy,
        min_gap_s=settings.min_gap_s,
        max_gap_s=host.max_gap_s,
        steps=tuple(trail.steps),
    )


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
        storm_reason=weather.reason,
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
            what = weather.reason or f"{weather.kind.value} everywhere"
            text = f"{what}: next probe in {max(0, weather.probe_at - now):.0f} s"
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
