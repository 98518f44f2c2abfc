"""Pages of a group, as far as they can be used, and within bounds."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from evermirror.edge.forge.api import ForgeApi
from evermirror.model.discovery import DiscoverySpec, RunState
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.forge import FoundProject, Group, Identity, Page

log = structlog.get_logger(__name__)

PROJECTS_MAX = 20_000  # of one discovery
PAGES_MAX = 2_000  # a forge that has no end of pages is not followed for ever
ID_MAX_CHARS = 200
PATH_MAX_CHARS = 500  # twice what forges take


async def who_are_we(api: ForgeApi) -> Identity | None:
    """Whom the forge takes us for; None: it does not say, or we have no token. Raises FailureError, where it
    takes us for nobody although we have one."""
    facts = await api.token()
    return None if facts is None else facts.identity


async def list_page(api: ForgeApi, group: Group, spec: DiscoverySpec, run: RunState) -> Page:
    """The next page; raises FailureError, also for one that leads nowhere."""
    page = await api.projects(group, subgroups=spec.subgroups, archived=spec.archived, after=run.cursor)
    if page.next is not None and page.next == run.cursor:
        raise FailureError(Failure(FailureKind.UNKNOWN, "the forge's list of projects goes in circles"))
    return page


def usable(items: Iterable[FoundProject]) -> tuple[FoundProject, ...]:
    """Without what no forge has: ids and paths that are empty, huge, or cannot be printed."""
    found = tuple(items)
    kept = tuple(project for project in found if _is_usable(project))
    if len(kept) < len(found):
        log.warning(
            "projects of a forge passed over: their ids or paths are unusable",
            projects=len(found) - len(kept),
        )
    return kept


def check_bounds(run: RunState) -> None:
    """Raises FailureError where there are too many."""
    if run.found > PROJECTS_MAX or run.pages > PAGES_MAX:
        raise FailureError(
            Failure(
                FailureKind.CONFLICT,
                f"there are more than {PROJECTS_MAX} projects in this group",
                hint="Discover its subgroups one by one",
            )
        )


def _is_usable(project: FoundProject) -> bool:
    id_, path = project.id, project.path
    return 0 < len(id_) <= ID_MAX_CHARS and 0 < len(path) <= PATH_MAX_CHARS and (id_ + path).isprintable()
