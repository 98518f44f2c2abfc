"""What every channel promises: a message is delivered, or it is told why not."""

from __future__ import annotations

from typing import Protocol

from evermirror.model.alert import Message


class NotSent(Exception):
    """A message did not go out. ``reason`` is for people and holds no secret; ``permanent``: the message is
    what was refused. Wrong settings are not permanent: a person mends them, and then it goes out."""

    def __init__(self, reason: str, *, permanent: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.permanent = permanent
        self.retry_after_s = retry_after_s


class Sender(Protocol):
    """One channel. Never takes longer than its timeout; raises nothing but ``NotSent``."""

    async def send(self, message: Message) -> str | None:
        """Returns once the other side has taken it; with what it has against it all the same, for people and
        without a secret: such as that some of the recipients are refused."""
        ...
