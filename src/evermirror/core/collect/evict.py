"""What pull-through mode lets go of above the disk's mark: the least used, and no more than is needed."""

from __future__ import annotations

from collections.abc import Callable

from evermirror.core.collect.events import DiskTold
from evermirror.core.collect.rows import Row
from evermirror.core.collect.settings import CollectSettings
from evermirror.model.repo import RepoKey


def to_evict(
    disk: DiskTold, leaving_bytes: int, busy: Callable[[RepoKey], bool], settings: CollectSettings
) -> list[Row]:
    """In the order given, until the lower mark is reached; what is read, fetched or waited for stays.

    ``leaving_bytes`` is what is being deleted already and still counts as used."""
    if disk.used_share < settings.disk_high:
        return []
    over = (disk.used_share - settings.disk_low) * disk.total_bytes - leaving_bytes
    chosen: list[Row] = []
    for item in disk.least_used:
        if over <= 0 or len(chosen) >= settings.evict_batch:
            break
        if item.read or item.row.here is None or busy(item.row.key):
            continue
        chosen.append(item.row)
        over -= item.row.here.size_bytes
    return chosen
