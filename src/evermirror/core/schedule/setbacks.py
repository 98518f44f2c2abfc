"""What a failure means: for its host's weather, for where the repo is asked next, and for when.

failed ──▶ weather: the repo's own fault, or everybody's? ──▶ another address left? ──yes──▶ asked there
              │                                                   no ──▶ counted, put off ──▶ waiting
              └─▶ failures of others that turn out to be weather are taken back; who can leaves a storm
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from evermirror.core.schedule.detours import Tried, judged
from evermirror.core.schedule.hosts import HostState
from evermirror.core.schedule.queue import Tracked
from evermirror.core.schedule.registry import Registry
from evermirror.core.schedule.retry import BACKOFF_STEPS, RETRY_RULES, Wait, retry_delay_s
from evermirror.core.schedule.routing import Routing
from evermirror.core.schedule.standing import Standing
from evermirror.core.schedule.views import Verdict
from evermirror.core.schedule.weather import Weather
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import Host, RepoKey


class Setbacks:
    """Of repos that gave back what they had taken, and stand in no queue."""

    __slots__ = ("_known", "_routing", "_standing", "_weather")

    def __init__(self, known: Registry, weather: Weather, routing: Routing, standing: Standing) -> None:
        self._known = known
        self._weather = weather
        self._routing = routing
        self._standing = standing

    def failed(self, repo: Tracked, host: HostState, failure: Failure, now: float, jitter: float) -> Verdict:
        """The poll or sync did not succeed; ``jitter`` in [-1, 1] spreads retries."""
        key = repo.spec.key
        judgement = self._weather.failed(host.name, key, failure, now, seen_before=repo.seen_at > 0.0)
        if failure.kind is FailureKind.RATE_LIMITED:
            host.weather.block(failure.retry_after_s, now)
        storm_at = host.name  # if there is one
        tried: tuple[Tried, ...] = (Tried(repo.url, failure, judgement.own),)
        onward = None
        if self._routing.concerns(repo, failure):
            tried = (*(repo.detour.tried if repo.detour is not None else ()), *tried)
            onward = self._routing.onward(repo, tried, now)
            if onward is not None:
                self._standing.send(repo, onward, now)
            elif repo.detour is not None:
                repo, host = self._standing.relocate(repo, None, now)
        verdict = Verdict(False, repo.failures, None, failure=failure, diverted=True)
        if onward is None:
            verdict = self._put_off(repo, host, tried, now, jitter)
        uncounted = tuple(other for _, other in judgement.uncounted if self._uncount(other, now))
        self._leave_storms({storm_at, *judgement.changed}, now)
        self._standing.settle(judgement.changed, now)
        return replace(verdict, uncounted=uncounted)

    def _put_off(
        self, repo: Tracked, host: HostState, tried: tuple[Tried, ...], now: float, jitter: float
    ) -> Verdict:
        """The attempt failed, at every address that it asked: when is the next one?"""
        repo.last_poll_at = repo.since = now
        failure, own = judged(tried), all(t.own for t in tried)
        rule = RETRY_RULES[failure.kind]
        counted = rule.counted and own
        if counted:
            repo.failures += 1
            repo.failure_kind = failure.kind
        delay = None
        if own:
            delay = retry_delay_s(
                rule.wait,
                repo.failures,
                max_gap_s=host.max_gap_s,
                interval_s=repo.interval_s,
                jitter=jitter,
            )
        repo.not_before = 0.0 if delay is None else now + delay
        worn_out = rule.wait is Wait.BACKOFF and repo.failures >= BACKOFF_STEPS
        keeps_turn = not own or not (worn_out or rule.wait is Wait.NORMAL)
        if repo.detour is not None:
            repo.detour = replace(repo.detour, tried=())
        self._standing.requeue(repo, host, now, keeps_turn=keeps_turn)
        return Verdict(counted, repo.failures, None, failure=failure)

    def _uncount(self, key: RepoKey, now: float) -> bool:
        """A failure of this repo turned out to be weather."""
        repo = self._known.repos.get(key)
        if repo is None or not repo.failures:
            return False
        repo.failures -= 1
        if not repo.failures:
            repo.failure_kind = None
        self._standing.at_once(repo, now)
        return True

    def _leave_storms(self, names: Iterable[Host], now: float) -> None:
        for name in names:
            host = self._known.hosts.get(name)
            for repo, detour in self._routing.leaving(host, now) if host is not None else ():
                self._standing.send(repo, detour, now, at_once=False)
