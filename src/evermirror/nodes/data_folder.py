"""Where a node keeps what it has."""

from __future__ import annotations

from evermirror.config import Config


def with_absolute_data(config: Config) -> Config:
    """git runs in a folder of its own, where a relative path would mean another place."""
    return config.model_copy(
        update={"data": config.data.model_copy(update={"dir": config.data.dir.resolve()})}
    )
