"""What `worker join` and `aggregator join` do: try the token, remember it, and become the node."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Literal, NoReturn

from evermirror.errors import EvermirrorError
from evermirror.faces.cli.options import overrides
from evermirror.faces.cli.output import say, warn

if TYPE_CHECKING:
    from pathlib import Path

NodeCommand = Literal["worker", "aggregator"]


def join_fleet(
    node: NodeCommand, coordinator: str, token: str, data: Path | None, config: Path | None
) -> None:
    """Nothing is remembered where the coordinator is not reached, or refuses."""
    from evermirror.config import load_config, split_host_port
    from evermirror.errors import UsageError
    from evermirror.faces.cli.tokens import make_data_dir
    from evermirror.model.access import Role
    from evermirror.model.failure import Failure, FailureError
    from evermirror.nodes.membership_card import LISTENS_S, Card, join

    try:
        split_host_port(coordinator)
    except ValueError as error:
        raise UsageError(f"HOST:PORT: {error}", hint="For example coordinator.example.org:8421") from None
    loaded = load_config(config, overrides=overrides(data__dir=data))
    make_data_dir(loaded.data.dir)

    def waiting(failure: Failure) -> None:
        warn(f"{failure.message}; trying for {LISTENS_S:g} s, as it listens soon after its first token")

    try:
        name = asyncio.run(join(loaded, Card(coordinator, token), Role(node), waiting=waiting))
    except FailureError as error:
        raise EvermirrorError(error.failure.message, hint=error.failure.hint) from None
    say(f"joined {coordinator} as {name}; remembered in {loaded.data.dir}")


def run_anew(command: NodeCommand, listen: str | None, data: Path | None, config: Path | None) -> NoReturn:
    """As `evermirror COMMAND`: the token stands on this command line, where others can read it, no longer."""
    said = {"--listen": listen, "--data": data, "--config": config}
    flags = [part for flag, value in said.items() if value is not None for part in (flag, str(value))]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "evermirror", command, *flags])  # noqa: S606 (ourselves)
