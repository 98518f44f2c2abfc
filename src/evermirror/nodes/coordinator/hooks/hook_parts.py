"""Hooks that come in made from settings: who may send them, and which repos they are about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from evermirror.config import Config
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.model.messages import Report
from evermirror.model.repo import RepoKey, RepoRecord
from evermirror.nodes.basics import url_rules
from evermirror.nodes.clock import uptime
from evermirror.nodes.coordinator.alerts.alert_sink import AlertSink
from evermirror.nodes.coordinator.coordinator import Coordinator
from evermirror.nodes.coordinator.hooks.hook_checking import HookChecking
from evermirror.nodes.coordinator.hooks.hook_looks import HookLooks
from evermirror.nodes.coordinator.hooks.hook_renames import HookRenames
from evermirror.nodes.coordinator.hooks.hooking import Hooking
from evermirror.nodes.coordinator.pull.pulling import Pulling
from evermirror.nodes.service import RepoFilter


class Observers:
    """Each hears of every report."""

    def __init__(self, *those: Callable[[Report], None]) -> None:
        self._those = list(those)

    def add(self, one: Callable[[Report], None]) -> None:
        self._those.append(one)

    def __call__(self, report: Report) -> None:
        for one in self._those:
            one(report)


class HookedCatalog:
    """What hooks need to know of the catalog, and may do to it."""

    def __init__(self, store: Store, coordinator: Coordinator, pulling: Pulling) -> None:
        self._store = store
        self._coordinator = coordinator
        self._pulling = pulling

    async def known(self, keys: Sequence[RepoKey]) -> Mapping[RepoKey, RepoRecord]:
        return await self._store.find_repos(keys)

    async def left(self, keys: Sequence[RepoKey]) -> frozenset[RepoKey]:
        return frozenset(await self._store.find_repos(keys, removed=True)) if keys else frozenset()

    def is_off(self, record: RepoRecord) -> str:
        project = self._pulling.project(record.key)
        if not record.enabled:
            return "it is disabled"
        return "its pull mirroring is disabled" if project is not None and not project.config.enabled else ""

    def is_ours(self, key: RepoKey) -> bool:
        repo = self._coordinator.fleet.machine.repo(key)
        return repo is not None and not repo.removed

    async def has_host(self, host: str) -> bool:
        return bool(await self._store.list_repos(RepoFilter(host=host, limit=1)))

    async def add(self, url: str, *, actor: str) -> RepoKey:
        return (await self._coordinator.add_url(url, None, actor=actor))[1].key


def make_hooking(
    config: Config,
    store: Store,
    recorder: Recorder,
    coordinator: Coordinator,
    pulling: Pulling,
    alerts: AlertSink,
    clock: Callable[[], float],
) -> Hooking:
    catalog = HookedCatalog(store, coordinator, pulling)
    hooking = Hooking(
        HookChecking(url_rules(config), clock),
        HookLooks(coordinator.tasks, pulling, catalog.is_ours, uptime),
        HookRenames(recorder, alerts, clock),
        catalog,
        clock,
    )
    configure_hooks(hooking, config)
    return hooking


def configure_hooks(hooking: Hooking, config: Config) -> None:
    """What needs no restart."""
    hooking.configure(config.webhooks.as_secrets(), adds_unknown=config.webhooks.unknown == "add")
