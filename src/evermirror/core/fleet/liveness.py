"""Who is silent: missed heartbeats are counted in rounds that the coordinator itself lived through.

                 heard                       more than max_missed rounds without
    watched ◀──────────────┐   watched ────────────────────────────────────────▶ told by ``overdue``, once
       └───────────────────┘      ▲                                                    │
                                  └─────────────────────── heard ──────────────────────┘

Rules
- Time is lived from one tick to the next; it also measures the grace and the warm-up. A gap of more than
  PAUSE_ROUNDS heartbeats is a pause: what workers sent meanwhile still waits to be read. Nothing of it was
  lived, and the round that it broke into begins anew. So on waking nobody is suspected, and no grace is over.
- Where pause follows pause the coordinator is merely slow: from the second on each counts as PAUSE_ROUNDS
  heartbeats of lived time and as one round, so that the dead are found all the same.
- A round ends ``heartbeat_s`` of lived time after the last one ended. A tick ends one round at most, and a
  hundred ticks a second end no more rounds than one a second does.
- A round that ends a little late (up to LATE_ROUNDS heartbeats) does not delay the next, so that jitter does
  not stretch the rounds; one that ends later does, so that no short round follows.
- A round is missed when nothing was heard from its beginning to its end. The round in which a worker was last
  heard is not missed: a silence is told after max_missed + 1 to max_missed + 2 heartbeats.
- Watched from now on means as if heard just now: that is what a restarted coordinator does with all it knows.
  Who is heard is watched, whether it was before or not.
"""

from __future__ import annotations

from collections import OrderedDict

from evermirror.model.worker import WorkerId

PAUSE_ROUNDS = 2.0  # heartbeats without a tick; a busy second or two is less, a stopped process more
LATE_ROUNDS = 0.5  # heartbeats; two rounds are then never less than half a heartbeat apart


class Rounds:
    """``tick`` often, ``heard`` at every sign of life, then ask who is ``overdue``."""

    __slots__ = (
        "_heard",
        "_heartbeat_s",
        "_max_missed",
        "_pause_s",
        "_paused",
        "_since_round_s",
        "_ticked_at",
        "lived_s",
        "rounds",
    )

    def __init__(self, heartbeat_s: float, max_missed: int) -> None:
        if not heartbeat_s > 0 or max_missed < 0:
            raise ValueError(f"no rounds can be counted with {heartbeat_s=} and {max_missed=}")
        self.lived_s = 0.0
        self.rounds = 0  # ended so far; the number of the one under way
        self._heartbeat_s = heartbeat_s
        self._max_missed = max_missed
        self._pause_s = PAUSE_ROUNDS * heartbeat_s
        self._paused = False  # the last gap was a pause
        self._ticked_at: float | None = None  # monotonic
        self._since_round_s = 0.0
        # The round in which each was last heard. Who is heard moves to the end: the longest silent is first.
        self._heard: OrderedDict[WorkerId, int] = OrderedDict()

    def tick(self, mono_s: float) -> None:
        """It is ``mono_s`` now; the first tick only says where time begins."""
        before, self._ticked_at = self._ticked_at, mono_s
        if before is None or mono_s <= before:
            return
        gap_s = mono_s - before
        paused_before, self._paused = self._paused, gap_s > self._pause_s
        if self._paused and not paused_before:
            self._since_round_s = 0.0
            return
        lived_s = min(gap_s, self._pause_s)
        self.lived_s += lived_s
        self._since_round_s += lived_s
        late_s = self._since_round_s - self._heartbeat_s
        if late_s >= 0.0:
            self.rounds += 1
            self._since_round_s = late_s if late_s <= LATE_ROUNDS * self._heartbeat_s else 0.0

    def heard(self, worker: WorkerId) -> None:
        self._heard[worker] = self.rounds
        self._heard.move_to_end(worker)

    def watch(self, worker: WorkerId) -> None:
        """Expect to hear from it. One that is watched already gains no time by it: it was not heard."""
        self._heard.setdefault(worker, self.rounds)

    def unwatch(self, worker: WorkerId) -> None:
        """Its silence means nothing any more (until it is heard again)."""
        self._heard.pop(worker, None)

    def overdue(self) -> list[WorkerId]:
        """Those newly silent, longest silence first; each is told once, until it is heard again."""
        silent: list[WorkerId] = []
        last_good = self.rounds - 1 - self._max_missed  # heard in this round: just not too much was missed
        while self._heard:
            worker, heard_in = next(iter(self._heard.items()))
            if heard_in >= last_good:
                break
            del self._heard[worker]
            silent.append(worker)
        return silent
