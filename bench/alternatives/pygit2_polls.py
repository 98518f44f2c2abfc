"""A look with pygit2 (libgit2): in this process, with a connection of its own each time."""

from __future__ import annotations

from pathlib import Path

import pygit2


class Pygit2Polls:
    def __init__(self, folder: Path, ca_file: Path) -> None:
        pygit2.settings.set_ssl_cert_locations(str(ca_file), None)
        self._repo = pygit2.init_repository(str(folder), bare=True)

    def look(self, url: str) -> int:
        heads = self._repo.remotes.create_anonymous(url).list_heads()
        return sum(h.name != "HEAD" and not h.name.endswith("^{}") for h in heads)
