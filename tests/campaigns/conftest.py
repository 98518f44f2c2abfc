"""What campaigns share: upstreams of every shape, and an ``evermirror up`` that mirrors them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.campaigns.shapes import SHAPES
from tests.support.gitrepo import UpstreamRepo
from tests.support.mixed_upstreams import MixedUpstreams, Url
from tests.support.up_process import UpProcess, up
from tests.support.upstream import UpstreamServer

MIRRORED_S = 400.0  # two blobs of 500 MB among others, on a busy machine


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Upstreams by shape, all mirrored by ``node``; the rest of its list is a real one's, 30 % dead."""

    folder: Path
    node: UpProcess
    server: UpstreamServer
    repos: dict[str, UpstreamRepo]
    others: list[Url]

    def key(self, shape: str) -> str:
        return f"{self.server.host}/{self.repos[shape].name}"

    def url(self, shape: str) -> str:
        return self.node.clone_url(self.key(shape))

    def create(self, name: str, commits: int = 5) -> UpstreamRepo:
        """One more upstream, mirrored when this returns."""
        repo = self.server.create(name, commits)
        self.repos[name] = repo
        self.node.add(repo.url)
        self.node.until(lambda: self.node.repo(self.key(name))["status"] == "active")
        return repo


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Acceptance]:
    folder = tmp_path_factory.mktemp("acceptance")
    with (
        UpstreamServer(folder / "shapes") as server,
        MixedUpstreams(folder / "others", huge_bytes=50_000_000) as others,
    ):
        repos = {name: server.create(f"real/{name}", commits=0) for name in SHAPES}
        for name, make in SHAPES.items():
            make(repos[name])
        urls = others.mixed(live=70, dead=34, seed=3)
        catalog = others.write_list(urls, folder / "urls.txt", malformed=True)
        with catalog.open("a") as file:
            file.writelines(f"{repo.url}\n" for repo in repos.values())
        with up(folder, {**others.settings, "EVERMIRROR_LIMITS__HOST_RATE": "100/s"}, catalog) as node:
            world = Acceptance(folder, node, server, repos, urls)
            wanted = {world.key(name) for name in repos} | {url.key for url in urls if url.alive}
            node.until(lambda: wanted <= node.mirrors(), MIRRORED_S, look_s=0.5)
            node.until(lambda: all(node.is_served(key) for key in wanted), look_s=0.5)
            yield world
