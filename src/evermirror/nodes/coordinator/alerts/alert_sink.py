"""Where parts of the coordinator tell what people should know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from evermirror.model.alert import Alert


class AlertSink(Protocol):
    """Telling takes no time and does not fail; whether and whom it reaches is decided elsewhere."""

    def told(self, alert: Alert) -> None:
        """Something is so, or no longer. It may be told again and again."""
        ...

    def stand(self, kinds: frozenset[str], alerts: Iterable[Alert]) -> None:
        """The whole truth about these kinds: what else of them stood, is over."""
        ...

    def stands(self, kinds: frozenset[str]) -> tuple[Alert, ...]:
        """What is known to stand of these kinds, as it was told last."""
        ...
