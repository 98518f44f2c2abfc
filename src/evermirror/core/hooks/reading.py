"""What a hook tells: the one door. Pure; raises ``UsageError`` for a body that is none, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from evermirror.core.hooks import gitea, gitee, github, gitlab
from evermirror.core.hooks.body import LARGE_BYTES
from evermirror.errors import UsageError
from evermirror.model.forge import Forge
from evermirror.model.hook import Hook

LARGE = LARGE_BYTES
_EVENT_CHARS = 100
_DELIVERY_CHARS = 100  # forges send UUIDs

_READERS: Mapping[Forge, Callable[[Mapping[str, str], bytes], Hook]] = {
    Forge.GITHUB: github.read,
    Forge.GITLAB: gitlab.read,
    Forge.GITEE: gitee.read,
    Forge.GITEA: gitea.read,
}


def read(forge: Forge, headers: Mapping[str, str], body: bytes) -> Hook:
    """``headers`` with names in lower case. Nothing of it is believed before ``is_signed`` says so."""
    hook = _READERS[forge](headers, body)
    if not hook.event:
        raise UsageError(
            "Nothing says what happened: the forge's event header is missing",
            hint=f"Is it a hook of {forge.value}? Each forge has an address of its own",
        )
    return replace(hook, event=_shortened(hook.event), delivery=_bounded(hook.delivery))


def _shortened(event: str) -> str:
    clean = event if event.isprintable() and event.isascii() else ascii(event)[1:-1]
    return clean[:_EVENT_CHARS]


def _bounded(delivery: str) -> str:
    """A strange number is as good as any other, once it is short and printable."""
    if len(delivery) <= _DELIVERY_CHARS and delivery.isascii() and delivery.isprintable():
        return delivery
    return hashlib.sha256(delivery.encode("utf-8", "surrogatepass")).hexdigest()
