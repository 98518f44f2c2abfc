"""One client's question, as git is asked it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from evermirror.edge.git.serve_damage import OnDamage
from evermirror.edge.git.serve_state import State

_PROTOCOL = re.compile(r"version=[0-2](?::[a-z0-9=-]{1,32}){0,4}")


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to git."""

    repo: Path
    protocol: str
    client: str
    options: tuple[str, ...]
    body: bytes  # all of it, or its first part
    late: frozenset[str] = frozenset()  # kept folders in which something is that it may want
    public: frozenset[bytes] = frozenset()  # the tips that anybody may want
    on_damage: OnDamage | None = None

    def key(self, state: State, request: bytes) -> bytes:
        """Equal where the answer is: the state names the very folder, so no two mirrors share one."""
        protocol = self.protocol if is_protocol(self.protocol) else ""
        told = repr((str(self.repo), state, protocol, self.options, request))
        return hashlib.sha256(told.encode("utf-8", "surrogateescape")).digest()


def is_protocol(word: str) -> bool:
    """Whether ``word`` is what a client may say in Git-Protocol."""
    return _PROTOCOL.fullmatch(word) is not None


def wants_v2(protocol: str) -> bool:
    return is_protocol(protocol) and "version=2" in protocol.split(":")
