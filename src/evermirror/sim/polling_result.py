"""What a simulation of polling comes to: delays over all pushes, and those of the quiet half by themselves.

The mean over all pushes is the busy repos' mean. So the quiet half is told beside it: of the repos that were
pushed to in the judged time, the half with the fewest pushes (where the number is odd, the larger half; of
equals, those that come first in the histories). It is the same half under every policy, as every push is
seen in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_SOON_S = 300.0  # the share of pushes seen within this time is told


@dataclass(frozen=True, slots=True)
class PollingResult:
    """Delays are seconds from push to poll; the largest gap is between two polls of one repo."""

    policy: str
    mean_gap_s: float
    days: float
    repos: int
    pushes: int
    polls: int
    mean_s: float
    p50_s: float
    p95_s: float
    share_within_5min: float
    largest_gap_s: float
    hooks: str = ""  # "reliable", or "silent": they fell so where the judged time begins
    hooked_polls: int = 0  # of repos that have hooks, which no hook asked for
    quiet_repos: int = 0  # of the quiet half
    quiet_pushes: int = 0
    quiet_mean_s: float = 0.0  # over their pushes
    quiet_repo_mean_s: float = 0.0  # over the repos, of each one's mean
    least_mean_s: float | None = None  # no schedule within the budget comes below; told with the oracle


class Quiet(NamedTuple):
    """The quiet half."""

    repos: int
    pushes: int
    mean_s: float
    repo_mean_s: float


class Tally:
    """The delays seen so far, and the polls and gaps of the judged time."""

    __slots__ = ("delays", "gaps", "largest_gap_s", "polls", "whose")

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.gaps: list[float] = []  # between the two looks that the push fell between; the oracle tells none
        self.whose: list[int] = []  # place in the histories of the repo that the delay is of
        self.polls = 0
        self.largest_gap_s = 0.0

    def warm(self) -> None:
        """What comes from here on counts."""
        self.polls = 0
        self.largest_gap_s = 0.0

    def see(
        self, repo: int, news: Sequence[float], looked_at: float, now: float, *, counting_from: float
    ) -> None:
        """A look at ``now`` found these pushes, the one before was at ``looked_at``; later ones count."""
        for at in news:
            if at > counting_from:
                self.delays.append(now - at)
                self.gaps.append(now - looked_at)
                self.whose.append(repo)

    def result(
        self, policy: str, mean_gap_s: float, days: float, repos: int, *, least_mean_s: float | None = None
    ) -> PollingResult:
        delays = sorted(self.delays)
        count = len(delays)

        def quantile(q: float) -> float:
            return delays[min(count - 1, int(q * count))] if count else 0.0

        quiet = quiet_half(self.delays, self.whose)
        return PollingResult(
            policy=policy,
            mean_gap_s=mean_gap_s,
            days=days,
            repos=repos,
            pushes=count,
            polls=self.polls,
            mean_s=sum(delays) / count if count else 0.0,
            p50_s=quantile(0.5),
            p95_s=quantile(0.95),
            share_within_5min=sum(1 for d in delays if d <= _SOON_S) / count if count else 0.0,
            largest_gap_s=self.largest_gap_s,
            quiet_repos=quiet.repos,
            quiet_pushes=quiet.pushes,
            quiet_mean_s=quiet.mean_s,
            quiet_repo_mean_s=quiet.repo_mean_s,
            least_mean_s=least_mean_s,
        )


def quiet_half(delays: Sequence[float], whose: Sequence[int]) -> Quiet:
    """See the module's words; ``whose[n]`` is the repo that ``delays[n]`` is of."""
    counts: dict[int, int] = {}
    sums: dict[int, float] = {}
    for delay, repo in zip(delays, whose, strict=True):
        counts[repo] = counts.get(repo, 0) + 1
        sums[repo] = sums.get(repo, 0.0) + delay
    ranked = sorted(counts, key=lambda repo: (counts[repo], repo))
    quiet = ranked[: (len(ranked) + 1) // 2]
    if not quiet:
        return Quiet(0, 0, 0.0, 0.0)
    pushes = sum(counts[repo] for repo in quiet)
    return Quiet(
        repos=len(quiet),
        pushes=pushes,
        mean_s=sum(sums[repo] for repo in quiet) / pushes,
        repo_mean_s=sum(sums[repo] / counts[repo] for repo in quiet) / len(quiet),
    )
