"""The brake: when very many workers turn silent at once, it is our own network that failed, not they.

          more than the share suspect              a person overrules
    off ───────────────────────────────▶ on ───────────────────────────▶ overruled
     ▲ ▲                                 │                                   │
     │ └──── no more than the share ─────┘                                   │
     └───────────────────── no more than the share ──────────────────────────┘

Rules
- Members are the workers that are alive or suspect; those down or retired were dealt with and do not count.
- While it is on nobody is declared down. Exactly the share is not more than it: of two workers, one may die.
- A fleet of which everybody is suspect is braked whatever the share, also a fleet of one: there is nobody who
  could take over.
- Overruled, it is off, and arms again once no more than the share is suspect. Overruling a brake that is
  off does nothing: it is no permission for the next time.
- When it goes off by itself, workers are coming back one by one, and those not yet back have long used up
  their grace. Who runs the brake starts their grace anew then, or the return of half would kill the others.
"""

from __future__ import annotations

from fractions import Fraction

SHARE_PARTS = 10_000  # a share is meant as written, to 0.01 %; in floats 29 is more than 0.29 of 100


class Brake:
    """``update`` after every change of the two numbers; ``on`` says whether to hold back."""

    __slots__ = ("_overruled", "_share", "on")

    def __init__(self, share: float) -> None:
        if not 0 <= share <= 1:
            raise ValueError(f"a share is from 0 to 1, got {share}")
        self.on = False
        self._overruled = False
        self._share = Fraction(share).limit_denominator(SHARE_PARTS)

    def update(self, suspects: int, members: int) -> bool:
        """So many of the members are suspect now; returns whether ``on`` changed."""
        if not 0 <= suspects <= members:
            raise ValueError(f"{suspects} suspects of {members} members")
        too_many = suspects > self._share * members or 0 < suspects == members
        self._overruled = self._overruled and too_many
        before, self.on = self.on, too_many and not self._overruled
        return self.on is not before

    def overrule(self) -> bool:
        """A person says that those suspects are really gone; returns whether ``on`` changed."""
        changed = self.on
        self._overruled = self._overruled or self.on
        self.on = False
        return changed
