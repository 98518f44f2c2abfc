"""What the pull machine shows of itself: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evermirror.model.pull import Load
from evermirror.model.repo import Host, Priority


@dataclass(frozen=True, slots=True)
class PullView:
    """How it stands at a moment. ``load`` is None where nothing is known of it."""

    limit: int
    classes: tuple[Priority, ...]
    in_peak: bool
    at_night: bool
    running: int
    queued: Mapping[Priority, int]  # due, and waiting for room, by the class they are scheduled in
    load: Load | None
    closed_hosts: tuple[Host, ...]
    projects: int
