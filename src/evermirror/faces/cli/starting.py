"""What every command that runs a node does first: read its settings, and log as they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evermirror.faces.cli.options import overrides

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from evermirror.config import Config


def node_settings(config: Path | None, **flags: object) -> tuple[Config, Callable[[], Config]]:
    """The settings, and how they are read again. A node's own modules are imported after this: wrong settings
    are told at once."""
    from evermirror.config import load_config
    from evermirror.log import mask_too, setup_logging

    given = overrides(**flags)

    def read() -> Config:
        loaded = load_config(config, overrides=given)
        mask_too(loaded.secret_values())
        return loaded

    loaded = read()
    setup_logging(loaded.log.level, loaded.log.format, secrets=loaded.secret_values())
    return loaded, read
