"""The HTTP front of a node: the API, the page, and git for the mirrors that are on this node's disk."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from evermirror.config import Config, split_host_port
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import TokenUsed
from evermirror.errors import EnvironmentUnfit
from evermirror.faces.api.alert_metrics import AlertCollector, CredentialCollector
from evermirror.faces.api.app import create_app
from evermirror.faces.api.auth import Auth, AuthSettings
from evermirror.faces.api.event_hook_metrics import EventHookCollector
from evermirror.faces.api.event_metrics import EventCollector
from evermirror.faces.api.fleet_metrics import FleetCollector
from evermirror.faces.api.git_metrics import GitCollector
from evermirror.faces.api.git_service import GitService
from evermirror.faces.api.hook_metrics import HookCollector
from evermirror.faces.api.part_metrics import PartCollector
from evermirror.faces.api.pull_metrics import PullCollector
from evermirror.nodes.coordinator.lead import Lead
from evermirror.nodes.http_server import api_settings, serving_as_set

if TYPE_CHECKING:
    from evermirror.edge.git.serve import GitServer


@contextlib.asynccontextmanager
async def http_front(
    config: Config,
    sock: socket.socket,
    lead: Lead,
    served: GitService | None = None,
    server: GitServer | None = None,
) -> AsyncIterator[None]:
    """Serves as long as the block lasts; ``served`` are the mirrors that can be cloned here."""
    host, _ = split_host_port(config.server.listen)
    auth = Auth(
        lead.store,
        AuthSettings(
            tokens_required=config.auth.tokens_required,
            public_reads=config.auth.public_reads,
            listen_host=host,
            hosts=config.server.names,
        ),
        any_private=lead.store.any_private_repo,
        on_used=lambda token: lead.recorder.put_soon(TokenUsed(token.id, time.time())),
    )
    if server is not None:
        lead.metrics.registry.register(GitCollector(server.figures))
    lead.metrics.registry.register(FleetCollector(lead.admin.view))
    lead.metrics.registry.register(PullCollector(lead.pulling.totals))
    lead.metrics.registry.register(HookCollector(lead.hooks.figures))
    feed = lead.event_feed
    lead.metrics.registry.register(EventCollector(lambda: feed.told, lambda: feed.followers))
    lead.metrics.inside.register(AlertCollector(lead.alerts.figures))
    lead.metrics.inside.register(PartCollector(lead.supervisor.states))
    lead.metrics.inside.register(EventHookCollector(lead.events.figures))
    lead.metrics.inside.register(CredentialCollector(lead.credential_watch.expiries))
    settings = api_settings(config)
    app = create_app(
        lead.coordinator,
        auth,
        settings,
        lead.metrics,
        served,
        lead.catalog,
        lead.admin,
        lead.passes.read,
        lead.pull,
        alert_service=lead.alerts,
        discovery_service=lead.discovering,
        hook_service=lead.hooks,
        event_service=lead.events,
        bulk_service=lead.bulk,
    )
    async with serving_as_set(config, app, sock):
        try:
            yield
        finally:
            lead.coordinator.tasks.stop_waiting()
            lead.event_feed.stop()


async def check_exposure(config: Config, store: Store) -> None:
    """Without any token everybody who reaches us may write: then only this machine may reach us."""
    host, _ = split_host_port(config.server.listen)
    if host == "localhost" or ipaddress.ip_address(host).is_loopback or await store.any_tokens():
        return
    raise EnvironmentUnfit(
        f"refusing to listen on {config.server.listen} without any token",
        hint="Make one first: evermirror token create --role admin; or listen on 127.0.0.1",
    )
