"""How the budget is shared: every repo's part is 1 / stride of the sum over all, with a cap on silence.

A repo whose hooks have proved reliable takes HOOKED_RARER times less, and rests as much longer between two
polls, within the max gap; the cap holds before that.

`total` is kept by adding and subtracting; parts lie within six orders of magnitude of one another, so
rounding stays far below anything that shows, and the sum starts from zero again whenever nobody is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from evermirror.core.schedule.hosts import HostState
from evermirror.core.schedule.policies import HOOKED_RARER, Policy
from evermirror.core.schedule.queue import Tracked
from evermirror.core.schedule.settings import ScheduleSettings


class Aim(NamedTuple):
    """How the time between two polls comes about: each from the one before (s)."""

    share_s: float  # its interval; else what its part of the budgets comes to
    rarer_s: float  # with hooks that have proved reliable
    bounded_s: float  # within the max gap
    gap_s: float  # not less than it is left alone


class Shares:
    """Sums over all repos that are scheduled by stride."""

    __slots__ = ("count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0

    def stride(
        self, repo: Tracked, host: HostState, policy: Policy, settings: ScheduleSettings, now: float
    ) -> float:
        """The repo's stride as the policy has it, capped."""
        stride = policy.stride(repo.weight, repo.failures, repo.activity, now, self.pace_s(host, settings))
        if policy.gap_cap is not None and self.total > 0.0:
            stride = min(stride, policy.gap_cap * self.count / self.total)
        return stride * _rarer(repo)

    def enrol(self, repos: Iterable[tuple[Tracked, HostState]], policy: Policy, now: float) -> None:
        """Give strides to repos that have none: the sum comes first, so that the cap is right for all."""
        strides = []
        for repo, host in repos:
            stride = policy.stride(repo.weight, repo.failures, repo.activity, now) * _rarer(repo)
            self.set(repo, host, stride)
            strides.append((repo, host, stride))
        if policy.gap_cap is None or not strides:
            return
        cap = policy.gap_cap * self.count / self.total
        for repo, host, stride in strides:
            if stride > cap * _rarer(repo):
                self.set(repo, host, cap * _rarer(repo))

    def set(self, repo: Tracked, host: HostState, stride: float) -> None:
        """From now on the repo has this stride."""
        part = 1.0 / stride
        if repo.stride:
            part -= 1.0 / repo.stride
        else:
            self.count += 1
        repo.stride = stride
        self.total += part
        host.rate_sum += part

    def drop(self, repo: Tracked, host: HostState) -> None:
        """The repo has no part any more."""
        if not repo.stride:
            return
        self.count -= 1
        self.total = self.total - 1.0 / repo.stride if self.count else 0.0
        host.rate_sum = max(0.0, host.rate_sum - 1.0 / repo.stride)
        repo.stride = 0.0

    def pace_s(self, host: HostState, settings: ScheduleSettings) -> float:
        """How long a stride of 1 lasts on this host within the budgets; 0 where there are none."""
        pace = 0.0
        if settings.polls_per_second is not None:
            pace = self.total / settings.polls_per_second
        if host.rate is not None:
            pace = max(pace, host.rate_sum / host.rate)
        return pace

    def aimed_gap_s(self, repo: Tracked, host: HostState, settings: ScheduleSettings) -> float:
        """The time between two polls of this repo that policy and budgets come to."""
        return self.aim(repo, host, settings).gap_s

    def aim(self, repo: Tracked, host: HostState, settings: ScheduleSettings) -> Aim:
        """The same, with how it comes about."""
        if repo.interval_s is not None:
            share = rarer = repo.interval_s
        else:
            rarer = repo.stride * self.pace_s(host, settings)
            share = rarer / _rarer(repo)
        bounded = rarer if host.max_gap_s is None else min(rarer, host.max_gap_s)
        return Aim(share, rarer, bounded, max(bounded, rest_s(repo, settings)))


def rest_s(repo: Tracked, settings: ScheduleSettings) -> float:
    """How long the repo is left alone after it was seen, unless somebody asks for it."""
    rest = settings.min_gap_s * _rarer(repo)
    return rest if settings.max_gap_s is None else max(settings.min_gap_s, min(rest, settings.max_gap_s))


def _rarer(repo: Tracked) -> float:
    return HOOKED_RARER if repo.told else 1.0
