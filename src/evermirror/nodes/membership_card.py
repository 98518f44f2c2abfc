"""What a node keeps of its joining: the coordinator's address, its token, the CA that the token names."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import evermirror
from evermirror.config import Config, split_host_port
from evermirror.edge.rpc.client import GrpcDialer
from evermirror.edge.rpc.join import NotListening, fetch_ca, split_join_token
from evermirror.edge.rpc.pki import ca_fingerprint
from evermirror.edge.rpc.transport import Connection, PeerGone
from evermirror.errors import EnvironmentUnfit, EvermirrorError, UsageError
from evermirror.model.access import Role
from evermirror.model.failure import Failure
from evermirror.model.wire import PROTOCOL, Hello, Rejected, Welcomed
from evermirror.nodes.data_folder import with_absolute_data

FILE = "joined.json"
CA_FILE = "coordinator-ca.pem"
LISTENS_S = 15.0  # an all-in-one looks for its first token every 5 s
TRY_AGAIN_S = 0.5
ANSWER_S = 30.0  # for the coordinator's word on a node that asks whether it may join


@dataclass(frozen=True, slots=True)
class Card:
    """``token`` is whole, with the CA's fingerprint where it has one."""

    coordinator: str
    token: str


def card_of(config: Config, role: Role = Role.WORKER) -> Card:
    """From the settings, else from an earlier join."""
    said = config.aggregator if role is Role.AGGREGATOR else config.worker
    if said.coordinator is not None and said.token is not None:
        return Card(said.coordinator, said.token.get_secret_value())
    node = role.value
    hint = (
        f"Join once with `evermirror {node} join HOST:PORT TOKEN`, or set {node}.coordinator and {node}.token"
    )
    try:
        kept = json.loads((config.data.dir / FILE).read_text("utf-8"))
        return Card(said.coordinator or kept["coordinator"], kept["token"])
    except FileNotFoundError:
        raise UsageError(f"this {node} has not joined a coordinator yet", hint=hint) from None
    except (OSError, ValueError, KeyError) as error:
        raise EnvironmentUnfit(f"{FILE} in the data folder cannot be read: {error}", hint=hint) from None


async def join(config: Config, card: Card, role: Role, *, waiting: Callable[[Failure], None]) -> str:
    """Ask the coordinator whether it lets this node in, keep what is needed for that, and return the node's
    name. Nothing is kept where the coordinator refuses. An all-in-one begins to listen when its first token
    for a node was made: until then, and not long, it is waited for; ``waiting`` is told once."""
    config = with_absolute_data(config)
    until = time.monotonic() + LISTENS_S
    told = False
    while True:
        try:
            connection = await (await dialer_of(config, card)).dial()
            break
        except NotListening as error:
            if time.monotonic() >= until:
                raise
            if not told:
                waiting(error.failure)
            told = True
            await asyncio.sleep(TRY_AGAIN_S)
    try:
        async with asyncio.timeout(ANSWER_S):
            name = await _tried(connection, config, role)
    except PeerGone as gone:
        raise EvermirrorError(f"{card.coordinator} ended the connection: {gone}") from None
    except TimeoutError:
        raise EvermirrorError(
            f"{card.coordinator} did not say within {ANSWER_S:g} s whether it lets this {role.value} in",
            hint="It may be starting: try again in a minute",
        ) from None
    finally:
        await connection.close()
    keep_card(config.data.dir, card)
    return name


async def _tried(connection: Connection, config: Config, role: Role) -> str:
    """Its name, as the coordinator has it. Raises EvermirrorError where it is refused, PeerGone."""
    said = config.aggregator if role is Role.AGGREGATOR else config.worker
    await connection.send(
        Hello(
            protocol=PROTOCOL,
            version=evermirror.__version__,
            name=said.name or "",
            boot=secrets.randbits(63),
            generation=0,
            weight=config.worker.weight,
            capacity=config.worker.capacity,
            role=role,
            refs_extra=config.upstreams.refs_extra,
            trial=True,
        )
    )
    match frame := await connection.receive():
        case Welcomed(name=name):
            return name
        case Rejected(reason):
            raise EvermirrorError(f"the coordinator refuses this {role.value}: {reason}")
        case _:
            raise PeerGone(f"it began with {type(frame).__name__}")


class LateDialer:
    """Fetches the CA with the first connection: a coordinator that is away keeps no node from starting."""

    def __init__(self, config: Config, card: Card) -> None:
        self._config = config
        self._card = card

    async def dial(self) -> Connection:
        return await (await dialer_of(self._config, self._card)).dial()


def keep_card(folder: Path, card: Card) -> None:
    """For the next starts; nobody else may read it."""
    _write(folder / FILE, json.dumps({"coordinator": card.coordinator, "token": card.token}).encode())


async def dialer_of(config: Config, card: Card) -> GrpcDialer:
    """Verified by the CA that the token names, fetched once; without a fingerprint by the public CAs."""
    secret, fingerprint = split_join_token(card.token)
    if fingerprint is None:
        return GrpcDialer(card.coordinator, secret)
    place = config.data.dir / CA_FILE
    pem = _kept_ca(place, fingerprint)
    if pem is None:
        host, port = split_host_port(card.coordinator)
        pem = await fetch_ca(host, port, fingerprint)
        _write(place, pem)
    return GrpcDialer(card.coordinator, secret, ca_pem=pem)


def _kept_ca(place: Path, fingerprint: str) -> bytes | None:
    try:
        pem = place.read_bytes()
        return pem if ca_fingerprint(pem) == fingerprint else None
    except (OSError, ValueError):
        return None


def _write(place: Path, content: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = place.with_name(place.name + ".new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(place)
