"""A look with dulwich, used as well as it can be: one client, whose connections stay open."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import urllib3
from dulwich.client import HttpGitClient


class DulwichPolls:
    def __init__(self, base_url: str, ca_file: Path) -> None:
        self._pool = urllib3.PoolManager(ca_certs=str(ca_file), cert_reqs="CERT_REQUIRED")
        self._client = HttpGitClient(base_url, pool_manager=self._pool, quiet=True)

    def look(self, url: str) -> int:
        refs = self._client.get_refs(urlsplit(url).path.encode("utf-8")).refs
        return sum(name != b"HEAD" and not name.endswith(b"^{}") for name in refs)

    def close(self) -> None:
        self._pool.clear()
