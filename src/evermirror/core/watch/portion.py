"""How many alerts one message tells of: all that are ready, unless a message of many was refused.

    all ──refused for good────▶ halves ──refused──▶ … ──▶ one: what is refused alone is given up, no other
     ▲  ──refused three times─▶ one, those tried least first        │
     │                                                              │
     └── sent: twice as many, until that is all; at once, where one failed alone before it: so it was away

One alert that a receiver does not like must not keep the others from it; nor may a receiver that was away get
what waited in many messages.
"""

from __future__ import annotations

from collections.abc import Iterable

from evermirror.model.alert import AlertId, Notice

TOGETHER_TRIES = 3  # of a message of many, before its alerts are tried one by one


class Portion:
    """Of one channel."""

    __slots__ = ("_alone_in_vain", "_at_most", "_refused")

    def __init__(self) -> None:
        self._at_most: int | None = None  # None: all
        self._refused = 0  # messages of many, since one was sent
        self._alone_in_vain = False

    def of(self, ready: Iterable[Notice]) -> list[Notice]:
        """What goes as one message: all notices of an alert, or none."""
        if self._at_most is None:
            return sorted(ready, key=lambda notice: notice.id)
        tried_least = sorted(ready, key=lambda notice: (notice.attempts, notice.id))
        alerts: dict[AlertId | None, list[Notice]] = {}
        for notice in tried_least:
            alerts.setdefault(notice.alert, []).append(notice)
        chosen = [notice for of_it in list(alerts.values())[: self._at_most] for notice in of_it]
        return sorted(chosen, key=lambda notice: notice.id)

    def sent(self, alerts: int, left: int) -> None:
        """A message of so many; ``left``: alerts that are ready after it."""
        if self._at_most is not None:
            self._at_most *= 2
            if self._alone_in_vain or self._at_most >= left:
                self._at_most, self._refused = None, TOGETHER_TRIES - 1
        elif alerts > 1:
            self._refused = 0
        if not left:
            self._at_most, self._refused = None, 0
        self._alone_in_vain = False

    def refused(self, alerts: int, *, permanent: bool, items_max: int) -> None:
        if alerts == 1:
            self._alone_in_vain = self._at_most is not None and not permanent
            return
        self._refused += 1
        if permanent or self._at_most is not None:
            self._at_most = min(alerts // 2, items_max)
        elif self._refused >= TOGETHER_TRIES:
            self._at_most = 1
