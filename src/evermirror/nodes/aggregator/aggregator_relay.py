"""How an aggregator reaches holders: through the relay that it runs, or through other nodes'."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import structlog

from evermirror.config import Config, split_host_port
from evermirror.edge.relay.ask import Reach
from evermirror.edge.relay.asking import AskingLines
from evermirror.edge.relay.certificate import own_certificate
from evermirror.edge.relay.last_port import last_port, note_port
from evermirror.edge.relay.seal import Unsealer
from evermirror.edge.relay.server import RelayFigures, RelayServer
from evermirror.edge.rpc.server import is_loopback
from evermirror.model.relay import RelayAddress
from evermirror.model.wire import Access

log = structlog.get_logger(__name__)

_WILD = ("0.0.0.0", "::")  # noqa: S104 (compared, not listened on)


@dataclass(frozen=True, slots=True)
class Reaching:
    """``address`` is this process's own relay, as others reach it; ``tell_arrivals`` who wants to know when a
    holder has come to it."""

    reach: Reach
    address: RelayAddress | None
    figures: Callable[[], RelayFigures | None]
    on_access: Callable[[Access], None]
    tell_arrivals: Callable[[Callable[[], None]], None] = lambda _: None


@contextlib.asynccontextmanager
async def reaching(
    config: Config,
    coordinator: str,
    unsealer: Callable[[], Unsealer | None],
    clock: Callable[[], float],
) -> AsyncIterator[Reaching]:
    """As long as the block lasts; ``coordinator`` is its address, by which we know our own side's."""
    if not config.relay.enabled:
        lines = AskingLines()
        try:
            yield Reaching(lines, None, lambda: None, lines.set_access)
        finally:
            lines.close()
        return
    async with relaying(config, lambda: _own_side(coordinator), unsealer, clock) as (server, address):
        if is_loopback(address.address) and not is_loopback(coordinator):
            hint = "set relay.listen, and relay.address where that is not what they see"
            log.warning("workers of other machines cannot reach this relay", at=address.address, hint=hint)

        def tell_arrivals(who: Callable[[], None]) -> None:
            server.on_arrival = who

        yield Reaching(
            server, address, server.figures, lambda access: server.deny(access.denied), tell_arrivals
        )


@contextlib.asynccontextmanager
async def relaying(
    config: Config,
    own_host: Callable[[], str],
    unsealer: Callable[[], Unsealer | None],
    clock: Callable[[], float],
) -> AsyncIterator[tuple[RelayServer, RelayAddress]]:
    """A relay in this process, and where others reach it: as set, or at ``own_host`` where it listens
    everywhere."""
    host, port = relay_listen(config)
    folder = config.data.dir / "relay"
    certificate = own_certificate(folder)
    again = last_port(folder)
    async with RelayServer((host, port), certificate, unsealer, clock=clock, last_port=again) as server:
        if server.port not in (port, again):
            note_port(folder, server.port)
        outside = host if host not in _WILD else own_host()
        address = config.relay.address or f"{f'[{outside}]' if ':' in outside else outside}:{server.port}"
        yield server, RelayAddress(address, certificate.fingerprint)


def relay_listen(config: Config) -> tuple[str, int]:
    """As set; else beside the HTTP port."""
    if config.relay.listen is not None:
        return split_host_port(config.relay.listen)
    return split_host_port(config.server.listen)[0], 0


def public_url(config: Config, url: str, coordinator: str) -> str:
    """Where people clone from this process: as set; else ``url``, with an address of this machine where it
    listens everywhere."""
    if config.aggregator.public_url is not None:
        return config.aggregator.public_url
    parts = urlsplit(url)
    if (parts.hostname or "") not in _WILD:
        return url
    outside = _own_side(coordinator)
    return f"{parts.scheme}://{f'[{outside}]' if ':' in outside else outside}:{parts.port}"


def _own_side(coordinator: str) -> str:
    """The address by which this machine goes there; nothing is sent."""
    host, port = split_host_port(coordinator)
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port or 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()
