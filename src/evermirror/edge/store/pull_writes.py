"""What becomes of projects and their targets, saved in batches.

A save may have waited while a person changed the project. Such a change moves the project's ``updated_at``
(pull.py), and a save of an older one then changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.edge.store import pull_rows, rows
from evermirror.edge.store.tables import pull_projects, pull_targets, repos
from evermirror.model.pull import Project, PullConfig, Target
from evermirror.model.push import TargetId
from evermirror.model.repo import Host, RepoKey


async def save(c: AsyncConnection, projects: Iterable[Project]) -> None:
    """In their order: of two saves of one project the last counts."""
    known = [project for project in projects if rows.storable(project.key)]
    if not known:
        return
    await c.execute(_SAVE_PROJECT, [_project_param(project) for project in known])
    targets = [_target_param(project, target) for project in known for target in project.targets]
    if targets:
        await c.execute(_SAVE_TARGET, targets)


def _project_param(project: Project) -> dict[str, Any]:
    return _named(pull_rows.project_state_in(project)) | _which(project)


def _target_param(project: Project, target: Target) -> dict[str, Any]:
    return _named(pull_rows.target_state_in(target)) | _which(project) | {"p_id": target.id}


def _which(project: Project) -> dict[str, Any]:
    return {"p_key": project.key, "p_version": project.updated_at}


def _named(values: dict[str, Any]) -> dict[str, Any]:
    return {f"p_{name}": value for name, value in values.items()}


def _set(names: Iterable[str]) -> dict[str, sa.BindParameter[Any]]:
    return {name: sa.bindparam(f"p_{name}") for name in names}


_REPO = sa.select(repos.c.id).where(repos.c.key == sa.bindparam("p_key")).scalar_subquery()
_NOT_OLDER = pull_projects.c.updated_at <= sa.bindparam("p_version", type_=sa.Double())

_PROJECT = Project(RepoKey(""), "", Host(""), PullConfig())
_SAVE_PROJECT = (
    pull_projects.update()
    .where(pull_projects.c.repo == _REPO, _NOT_OLDER)
    .values(_set(pull_rows.project_state_in(_PROJECT)))
)
_SAVE_TARGET = (
    pull_targets.update()
    .where(
        pull_targets.c.id == sa.bindparam("p_id"),
        pull_targets.c.repo == _REPO,
        sa.exists().where(pull_projects.c.repo == pull_targets.c.repo, _NOT_OLDER),
    )
    .values(_set(pull_rows.target_state_in(Target(TargetId(0), ""))))
)
