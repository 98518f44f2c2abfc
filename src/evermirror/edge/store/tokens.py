"""Tokens: made from 256 random bits, shown once, kept as a hash."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any

import sqlalchemy as sa

from evermirror.edge.store import rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import aggregators, tokens, workers
from evermirror.errors import Conflict, NotFound
from evermirror.model.access import (
    NO_LIMITS,
    TOKEN_BYTES,
    TOKEN_PREFIX,
    Role,
    TokenLimits,
    TokenRecord,
    has_token_form,
)

_LIVE = tokens.c.revoked_at.is_(None)


async def create(
    db: Database,
    name: str,
    role: Role,
    *,
    trusted: bool,
    operator: str = "",
    limits: TokenLimits = NO_LIMITS,
    now: float,
) -> tuple[str, TokenRecord]:
    """The token itself, which is not stored, and what is. A name is unique among tokens not revoked."""
    plain = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    name = rows.name_in(name, "token name")
    values = {
        "name": name,
        "role": role.value,
        "hash": _hash(plain),
        "trusted": trusted,
        "created_at": now,
        "operator": rows.name_in(operator, "operator"),
        "weight": limits.weight,
        "capacity": limits.capacity,
    }
    async with db.write() as c:
        taken = sa.select(tokens.c.id).where(tokens.c.name == name, _LIVE)
        if name and (await c.execute(taken)).first() is not None:
            raise Conflict(f"a token named {name!r} exists", hint="Choose another name, or revoke it first")
        row = (await c.execute(tokens.insert().returning(tokens), values)).one()
    return plain, _out(row)


async def find(db: Database, plain: str) -> TokenRecord | None:
    """The token that a caller shows; None where it is unknown or revoked."""
    if not has_token_form(plain):
        return None
    digest = _hash(plain)
    async with db.read() as c:
        row = (await c.execute(sa.select(tokens).where(tokens.c.hash == digest, _LIVE))).one_or_none()
    if row is None or not hmac.compare_digest(row.hash, digest):
        return None
    return _out(row)


async def all_tokens(db: Database) -> tuple[TokenRecord, ...]:
    async with db.read() as c:
        return tuple(_out(r) for r in await c.execute(sa.select(tokens).order_by(tokens.c.id)))


async def revoked_since(db: Database, at: float) -> tuple[TokenRecord, ...]:
    """Tokens that were revoked at ``at`` (UTC seconds) or later."""
    query = sa.select(tokens).where(tokens.c.revoked_at >= at).order_by(tokens.c.id)
    async with db.read() as c:
        return tuple(_out(r) for r in await c.execute(query))


async def revoke(db: Database, id_or_name: int | str, *, now: float) -> TokenRecord:
    """By id, or by the name of one not revoked."""
    return await _change(db, id_or_name, revoked_at=now)


async def limit(db: Database, id_or_name: int | str, limits: TokenLimits) -> TokenRecord:
    """By id, or by the name of one not revoked."""
    return await _change(db, id_or_name, weight=limits.weight, capacity=limits.capacity)


async def _change(db: Database, id_or_name: int | str, **values: float | None) -> TokenRecord:
    if isinstance(id_or_name, str):
        which = tokens.c.name == (id_or_name if rows.storable(id_or_name) else None)
    else:
        which = tokens.c.id == min(id_or_name, 2**31 - 1)
    statement = tokens.update().where(which, _LIVE).values(**values).returning(tokens)
    async with db.write() as c:
        row = (await c.execute(statement)).first()
    if row is None:
        raise NotFound(f"no token {id_or_name!r}")
    return _out(row)


async def cleanup(db: Database, older_than: float) -> int:
    """Removes tokens revoked before ``older_than`` (UTC seconds); returns how many. One that a worker or an
    aggregator is still known by stays with it."""
    known = sa.union(
        sa.select(workers.c.token_id).where(workers.c.token_id.is_not(None)),
        sa.select(aggregators.c.token_id),
    )
    async with db.write() as c:
        gone = tokens.delete().where(tokens.c.revoked_at < older_than, tokens.c.id.not_in(known))
        return (await c.execute(gone)).rowcount


async def exist(db: Database, *, users: bool) -> bool:
    """Whether any token can be used; ``users``: by a person, not by a node."""
    roles = [role.value for role in Role if not (users and role.of_node)]
    query = sa.select(tokens.c.id).where(_LIVE, tokens.c.role.in_(roles)).limit(1)
    async with db.read() as c:
        return (await c.execute(query)).first() is not None


def _hash(plain: str) -> str:
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()


def _out(row: Any) -> TokenRecord:
    return TokenRecord(
        id=row.id,
        name=row.name,
        role=Role(row.role),
        trusted=row.trusted,
        created_at=row.created_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
        operator=row.operator,
        limits=TokenLimits(row.weight, row.capacity),
    )
