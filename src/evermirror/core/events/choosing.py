"""Which events somebody wants, and which everybody may see."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evermirror.core.events.globs import matching
from evermirror.model.event import Event, EventType

# What is told to those who show no token, of repos that are not private. Targets, tasks of others, workers,
# alerts and hooks are not theirs to know.
PUBLIC_TYPES = frozenset(
    type_.value
    for type_ in (
        EventType.REFS_CHANGED,
        EventType.SYNC_FAILED,
        EventType.SYNC_RECOVERED,
        EventType.SYNC_EXCUSED,
        EventType.REPO_ADDED,
        EventType.REPO_CHANGED,
        EventType.REPO_REMOVED,
        EventType.REPO_GONE,
        EventType.REPO_HELD,
    )
)

# In the place of very many of these, one by one, there is CATALOG_CHANGED: who wants some of them gets it,
# for it may be about theirs. Its figures count private repos too, and are not for everybody.
_IN_CATALOG_CHANGED = (EventType.REPO_ADDED, EventType.REPO_CHANGED, EventType.REPO_REMOVED)
_CATALOG_CHANGED = EventType.CATALOG_CHANGED.value


def choice(
    types: Sequence[str] = (), repos: Sequence[str] = (), worker: str = "", *, public_only: bool = False
) -> Callable[[Event], bool]:
    """Globs; none: all. With ``repos``, events that are about no repo are left out, but CATALOG_CHANGED."""
    of_type, of_repo = matching(types), matching(repos)
    wants = {type_.value: of_type(type_.value) for type_ in EventType}
    catalog = not (worker or public_only) and any(
        wants[t.value] for t in (EventType.CATALOG_CHANGED, *_IN_CATALOG_CHANGED)
    )

    def wanted(event: Event) -> bool:
        if is_whole_catalog(event):
            return catalog
        known = wants.get(event.type)  # one of a later version is in no table
        return (
            (of_type(event.type) if known is None else known)
            and (not public_only or is_public(event))
            and (not worker or event.worker == worker)
            and (not repos or (event.repo is not None and of_repo(event.repo)))
        )

    return wanted


def is_whole_catalog(event: Event) -> bool:
    """To those who show no token a gap: they read anew what they may see, and learn no figures."""
    return event.type == _CATALOG_CHANGED


def is_public(event: Event) -> bool:
    return event.public and event.type in PUBLIC_TYPES
