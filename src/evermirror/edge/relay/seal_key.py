"""The key that a coordinator seals passes and tickets with: made at its first use, kept next to its CA."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from evermirror.edge.relay.seal import Sealer, new_private_key
from evermirror.errors import EnvironmentUnfit

NAME = "seal.key"
_BYTES = 32


def own_sealer(folder: Path) -> Sealer:
    """Reads the key, or makes it; of several processes that begin at once one makes it for all."""
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _make(path)
        raw = path.read_bytes()
    except OSError as error:
        raise EnvironmentUnfit(
            f"the key {path} cannot be read or made: {error.strerror}",
            hint="It is needed to let nodes read from each other: look at its owner and mode",
        ) from None
    if len(raw) != _BYTES:
        raise EnvironmentUnfit(
            f"{path} holds {len(raw)} bytes, and a key has {_BYTES}",
            hint="Put it back from a backup, or remove it: a new one is made, and passes are given out anew",
        )
    return Sealer(raw)


def _make(path: Path) -> None:
    """Whole or not at all, whoever else does the same; nobody else may read it."""
    number, mine = tempfile.mkstemp(prefix=f"{NAME}.", dir=path.parent)
    try:
        with open(number, "wb") as file:
            file.write(new_private_key())
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(mine, path)
    finally:
        os.unlink(mine)
