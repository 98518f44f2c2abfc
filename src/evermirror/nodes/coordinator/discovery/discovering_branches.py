"""Protected branches of targets that discoveries made: opened once something was pushed to them.

A forge protects a default branch when it comes into being, so that is when to look. That it was done is kept
with the project, so that a stop or an outage forgets none. What the forge refuses is tried again, less and
less often and at each run; people see why among the discovery's projects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from evermirror.core.discover.naming import path_at_target, target_place
from evermirror.edge.store.store import Store
from evermirror.errors import EvermirrorError
from evermirror.model.discovery import Bound, DiscoveryId, DiscoverySpec, Protected
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.repo import RepoKey
from evermirror.nodes.coordinator.discovery.discovering_forges import Forges, Patience, our_mistake
from evermirror.nodes.coordinator.discovery.discovering_projects import FollowedProjects
from evermirror.nodes.coordinator.discovery.discovering_targets import Targets

log = structlog.get_logger(__name__)

RETRY_S = 5.0
RETRY_MAX_S = 3600.0
AT_ONCE = 100  # in one look
_DOUBLINGS_MAX = 10


@dataclass(slots=True)
class _Waiting:
    spec: DiscoverySpec
    row: Bound
    target_url: str
    attempts: int = 0
    not_before: float = 0.0


class Branches:
    """Targets whose branches are to be opened."""

    def __init__(
        self, forges: Forges, projects: FollowedProjects, store: Store, clock: Callable[[], float]
    ) -> None:
        self._forges = forges
        self._projects = projects
        self._store = store
        self._clock = clock
        self._waiting: dict[RepoKey, _Waiting] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def of(self, spec: DiscoverySpec) -> Callable[[Bound], None]:
        """Hears of each project of a discovery that is there."""

        def stands(row: Bound) -> None:
            if row.key is None or not row.made_target or row.target_url is None:
                return
            known = self._waiting.pop(row.key, None)
            if spec.protected is Protected.OPEN and not row.branches_open:
                attempts = known.attempts if known is not None else 0
                self._waiting[row.key] = _Waiting(spec, row, row.target_url, attempts)

        return stands

    def forget(self, discovery: DiscoveryId) -> None:
        """It is no longer followed."""
        self._waiting = {key: one for key, one in self._waiting.items() if one.row.discovery != discovery}

    async def look(self) -> None:
        """Those that were pushed to since, and may be tried; raises nothing."""
        now = self._clock()
        due = (key for key, one in self._waiting.items() if one.not_before <= now)
        ready = [key for key in due if self._projects.was_put(key)][:AT_ONCE]
        for key in ready:
            one = self._waiting.get(key)
            if one is None:
                continue
            failure = await self._tried(one)
            if failure is not None:
                self._put_off(one, failure)
            elif self._waiting.get(key) is one:
                del self._waiting[key]

    async def _tried(self, one: _Waiting) -> Failure | None:
        """Why it was not opened, and noted."""
        try:
            try:
                await self._open(one)
            except FailureError as error:
                await self._store.note_branches(one.row, opened=False, why=_words(error.failure))
                return error.failure
            await self._store.note_branches(one.row, opened=True)
        except FailureError as error:  # the database
            return error.failure
        except EvermirrorError as error:
            return Failure(FailureKind.UNKNOWN, error.message)
        except Exception:  # a forge's answer must never be more than a failed look
            log.exception("protected branches not opened", target=one.target_url)
            return our_mistake()
        return None

    def _put_off(self, one: _Waiting, failure: Failure) -> None:
        wait_s = min(RETRY_S * 2.0 ** min(one.attempts, _DOUBLINGS_MAX), RETRY_MAX_S)
        one.attempts += 1
        one.not_before = self._clock() + max(wait_s, failure.retry_after_s or 0.0)
        log.info("protected branches not opened", target=one.target_url, reason=failure.message)

    async def _open(self, one: _Waiting) -> None:
        spec, base = one.spec, target_place(one.spec).base_url
        async with self._forges.opened(spec.target_forge, base, spec.target_credential) as api:
            targets = Targets(api, spec, Patience(in_all_s=0.0))  # others wait, too
            opened = await targets.open_branches(path_at_target(spec, one.target_url))
        if opened:
            log.info("protected branches opened", target=one.target_url, branches=list(opened))


def _words(failure: Failure) -> str:
    return f"its protected branches are not opened yet: {' '.join(failure.message.split())[:300]}"
