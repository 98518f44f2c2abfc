"""Alerts made from settings: who is told what, on which channel, in which language."""

from __future__ import annotations

import socket
from collections.abc import Callable

from evermirror.config import Config
from evermirror.core.watch.events import AlertSettings, Channel
from evermirror.edge.store.store import Store
from evermirror.model.alert import Level
from evermirror.nodes.coordinator.alerts.alerting import Alerting
from evermirror.nodes.senders import make_senders


async def make_alerting(config: Config, store: Store, clock: Callable[[], float]) -> Alerting:
    """With what the store has."""
    return await Alerting.load(alert_settings(config), store=store, senders=make_senders(config), clock=clock)


def alert_settings(config: Config) -> AlertSettings:
    section = config.alerts
    channels = tuple(
        Channel(
            name,
            channel.type,
            Level(channel.min_level),
            channel.kinds,
            section.language if channel.language == "auto" else channel.language,
        )
        for name, channel in config.channels.items()
    )
    return AlertSettings(
        channels=channels,
        server=section.server or socket.gethostname(),
        retention_s=section.retention,
        settle_s=section.settle,
        per_minute=section.per_minute,
        give_up_s=section.give_up,
        standing_max=section.standing_max,
        waiting_max=section.waiting_max,
        items_max=section.digest_items,
    )
