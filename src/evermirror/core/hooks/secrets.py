"""Which secrets a hook may be signed with: a repo's own, else its host's, else its forge's.

The most specific level that has any is the only one that counts: whoever knows a forge's secret cannot speak
for a repo that has one of its own. Several are good at a time, so that one can be changed without losing a
hook; the first is the one that hooks are registered with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from evermirror.model.forge import Forge
from evermirror.model.repo import RepoKey

SECRETS_MAX = 16  # of one level: each costs one HMAC of the body


@dataclass(frozen=True, slots=True)
class Secrets:
    """``by_name``: by key, or by host in lower case, with its port where a key has it."""

    by_name: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    by_forge: Mapping[Forge, tuple[str, ...]] = field(default_factory=dict, repr=False)

    def of(self, forge: Forge, key: RepoKey | None, host: str) -> tuple[str, ...]:
        """All that are good for this repo (None: one that we do not know); none where nothing is set."""
        own = self.by_name.get(key, ()) if key is not None else ()
        return own or self.by_name.get(host.lower(), ()) or self.by_forge.get(forge, ())

    def current(self, forge: Forge, key: RepoKey | None, host: str) -> str | None:
        """The one to register."""
        return next(iter(self.of(forge, key, host)), None)

    def any_for(self, forge: Forge) -> bool:
        """Whether a hook of this forge could be genuine at all."""
        return bool(self.by_name or self.by_forge.get(forge))

    def general(self, forge: Forge) -> tuple[str, ...]:
        """Those that are for more than one repo: the forge's, and the hosts'."""
        hosts = (secrets for name, secrets in self.by_name.items() if "/" not in name)
        return tuple(dict.fromkeys(chain(self.by_forge.get(forge, ()), *hosts)))

    def own(self) -> tuple[str, ...]:
        """Those of single repos."""
        repos = (secrets for name, secrets in self.by_name.items() if "/" in name)
        return tuple(dict.fromkeys(chain(*repos)))

    def has_host(self, host: str) -> bool:
        """Whether this host has one of its own."""
        return bool(self.by_name.get(host.lower()))

    def all(self) -> Iterable[str]:
        for level in (self.by_name, self.by_forge):
            for secrets in level.values():
                yield from secrets


def lines_of(text: str) -> tuple[str, ...]:
    """Several secrets in one setting, one a line, each once."""
    return tuple(dict.fromkeys(line for raw in text.splitlines() if (line := raw.strip())))
