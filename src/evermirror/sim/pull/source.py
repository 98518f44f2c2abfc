"""The source of all projects, simulated: the more it is asked at once the slower it is, and it has others to
serve, too."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from random import Random

CORES = 16
LOOK_CORES = 0.25  # busy while refs are told
FETCH_CORES = 0.2  # busy while a pack is made; most of the time it waits for the network
LOOK_S = 0.25  # on an idle machine
FETCH_S = 8.0
BUSY_MAX = 0.9  # it gets ten times slower at most
WINDOW_S = 60.0  # that our burden is averaged over


@dataclass(slots=True)
class Source:
    """``others`` is the share of its processors that others keep busy now. Times are UTC seconds."""

    chance: Random
    began_at: float
    others: float = 0.2
    down_until: float = 0.0
    looks_a_minute: float = math.inf  # beyond this it refuses, and says for how long
    ours_cores: float = 0.0
    peak_share: float = 0.0  # the highest that we kept busy over a window
    _window_busy_s: float = 0.0
    _looks: deque[float] = field(default_factory=deque)
    _seen_at: float = field(init=False)
    _window_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._seen_at = self._window_at = self.began_at

    def is_down(self, now: float) -> bool:
        return now < self.down_until

    def cpu(self) -> float:
        """What its metrics would say: 0 to 1."""
        return min(1.0, self.others + self.ours_cores / CORES)

    def takes(self, usual_s: float) -> float:
        """How long a request takes that begins now."""
        slower = 1.0 / (1.0 - min(BUSY_MAX, self.cpu()))
        return usual_s * slower * self.chance.lognormvariate(0.0, 0.4)

    def refuses(self, now: float) -> float | None:
        """Counts a look; seconds to wait where there were too many."""
        while self._looks and self._looks[0] <= now - 60.0:
            self._looks.popleft()
        if len(self._looks) >= self.looks_a_minute:
            return 120.0
        self._looks.append(now)
        return None

    def begin(self, cores: float, now: float) -> None:
        self.account(now)
        self.ours_cores += cores

    def end(self, cores: float, now: float) -> None:
        self.account(now)
        self.ours_cores = max(0.0, self.ours_cores - cores)

    def account(self, now: float) -> None:
        """Adds up what we kept busy until now."""
        while now - self._window_at >= WINDOW_S:
            self._window_at += WINDOW_S
            self._busy_until(self._window_at)
            self.peak_share = max(self.peak_share, self._window_busy_s / (CORES * WINDOW_S))
            self._window_busy_s = 0.0
        self._busy_until(now)

    def _busy_until(self, time: float) -> None:
        self._window_busy_s += self.ours_cores * (time - self._seen_at)
        self._seen_at = time
