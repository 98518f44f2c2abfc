"""Repositories that were renamed, as a hook says: people are told, and nothing is done by itself.

Whoever gets the old name may put something else there: only a person can say that the new name is ours.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

from evermirror.core.watch.renamed import renamed_alert
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.writes import EventWritten
from evermirror.model.event import EventType, NewEvent
from evermirror.model.repo import RepoKey
from evermirror.nodes.coordinator.alerts.alert_sink import AlertSink

TOLD_EVERY_S = 86_400.0  # of one repo and its new name
NAMES_MAX = 3  # new names of one repo within that time; who has its secret can make up as many as he likes
STANDING_MAX = 10_000
SETTLED_MAX = 100  # at a time


class HookRenames:
    """``renamed`` for each hook that says so; ``settle`` now and then."""

    def __init__(self, recorder: Recorder, alerts: AlertSink, clock: Callable[[], float]) -> None:
        self._recorder = recorder
        self._alerts = alerts
        self._clock = clock
        self._told: OrderedDict[tuple[RepoKey, str], float] = OrderedDict()  # when; oldest first
        self._names: Counter[RepoKey] = Counter()  # how many of those are of one repo

    async def renamed(self, key: RepoKey, url: str) -> None:
        """``url``: where it is now. Told once a day, however often hooks say it, and of a few names only."""
        now = self._clock()
        if (key, url) in self._told or self._names[key] >= NAMES_MAX:
            return
        self._told[key, url] = now
        self._names[key] += 1
        self.settle()
        self._alerts.told(renamed_alert(key, url))
        data = {"from": key, "to": url}
        await self._recorder.put(EventWritten(NewEvent(EventType.REPO_RENAMED, now, key, data=data)))

    def settle(self) -> None:
        """What was told a day ago is over, and so is the oldest of too many; some of them each time, so that
        nobody waits for it."""
        long_ago = self._clock() - TOLD_EVERY_S
        for _ in range(SETTLED_MAX):
            oldest = next(iter(self._told.items()), None)
            if oldest is None or (len(self._told) <= STANDING_MAX and oldest[1] > long_ago):
                return
            (key, url), _ = self._told.popitem(last=False)
            self._names[key] -= 1
            if not self._names[key]:
                del self._names[key]
                self._alerts.told(renamed_alert(key, url, over=True))
