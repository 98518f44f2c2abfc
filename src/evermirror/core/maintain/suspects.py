"""Mirrors that could not be served, as if they were damaged: each is checked soon, none too often.

    suspect ──▶ waits ──take──▶ under check ──▶ checked ──▶ rests ──▶ may be suspected again
                  ▲                  │
                  └────── again ─────┘  (its lock was taken, or a sync broke the check off)

Rules
- Clients cause suspicions, so they must not cause checks without end: after a check a mirror rests
  REST_S, or REST_FACTOR times as long as the check took. Checks of one mirror take 5 % of the time at most.
- A mirror that is damaged rests DAMAGED_REST_S: then somebody reminds us that it still is.
- A sync breaks a check off, INTERRUPTIONS_MAX times at most: a busy mirror must be checked too.
- Everything is bounded; a suspicion that is dropped is raised again by the next client.
"""

from __future__ import annotations

from collections import OrderedDict

from evermirror.model.repo import RepoKey

REST_S = 600.0
REST_FACTOR = 20.0
DAMAGED_REST_S = 60.0
AGAIN_S = 5.0  # until the next try where a check could not be made
INTERRUPTIONS_MAX = 3
WAITING_MAX = 1_000
RESTING_MAX = 10_000  # remembered, ~200 bytes each


class Suspects:
    """``suspect`` → ``take`` → ``checked`` or ``again``. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[RepoKey, float] = OrderedDict()  # not before
        self._rests: OrderedDict[RepoKey, float] = OrderedDict()  # until
        self._under_check: dict[RepoKey, int] = {}  # how often it was broken off before
        self._broken_off: dict[RepoKey, int] = {}  # the same, of those that wait again

    def suspect(self, key: RepoKey, now: float) -> bool:
        """Whether the mirror is checked for it."""
        if key in self._waiting or key in self._under_check or self._rests.get(key, now) > now:
            return False
        if len(self._waiting) >= WAITING_MAX:
            return False
        self._waiting[key] = now
        return True

    def take(self, now: float) -> RepoKey | None:
        """The first that may be checked now."""
        key = next((key for key, at in self._waiting.items() if at <= now), None)
        if key is not None:
            del self._waiting[key]
            self._under_check[key] = self._broken_off.pop(key, 0)
        return key

    def again(self, key: RepoKey, now: float) -> None:
        """The check could not be made, or not to its end."""
        self._broken_off[key] = self._under_check.pop(key, 0) + 1
        self._waiting[key] = now + AGAIN_S

    def may_interrupt(self, key: RepoKey) -> bool:
        """Whether a sync may break off this check, or must wait for its end."""
        return self._under_check.get(key, 0) < INTERRUPTIONS_MAX

    def checked(self, key: RepoKey, now: float, took_s: float, *, damaged: bool) -> None:
        """The check came to its end."""
        self._under_check.pop(key, None)
        self._rests.pop(key, None)
        self._rests[key] = now + (DAMAGED_REST_S if damaged else max(REST_S, took_s * REST_FACTOR))
        if len(self._rests) > RESTING_MAX:
            self._rests.popitem(last=False)

    def drop(self, key: RepoKey) -> None:
        """The mirror is no longer here."""
        self._waiting.pop(key, None)
        self._broken_off.pop(key, None)
        self._under_check.pop(key, None)
