"""Which of a repo's addresses is asked: its own, or a fallback while its own does not do.

    home ──fails──▶ first fallback ──fails──▶ … ──all failed──▶ home, and the attempt has failed
     ▲                    │ answers: the repo lives there
     └── now and then ────┘

Rules
- An attempt asks each address at most once: its own first, then the fallbacks in their order. One that began
  at a fallback, where the repo lives, goes on at home.
- Only what says "not here" or "not reachable" sends a repo elsewhere (`sends_elsewhere`). A limit, a guard, a
  full disk and trouble with what was transferred do not; nor does our own network.
- A host in a storm, or one that asked us to wait, is passed over. When a storm begins, the repos that have
  another address leave that host.
- While a repo lives at a fallback it stands in that host's queue: rate, connections and weather are those of
  the host that is asked.
- Home is tried again HOME_FIRST_S after it was left, then after twice as long, up to HOME_LAST_S; an answer
  there ends the detour.
- An attempt that failed everywhere is judged by the failure that is retried soonest, the earliest of those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from evermirror.core.schedule.retry import RETRY_RULES, Wait
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import Host, RepoSpec
from evermirror.model.url import host_in

HOME_FIRST_S = 300.0  # a host that was restarted is back by then
HOME_LAST_S = 6 * 3600.0  # one that is gone for good is asked four times a day

_ELSEWHERE = frozenset({FailureKind.NETWORK_TIMEOUT, FailureKind.NOT_FOUND, FailureKind.AUTH_FAILED})


@dataclass(frozen=True, slots=True)
class Tried:
    """An address that failed in this attempt; ``own``: it was no weather."""

    url: str
    failure: Failure
    own: bool


@dataclass(frozen=True, slots=True)
class Detour:
    """Where a repo stands that is not simply at home. ``url`` may be its own: then home is being tried."""

    url: str
    host: Host
    left_at: float  # when home was last found not to do
    times: int = 1  # that home was left
    tried: tuple[Tried, ...] = ()  # in the attempt under way

    @property
    def home_due_at(self) -> float:
        """When home is worth another try."""
        # 2**10 times the first pause is past the last one; larger powers overflow.
        return self.left_at + min(HOME_FIRST_S * 2.0 ** min(self.times - 1, 10), HOME_LAST_S)


def sends_elsewhere(failure: Failure, *, polling: bool) -> bool:
    """Whether another address of the same repository may do better."""
    if failure.corrupt:
        return False
    # What is not understood of an answer is that server's doing; of a transfer it may be the content's.
    return failure.kind in _ELSEWHERE or (polling and failure.kind is FailureKind.UNKNOWN)


def next_address(spec: RepoSpec, past: tuple[str, ...], is_open: Callable[[Host], bool]) -> str | None:
    """The first address that is not in ``past`` and whose host may be asked."""
    for url in (spec.url, *spec.fallbacks):
        if url not in past and is_open(host_in(url)):
            return url
    return None


def gone_to(url: str, spec: RepoSpec, before: Detour | None, tried: tuple[Tried, ...], now: float) -> Detour:
    """The detour of a repo that is asked at ``url`` from now on."""
    at = before.url if before is not None else spec.url
    left_at, times = (before.left_at, before.times) if before is not None else (now, 0)
    if at == spec.url:
        left_at, times = now, times + 1
    return Detour(url, host_in(url), left_at, times, tried)


def judged(tried: tuple[Tried, ...]) -> Failure:
    """The failure that an attempt comes to; where there were several it names the others."""
    soonest = [t for t in tried if RETRY_RULES[t.failure.kind].wait is Wait.BACKOFF]
    chosen = (soonest or list(tried))[0]
    if len(tried) == 1:
        return chosen.failure
    words = "; ".join(f"{t.url}: {t.failure.kind.value}: {t.failure.message}" for t in tried)
    return replace(chosen.failure, context={**chosen.failure.context, "addresses": words})


def at(spec: RepoSpec, url: str) -> RepoSpec:
    """The repo as it is asked at ``url``; its credential is for its own host, and goes nowhere else."""
    if url == spec.url:
        return spec
    host = host_in(url)
    return replace(spec, url=url, host=host, credential=spec.credential if host == spec.host else None)
