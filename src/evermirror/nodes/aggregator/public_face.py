"""The public face of an aggregator, made from its parts: git from here, the rest from the coordinator."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from evermirror.config import Config, split_host_port
from evermirror.edge.git.serve import GitServer
from evermirror.faces.api.aggregator_app import create_aggregator_app
from evermirror.faces.api.aggregator_metrics import AggregatorCollector
from evermirror.faces.api.aggregator_state import AggregatorSources
from evermirror.faces.api.auth import Auth, AuthSettings
from evermirror.faces.api.git_metrics import GitCollector
from evermirror.faces.api.git_service import GitService
from evermirror.faces.api.part_metrics import PartCollector
from evermirror.faces.pass_on.app import PassOnSettings, create_pass_on
from evermirror.faces.pass_on.upstream import Upstream, http_client
from evermirror.nodes.aggregator.aggregator_relay import Reaching
from evermirror.nodes.aggregator.aggregator_uplink import AggregatorUplink
from evermirror.nodes.aggregator.collecting import Collecting
from evermirror.nodes.aggregator.remote_tokens import RemoteTokens
from evermirror.nodes.http_server import api_settings
from evermirror.nodes.supervisor import PartState

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FaceParts:
    """What is shown, and who serves it; ``coordinator`` is its gRPC address."""

    config: Config
    coordinator: str
    uplink: AggregatorUplink
    collecting: Collecting
    reached: Reaching
    served: GitService
    any_private: Callable[[], Awaitable[bool]]
    server: GitServer
    part_states: Callable[[], tuple[PartState, ...]]
    clock: Callable[[], float]


@contextlib.asynccontextmanager
async def public_face(parts: FaceParts) -> AsyncIterator[ASGIApp]:
    """The application, for as long as the block lasts."""
    config, uplink, collecting = parts.config, parts.uplink, parts.collecting
    url = CoordinatorUrl(
        config, parts.coordinator, lambda: uplink.welcomed.http_url if uplink.welcomed is not None else ""
    )
    async with http_client(config.upstreams.ca_file) as client:
        tokens = RemoteTokens(
            client, url, show=lambda: upstream.own_headers(), any_token=lambda: uplink.user_tokens
        )
        upstream = Upstream(client, url, lambda: good_pass(uplink), parts.clock, heard=tokens.heard)
        auth = _auth(config, tokens, parts.any_private)
        state = AggregatorSources(
            lambda: (
                uplink.welcomed.name if uplink.welcomed else config.aggregator.name or socket.gethostname()
            ),
            config.aggregator.mode,
            collecting.figures,
            uplink.status,
            lambda: uplink.state,
            lambda: upstream.state,
            parts.reached.figures,
        )
        yield create_aggregator_app(
            parts.served,
            auth,
            api_settings(config),
            _registry(parts),
            lambda: ready(uplink, collecting),
            create_pass_on(upstream, auth, PassOnSettings(silence_s=config.serve.silence)),
            state,
        )


def _auth(config: Config, tokens: RemoteTokens, any_private: Callable[[], Awaitable[bool]]) -> Auth:
    """The coordinator knows the tokens. Without one nobody is more than the public, also on this machine."""
    host, _ = split_host_port(config.server.listen)
    settings = AuthSettings(
        tokens_required=True,
        public_reads=config.auth.public_reads,
        listen_host=host,
        hosts=config.server.names,
    )
    return Auth(tokens, settings, any_private=any_private)


def _registry(parts: FaceParts) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(GitCollector(parts.server.figures))
    registry.register(
        AggregatorCollector(parts.collecting.figures, parts.reached.figures, lambda: parts.uplink.connected)
    )
    registry.register(PartCollector(parts.part_states))
    return registry


def ready(uplink: AggregatorUplink, collecting: Collecting) -> tuple[bool, str]:
    """What was collected is served without the coordinator too, also after a restart."""
    if uplink.connected:
        return True, "serving"
    if uplink.welcomed is not None or collecting.figures().repos.repos:
        return True, "serving; the coordinator is away"
    return False, f"not yet let in by its coordinator: {uplink.state.reason or uplink.state.phase.value}"


class CoordinatorUrl:
    """As set; else as the coordinator tells it, where that can be reached from here.

    ``grpc`` is its gRPC address: whoever listens everywhere is reached by that host; one that listens on its
    own machine only, by nobody on another: at that address we would meet somebody else, perhaps ourselves."""

    def __init__(self, config: Config, grpc: str, told: Callable[[], str]) -> None:
        self._set = (config.aggregator.coordinator_url or "").rstrip("/")
        self._host = split_host_port(grpc)[0]
        self._told = told
        self._complained = ""

    def __call__(self) -> str:
        """Empty while it is not known."""
        if self._set:
            return self._set
        told = self._told().rstrip("/")
        url = reachable_url(told, self._host) if told else ""
        if told and not url and told != self._complained:
            self._complained = told
            log.warning(
                "the coordinator's API cannot be reached from here: it listens on its own machine only",
                told=told,
                hint="set server.listen there, or aggregator.coordinator_url here",
            )
        return url


def reachable_url(told: str, grpc_host: str) -> str:
    """``told``, with the host by which we reach the coordinator where it listens everywhere; or nothing."""
    try:
        parts = urlsplit(told)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if _is(host, "is_unspecified"):
        shown = f"[{grpc_host}]" if ":" in grpc_host else grpc_host
        return f"{parts.scheme}://{shown}:{port}" if port else f"{parts.scheme}://{shown}"
    if _is(host, "is_loopback") and not _is(grpc_host, "is_loopback"):
        return ""
    return told


def _is(host: str, what: str) -> bool:
    if host == "localhost":
        return what == "is_loopback"
    try:
        return bool(getattr(ipaddress.ip_address(host), what))
    except ValueError:
        return False


def good_pass(uplink: AggregatorUplink) -> str:
    """Empty where there is none, or it has ended by the clock of the coordinator that gave it."""
    access = uplink.access
    return access.pass_ if access is not None and access.until > uplink.coordinator_clock() else ""
