"""The first word of a connection, and whether whoever says it may stay: the same for every kind of node."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from evermirror.edge.rpc.transport import Identity, Peer, PeerGone
from evermirror.model.access import Role
from evermirror.model.wire import PROTOCOL_OLDEST, Hello, Rejected

HELLO_S = 10.0  # a connection that does not say who it is ends
NAME_MAX = 100  # characters, as the setting
PROTOCOL_OF_AGGREGATORS = 2  # the first that has them

_A = {Role.WORKER: "a worker", Role.AGGREGATOR: "an aggregator"}


async def hello_of(peer: Peer) -> Hello:
    """With a name: a node that does not say one is named as its token. Raises PeerGone, or TimeoutError."""
    async with asyncio.timeout(HELLO_S):
        hello = await peer.receive()
    if not isinstance(hello, Hello):
        raise PeerGone("the first frame must be a hello")
    token = peer.identity
    return replace(hello, name=hello.name or token.name or f"{token.role.value}-{token.token_id}")


def refusal(
    hello: Hello, identity: Identity, role: Role, refs_extra: tuple[str, ...] = ()
) -> Rejected | None:
    """Why this one may not be a node of that role; None where it may. ``refs_extra`` is what the fleet
    mirrors besides branches and tags: with others no digest of this node would equal anybody's."""
    told = hello.role
    if told is None and hello.protocol < PROTOCOL_OF_AGGREGATORS:
        told = Role.WORKER  # there was nothing else
    if identity.role is not role:
        return _other_token(identity.role, role)
    if told not in (None, role):
        return _other_token(role, told)
    oldest = PROTOCOL_OF_AGGREGATORS if role is Role.AGGREGATOR else PROTOCOL_OLDEST
    if hello.protocol < oldest:
        reason = f"protocol {hello.protocol} is too old, {oldest} is needed: upgrade the {role.value}"
        return Rejected(reason, final=True)
    if hello.protocol >= PROTOCOL_OF_AGGREGATORS and set(hello.refs_extra) != set(refs_extra):
        reason = f"it mirrors other refs than the fleet: set upstreams.refs_extra to {list(refs_extra)}"
        return Rejected(reason, final=True)
    if not hello.name.isprintable() or "/" in hello.name or not 0 < len(hello.name.strip()) <= NAME_MAX:
        reason = f"{hello.name!r} is no name for {_A[role]}: printable, without a slash, at most {NAME_MAX}"
        return Rejected(reason, final=True)
    return None


def _other_token(has: Role, needs: Role | None) -> Rejected:
    wanted = needs or Role.WORKER
    reason = f"this token is for {_A.get(has, f'a {has.value}')}, not for {_A[wanted]}"
    return Rejected(f"{reason}: make one with `evermirror token create --role {wanted.value}`", final=True)
