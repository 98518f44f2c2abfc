"""What the API needs in order to serve git: a way to open a mirror, and git's two answers as streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from evermirror.model.repo import RepoKey


@dataclass(frozen=True, slots=True)
class ServedRepo:
    """A mirror that can be served now."""

    key: RepoKey
    path: Path
    private: bool
    verified_at: float | None  # equal to upstream at this time


class GitBusy(Exception):
    """No room for another client now."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"busy for {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class NotHereYet(Exception):
    """In the catalog, but not on this node's disk now; ``reason`` is one line for whoever clones."""

    def __init__(self, reason: str, retry_after_s: float) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s


class GitService(Protocol):
    """``advertise`` and ``upload_pack`` give the complete bodies of git's HTTP answers.

    They may raise GitBusy before the first byte, and end their git when closed. ``client`` is whom
    the limits for each client are about."""

    async def open(self, key: str, *, begun: bool = False, private: bool = True) -> ServedRepo | None:
        """``begun``: the client was told of this mirror before; one just removed is still given to it.
        ``private``: whether it may see private mirrors; where not, they do not exist. May raise
        NotHereYet, also after a wait for a mirror that is being fetched."""
        ...

    def advertise(self, repo: ServedRepo, protocol: str, client: str) -> AsyncIterator[bytes]: ...

    def upload_pack(
        self, repo: ServedRepo, body: AsyncIterator[bytes], protocol: str, client: str
    ) -> AsyncIterator[bytes]: ...
