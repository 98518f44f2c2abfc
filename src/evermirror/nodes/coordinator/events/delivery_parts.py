"""Deliveries made from settings."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from evermirror.config import Config
from evermirror.config import EventHook as HookSettings
from evermirror.edge.notify.receiver import Receiver
from evermirror.edge.store.store import Store
from evermirror.model.delivery import EventHook
from evermirror.nodes.coordinator.alerts.alert_sink import AlertSink
from evermirror.nodes.coordinator.events.delivering import Delivering
from evermirror.nodes.coordinator.events.delivery_line import HookParts, News
from evermirror.nodes.supervisor import Supervisor


async def make_delivering(
    config: Config,
    store: Store,
    news: News,
    alerts: AlertSink,
    clock: Callable[[], float],
    supervisor: Supervisor,
) -> Delivering:
    """With what the store knows of each hook."""
    hooks = hook_parts(config)
    delivering = Delivering(
        hooks, store=store, news=news, tell=alerts.told, clock=clock, supervisor=supervisor
    )
    await delivering.load()
    return delivering


def hook_parts(config: Config) -> Mapping[str, HookParts]:
    """By name. Nothing is opened yet."""
    return {name: _parts(name, settings) for name, settings in config.event_hooks.items()}


def _parts(name: str, settings: HookSettings) -> HookParts:
    url = settings.url.get_secret_value() if settings.url else ""
    secret = settings.secret.get_secret_value() if settings.secret else ""
    mark = hashlib.sha256("\n".join((url, secret, str(settings.ca_file))).encode()).hexdigest()
    return HookParts(
        EventHook(name, settings.types, settings.repos, settings.batch),
        Receiver(name, url, secret, ca_file=settings.ca_file),
        settings.enabled,
        mark,
    )
