"""Reads whole sources once, to say what of them would be mirrored and what has problems; changes nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evermirror.core.catalog.entry import Problem
from evermirror.edge.catalog.clone import open_trees
from evermirror.edge.catalog.reader import CatalogReader
from evermirror.edge.git.credentials import Credentials
from evermirror.edge.git.environment import GitSettings
from evermirror.errors import EvermirrorError
from evermirror.model.failure import FailureError
from evermirror.model.source import CatalogSource
from evermirror.model.url import UrlRules


@dataclass(frozen=True, slots=True)
class Checked:
    """What sources hold."""

    repos: int
    files: int
    problems: tuple[Problem, ...]  # at most 100,000
    problems_total: int


async def check_sources(
    sources: Sequence[CatalogSource], rules: UrlRules, settings: GitSettings, credentials: Credentials
) -> Checked:
    """Clones what is in git to a folder that is removed again. A source that cannot be read is an error."""
    with tempfile.TemporaryDirectory(prefix="evermirror-check-") as folder:
        there = Path(folder)
        trees = open_trees(sources, there / "catalog", replace(settings, data_dir=there), credentials)
        reader = CatalogReader(trees, rules)
        try:
            reader.begin([await tree.look() for tree in trees])
            async for _ in reader.load():
                pass
        except FailureError as error:
            raise EvermirrorError(
                f"the catalog cannot be read: {error.failure.message}", hint=error.failure.hint
            ) from error
        catalog = reader.catalog
        return Checked(catalog.total, reader.files, tuple(catalog.problems()), catalog.problems_total)
