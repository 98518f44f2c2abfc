"""How the budget is shared: every repo's part is 1 / stride of the sum over all, with a cap on silence.

`total` is kept by adding and subtracting; parts lie within six orders of magnitude of one another, so
rounding stays far below anything that shows, and the sum starts from zero again whenever nobody is left.
"""

from __future__ import annotations

from collections.abc import Iterable

from evermirror.core.schedule.hosts import HostState
from evermirror.core.schedule.policies import Policy
from evermirror.core.schedule.queue import Tracked
from evermirror.core.schedule.settings import ScheduleSettings


class Shares:
    """Sums over all repos that are scheduled by stride."""

    __slots__ = ("count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0

    def stride(self, repo: Tracked, policy: Policy, now: float) -> float:
        """The repo's stride as the policy has it, capped."""
        stride = policy.stride(repo.weight, repo.failures, repo.activity, now)
        if policy.gap_cap is not None and self.total > 0.0:
            cap = policy.gap_cap * self.count / self.total
            if stride > cap:
                return cap
        return stride

    def enrol(self, repos: Iterable[tuple[Tracked, HostState]], policy: Policy, now: float) -> None:
        """Give strides to repos that have none: the sum comes first, so that the cap is right for all."""
        strides = []
        for repo, host in repos:
            stride = policy.stride(repo.weight, repo.failures, repo.activity, now)
            self.set(repo, host, stride)
            strides.append((repo, host, stride))
        if policy.gap_cap is None or not strides:
            return
        cap = policy.gap_cap * self.count / self.total
        for repo, host, stride in strides:
            if stride > cap:
                self.set(repo, host, cap)

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

    def aimed_gap_s(self, repo: Tracked, host: HostState, settings: ScheduleSettings) -> float:
        """The time between two polls of this repo that policy and budgets come to."""
        if repo.interval_s is not None:
            gap = repo.interval_s
        else:
            gap = 0.0
            if settings.polls_per_second is not None:
                gap = repo.stride * self.total / settings.polls_per_second
            if host.rate is not None:
                gap = max(gap, repo.stride * host.rate_sum / host.rate)
        if host.max_gap_s is not None:
            gap = min(gap, host.max_gap_s)
        return max(gap, settings.min_gap_s)
