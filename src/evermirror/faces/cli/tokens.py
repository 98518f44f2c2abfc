"""`evermirror token` and `audit`: straight on the database, so that they work before the first start."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from evermirror.errors import EnvironmentUnfit, EvermirrorError, NotFound, UsageError
from evermirror.faces.api.text import iso, iso_or_none
from evermirror.faces.cli.help import Command, Group
from evermirror.faces.cli.options import AsJson, ConfigFile, DataDir, database_file, offline_settings
from evermirror.faces.cli.output import age, print_json, print_table, say, warn
from evermirror.importing import kept_for_good
from evermirror.model.access import NO_LIMITS, Role, TokenLimits, TokenRecord
from evermirror.model.worker import (
    CAPACITY_MAX,
    UNTRUSTED_CAPACITY,
    UNTRUSTED_WEIGHT,
    WEIGHT_MAX,
    worker_facts,
)

if TYPE_CHECKING:
    from evermirror.config import Config
    from evermirror.edge.store.store import Store

T = TypeVar("T")
N = TypeVar("N")

Weight = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        max=WEIGHT_MAX,
        metavar="W",
        show_default=False,
        help=f"Of an untrusted worker: share of the load; {UNTRUSTED_WEIGHT:g} where not said.",
    ),
]
Capacity = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=CAPACITY_MAX,
        metavar="N",
        show_default=False,
        help=f"Of an untrusted worker: the most repositories it holds; {UNTRUSTED_CAPACITY} where not said.",
    ),
]

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Make, list and revoke tokens; works offline on the data folder."
)


@app.command(cls=Command)
def create(
    role: Annotated[
        Role,
        typer.Option(
            metavar="ROLE",
            show_default=False,
            help=f"What its bearer may do: {', '.join(r.value for r in Role)}.",
        ),
    ],
    name: Annotated[str, typer.Option(metavar="NAME", show_default=False, help="Whose it is.")] = "",
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Of a worker: may hold private repositories and credentials.")
    ] = False,
    operator: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            show_default=False,
            help="Of a worker: who runs it. Workers of one operator vouch for each other only once.",
        ),
    ] = "",
    weight: Weight = None,
    capacity: Capacity = None,
    data: DataDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a token. It is shown once; only its hash is kept."""
    limits = TokenLimits(weight, capacity)
    if limits != NO_LIMITS:
        _check_limited(role, trusted=trusted)

    async def work(store: Store) -> tuple[str, TokenRecord]:
        plain, record = await store.create_token(
            name, role, trusted=trusted, operator=operator, limits=limits
        )
        detail = {"role": role.value} | ({"operator": operator} if operator else {}) | _told(limits)
        await store.audit(_actor(), "token.create", record.name or str(record.id), detail)
        return plain, record

    loaded = offline_settings(config, data)
    plain, record = asyncio.run(_with_store(loaded, work))
    if role in (Role.WORKER, Role.AGGREGATOR):
        plain = _with_fingerprint(plain, loaded)
    if as_json:
        print_json({"token": plain, **_fields(record)})
        return
    print(plain)
    warn(f"token {record.id}, role {record.role.value}: keep it, it is not shown again")


def _with_fingerprint(plain: str, config: Config) -> str:
    """A node's token names the CA that it may trust, unless a public one vouches for the coordinator."""
    from evermirror.edge.rpc.join import join_token
    from evermirror.edge.rpc.pki import ca_fingerprint, open_ca
    from evermirror.nodes.coordinator.own_ca import pki_folder

    if config.server.tls_cert is not None:
        return plain
    return join_token(plain, ca_fingerprint(open_ca(pki_folder(config))))


@app.command("list", cls=Command)
def list_tokens(data: DataDir = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """List tokens; never the tokens themselves."""

    async def work(store: Store) -> tuple[TokenRecord, ...]:
        return await store.list_tokens()

    records = _on_store(data, config, work, ())
    if as_json:
        print_json([_fields(r) for r in records])
        return
    print_table(
        ["id", "name", "role", "trusted", "operator", "limits", "made", "last used", "revoked"],
        [
            [r.id, r.name, r.role.value, r.trusted, r.operator, _limits_text(r)]
            + [age(at) for at in (r.created_at, r.last_used_at, r.revoked_at)]
            for r in records
        ],
        right=["id"],
    )


@app.command(cls=Command)
def limit(
    which: Annotated[str, typer.Argument(metavar="ID|NAME", help="As `token list` shows it.")],
    weight: Weight = None,
    capacity: Capacity = None,
    data: DataDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Set the weight and capacity of an untrusted worker; they count when it connects next."""
    limits = TokenLimits(weight, capacity)

    async def work(store: Store) -> TokenRecord:
        found = [
            t for t in await store.list_tokens() if t.revoked_at is None and which in (t.name, str(t.id))
        ]
        if not found:
            raise NotFound(f"there is no token {which!r}")
        _check_limited(found[0].role, trusted=found[0].trusted)
        record = await store.limit_token(found[0].id, limits)
        await store.audit(_actor(), "token.limit", record.name or str(record.id), _told(limits))
        return record

    record = _on_store(data, config, work, None)
    if record is None:
        raise NotFound(f"there is no token {which!r}")
    if as_json:
        print_json(_fields(record))
    else:
        say(f"token {record.id} {record.name}: {_limits_text(record)}")


def _check_limited(role: Role, *, trusted: bool) -> None:
    if role is not Role.WORKER:
        raise UsageError(f"a token of the role {role.value} has no weight and no capacity")
    if trusted:
        raise UsageError(
            "a trusted worker says its own weight and capacity",
            hint="Set worker.weight and worker.capacity where it runs",
        )


def _told(limits: TokenLimits) -> dict[str, float]:
    said = {"weight": limits.weight, "capacity": limits.capacity}
    return {name: value for name, value in said.items() if value is not None}


def _limits_text(record: TokenRecord) -> str:
    """``weight 1, at most 10000 repos``; empty where the worker's own word counts."""
    if record.role is not Role.WORKER or record.trusted:
        return ""
    counts = worker_facts("", False, record.limits, 1.0, None)
    return f"weight {counts.weight:g}, at most {counts.capacity} repos"


@app.command(cls=Command)
def revoke(
    which: Annotated[str, typer.Argument(metavar="ID|NAME", help="As `token list` shows it.")],
    data: DataDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a token; a running server refuses it within seconds."""

    async def work(store: Store) -> TokenRecord:
        record = await store.revoke_token(int(which) if which.isascii() and which.isdigit() else which)
        await store.audit(_actor(), "token.revoke", record.name or str(record.id))
        return record

    record = _on_store(data, config, work, None)
    if record is None:
        raise NotFound(f"there is no token {which!r}")
    if as_json:
        print_json(_fields(record))
    else:
        say(f"revoked token {record.id} {record.name}")


def audit(
    limit: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="At most so many, newest first.")
    ] = 50,
    data: DataDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show who changed what; works offline on the data folder."""
    records = _on_store(data, config, lambda store: store.list_audit(limit), ())
    if as_json:
        print_json(
            [
                {
                    "id": r.id,
                    "at": iso(r.at),
                    "actor": r.actor,
                    "action": r.action,
                    "subject": r.subject,
                    "detail": r.detail,
                }
                for r in records
            ]
        )
        return
    print_table(
        ["when", "who", "did", "to", "detail"],
        [[age(r.at), r.actor, r.action, r.subject, _in_words(r.detail)] for r in records],
    )


def _in_words(value: object) -> str:
    """``role: admin, trusted: yes``; what is not set is left out."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(_in_words(one) for one in value)
        case dict():
            said = {name: _in_words(one) for name, one in value.items()}
            return ", ".join(f"{name}: {words}" for name, words in said.items() if words)
        case _:
            return str(value)


def _on_store(
    data: Path | None, config_file: Path | None, work: Callable[[Store], Awaitable[T]], nothing: N
) -> T | N:
    """``nothing`` where there is no database yet: none is made to look into it."""
    config = offline_settings(config_file, data)
    file = database_file(config)
    if file is None or file.exists() or (config.data.dir.exists() and not config.data.dir.is_dir()):
        return asyncio.run(_with_store(config, work))
    warn(f"there is no database {file.absolute()} yet")
    return nothing


async def _with_store(config: Config, work: Callable[[Store], Awaitable[T]]) -> T:
    with kept_for_good():
        from evermirror.edge.store.store import Store
        from evermirror.model.failure import FailureError

    if config.database.url is None:
        make_data_dir(config.data.dir)
    store = await Store.open(config.store_url)
    try:
        return await work(store)
    except FailureError as error:
        raise EvermirrorError(f"the database: {error.failure.message}", hint=error.failure.hint) from error
    finally:
        await store.close()


def make_data_dir(folder: Path) -> None:
    """Mirrors may be private: nobody else looks in."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise EnvironmentUnfit(
            f"data folder {folder} cannot be made: {error.strerror}",
            hint="Choose another with --data or data.dir",
        ) from error


def _actor() -> str:
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a container's user id without a name
        return "cli"


def _fields(record: TokenRecord) -> dict[str, object]:
    return {
        "id": record.id,
        "name": record.name,
        "role": record.role.value,
        "trusted": record.trusted,
        "operator": record.operator,
        "weight": record.limits.weight,
        "capacity": record.limits.capacity,
        "created_at": iso(record.created_at),
        "last_used_at": iso_or_none(record.last_used_at),
        "revoked_at": iso_or_none(record.revoked_at),
    }
