"""Who waits for which repo, and what they are told: one entry for all clients of a repo."""

from __future__ import annotations

from evermirror.core.collect.decisions import Outcome, TellClients
from evermirror.core.collect.rows import Row
from evermirror.core.collect.verdict import needs
from evermirror.model.repo import RepoKey

FULL_WAITS = 10  # times as long as others: somebody has to make room first


class Clients:
    """In the order in which they began to wait."""

    __slots__ = ("_since", "_wait_s", "_waits_max")

    def __init__(self, waits_max: int, wait_s: float) -> None:
        self._waits_max = waits_max
        self._wait_s = wait_s
        self._since: dict[RepoKey, float] = {}

    def __contains__(self, key: RepoKey) -> bool:
        return key in self._since

    def __len__(self) -> int:
        return len(self._since)

    def add(self, key: RepoKey, now: float) -> bool:
        """Whether there is room for one more repo to be waited for."""
        if key not in self._since and len(self._since) >= self._waits_max:
            return False
        self._since.setdefault(key, now)
        return True

    def until(self, key: RepoKey) -> float | None:
        since = self._since.get(key)
        return None if since is None else since + self._wait_s

    def answered(self, key: RepoKey) -> bool:
        """Nobody waits any more; whether anybody did."""
        return self._since.pop(key, None) is not None

    def overdue(self, now: float) -> list[RepoKey]:
        """Those who waited long enough, or whose clock went back."""
        late = []
        for key, since in self._since.items():
            if since <= now < since + self._wait_s:
                break
            late.append(key)
        return late

    # Answers

    def at_once(self, key: RepoKey, row: Row | None, blocked: str) -> TellClients | None:
        """For whom waiting is of no use; ``blocked``: why what is not here yet cannot come now."""
        if row is None:
            return TellClients(key, Outcome.UNKNOWN)
        if row.served:
            return TellClients(key, Outcome.HERE)
        if not needs(row):
            return self.later(
                key, "no worker has it yet" if row.enabled else "it is disabled, and was never fetched"
            )
        return self.no_room(key, blocked) if row.first and blocked else None

    def later(self, key: RepoKey, why: str, wait_s: float | None = None) -> TellClients:
        return TellClients(key, Outcome.LATER, self._wait_s if wait_s is None else wait_s, why)

    def no_room(self, key: RepoKey, why: str) -> TellClients:
        return TellClients(key, Outcome.NO_ROOM, FULL_WAITS * self._wait_s, why)
