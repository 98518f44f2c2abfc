"""When a commit that upstream does not have yet is looked for again.

    not there ──1 s──▶ look ──2 s──▶ look ──4 s──▶ look ──8 s──▶ … ──▶ the last look ──▶ given up
                                                                        a moment before the time is over

Whoever waits is told that it did not come while they still listen: so the last look is early enough for its
answer.
"""

from __future__ import annotations

from dataclasses import dataclass

GAP_FIRST_S = 1.0
GAP_MAX_S = 16.0  # a forge is slow by seconds; what takes longer is not held up by this either
ANSWER_S = 1.0  # for the last look to be answered; a tenth of the time where that is less
ANSWER_SHARE = 0.1


@dataclass(slots=True)
class Search:
    """One commit, looked for from ``since`` until ``until`` (UTC seconds)."""

    since: float
    until: float
    looks: int = 0  # that did not find it
    gap_s: float = GAP_FIRST_S

    @property
    def last_at(self) -> float:
        """When it is looked for the last time."""
        return self.until - min(ANSWER_S, ANSWER_SHARE * max(0.0, self.until - self.since))

    def missed(self, now: float) -> float | None:
        """A look did not find it: when the next one is, or None where that was the last."""
        self.looks += 1
        if now >= self.last_at:
            return None
        at = min(now + self.gap_s, self.last_at)
        self.gap_s = min(2 * self.gap_s, GAP_MAX_S)
        return at

    def joined(self, until: float) -> None:
        """Somebody else wants it too, until then: it is looked for as if anew."""
        self.until = max(self.until, until)
        self.gap_s = GAP_FIRST_S
