"""Many upstreams and their mirrors, made from one by copying: a machine that has run for a while."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.worlds.product import Product, spec_of
from bench.worlds.server import GitServer
from evermirror.edge.git.probe import Seen
from evermirror.edge.store.local import LocalState
from evermirror.model.memory import RepoMemory
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import RepoSpec
from tests.support.gitrepo import UpstreamRepo

STAND_IN = "team/repo-0"
COMMITS = 20
LONG_AGO_S = 7200  # longer than the min_gap that the benchmarks set
TAGS = 9


@dataclass(frozen=True, slots=True)
class Population:
    """``specs`` are mirrored; what the worker remembers of them is in ``local_file``."""

    specs: tuple[RepoSpec, ...]
    first: UpstreamRepo  # stands in for every upstream that was not pushed to
    local_file: Path

    def push(self, i: int, commits: int = 5) -> UpstreamRepo:
        """The i-th upstream becomes a repository of its own, if it is none yet, and changes."""
        path = self.first.path.with_name(f"repo-{i}.git")
        if not path.exists():
            link_tree(self.first.path, path)
        repo = UpstreamRepo(path, f"team/repo-{i}", self.specs[i].url)
        repo.bulk_commits(commits)
        return repo


async def make_population(server: GitServer, product: Product, n: int, local_file: Path) -> Population:
    """``n`` equal upstreams, mirrored and remembered, as after a first day of work."""
    specs = tuple(spec_of(server, f"team/repo-{i}") for i in range(n))
    first = server.create(STAND_IN, commits=0)
    first.bulk_commits(COMMITS, when=time.time() - LONG_AGO_S)  # what is pushed later is younger, as it is
    for i in range(TAGS):
        first.tag(f"v{i}")
    first.git("repack", "-adq")  # its copies are then a dozen files each, and not two hundred
    first.git("pack-refs", "--all")
    await mirror_all(product, specs, local_file)
    return Population(specs, first, local_file)


async def mirror_all(product: Product, specs: Sequence[RepoSpec], local_file: Path) -> None:
    """Of equal upstreams only the first is fetched."""
    seen = await _mirror(product, specs[0])
    for spec in specs[1:]:
        link_tree(product.mirrors.path(specs[0].key), product.mirrors.path(spec.key))
    digest, then = seen.snapshot.digest(), time.time() - LONG_AGO_S
    local = await LocalState.open(local_file)
    known = (RepoMemory(s.key, digest=digest, mark=seen.mark) for s in specs)
    await local.save([replace(m, last_poll_at=then, verified_at=then) for m in known])
    await local.close()


async def make_due(local_file: Path) -> None:
    """As if the last polls were hours ago: a worker that starts now has everything to look at."""
    local = await LocalState.open(local_file)
    then = time.time() - LONG_AGO_S
    await local.save([replace(m, last_poll_at=then, verified_at=then) for m in await local.load()])
    await local.close()


async def _mirror(product: Product, spec: RepoSpec) -> Seen:
    async def look() -> Seen:
        outcome = await product.prober.probe(spec, None)
        assert isinstance(outcome, Seen)
        return outcome

    async def look_again() -> RefSnapshot:
        return (await look()).snapshot

    seen = await look()
    await product.mirrors.sync(spec, ("127.0.0.1",), seen.snapshot, look_again)
    return seen


def make_clones(
    population: Population, folder: Path, env: dict[str, str], chosen: Iterable[int]
) -> dict[int, Path]:
    """Some of the same upstreams as ``git clone --mirror`` would have left them."""
    first = folder / "first.git"
    url = population.specs[0].url
    subprocess.run(["git", "clone", "--quiet", "--mirror", url, str(first)], env=env, check=True)
    config = (first / "config").read_text("utf-8")
    clones = {}
    for i in chosen:
        clones[i] = folder / f"{i}.git"
        link_tree(first, clones[i])
        (clones[i] / "config").unlink()
        (clones[i] / "config").write_text(config.replace(url, population.specs[i].url), "utf-8")
    return clones


def link_tree(source: Path, target: Path) -> None:
    """A copy whose files are links: git replaces files and never writes into one that is there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for folder, _, files in os.walk(source):
        there = f"{target}{folder.removeprefix(str(source))}"
        os.mkdir(there)
        for name in files:
            os.link(f"{folder}/{name}", f"{there}/{name}")
