"""Upstreams of the simulated world: refs that move, sometimes back, sometimes by a loss, sometimes away."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from evermirror.model.refs import RefsDigest
from evermirror.model.repo import RepoSpec


def digest_of(text: str) -> RefsDigest:
    return RefsDigest(hashlib.sha256(text.encode()).hexdigest())


@dataclass(slots=True)
class Upstream:
    """One repo. ``history`` has every digest it ever had, the present one last; ``loss`` says that the last
    push looks like one, so that guards hold it back."""

    spec: RepoSpec
    history: list[RefsDigest] = field(default_factory=list)
    pushes: int = 0
    away_until: float = 0.0
    loss: bool = False

    @property
    def digest(self) -> RefsDigest:
        return self.history[-1]

    def push(self, *, loss: bool = False) -> None:
        self.pushes += 1
        self.history.append(digest_of(f"{self.spec.key} {self.pushes}"))
        self.loss = loss

    def go_back(self) -> None:
        """A push that takes the one before back."""
        if len(self.history) > 1:
            self.history.append(self.history[-2])
            self.loss = False

    def ask(self, now: float) -> RefsDigest | None:
        return None if now < self.away_until else self.digest
