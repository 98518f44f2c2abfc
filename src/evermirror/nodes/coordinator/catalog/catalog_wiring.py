"""The catalog's watch and publisher, made from the settings; apart from a worker's wiring, which has none."""

from __future__ import annotations

import random

from evermirror.config import Config
from evermirror.edge.catalog.clone import GitTree, open_trees
from evermirror.edge.catalog.files import FileTree
from evermirror.edge.git.credentials import Credentials
from evermirror.edge.store.store import Store
from evermirror.nodes.basics import git_settings, url_rules
from evermirror.nodes.clock import SteadyClock
from evermirror.nodes.coordinator.catalog.catalog_publish import CatalogPublisher
from evermirror.nodes.coordinator.catalog.catalog_records import CatalogRecords
from evermirror.nodes.coordinator.catalog.catalog_watch import CatalogSettings, CatalogWatch
from evermirror.nodes.coordinator.coordinator import Coordinator


def catalog_settings(config: Config, *, accept_removals: bool) -> CatalogSettings:
    section = config.catalog
    return CatalogSettings(
        section.sources,
        section.interval,
        accept_removals,
        section.max_removed_share,
        section.max_removed_least,
    )


def catalog_trees(config: Config, credentials: Credentials) -> list[FileTree | GitTree]:
    return open_trees(config.catalog.sources, config.data.dir / "catalog", git_settings(config), credentials)


def make_catalog(
    config: Config,
    credentials: Credentials,
    store: Store,
    coordinator: Coordinator,
    clock: SteadyClock,
    *,
    accept_removals: bool,
) -> tuple[CatalogWatch, CatalogPublisher | None]:
    """The watch over all sources, and, where one is writable, who writes what the API adds."""
    trees = catalog_trees(config, credentials)
    watches: list[CatalogWatch] = []
    publisher = None
    for tree in trees:
        if isinstance(tree, GitTree) and tree.source.writable:
            chance = random.Random()  # noqa: S311 - spreads retries, guards nothing
            publisher = CatalogPublisher(tree, store, chance, lambda: watches[0].look_now())
    own_file = publisher.own_file if publisher is not None else None
    watch = CatalogWatch(
        settings=catalog_settings(config, accept_removals=accept_removals),
        trees=trees,
        store=store,
        records=CatalogRecords(store, coordinator, frozenset(config.credentials), own_file),
        rules=url_rules(config),
        clock=clock,
        index=config.data.dir / "catalog" / "index",
    )
    watches.append(watch)
    coordinator.add_warnings(lambda: watch.warnings)
    if publisher is not None:
        coordinator.add_warnings(lambda: publisher.warnings)
        coordinator.on_api_change = publisher.changed
    return watch, publisher
