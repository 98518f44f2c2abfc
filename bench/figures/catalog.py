"""A large catalog in git: read, followed by its commits, held in memory; against the obvious way.

Each URL costs the same, so that 200,000 tell enough; a million are figures/coordinator.py's.

``python -m bench.figures.catalog ours|naive FOLDER`` reads the repository in FOLDER and prints what it took
in memory and in time: each side in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.measure import Bench, Context, Cost, Line, Sense, Stopwatch
from evermirror.core.catalog.entry import CatalogEntry
from evermirror.core.catalog.listfile import parse_list
from evermirror.edge.catalog.clone import GitTree, open_trees
from evermirror.edge.catalog.reader import CatalogReader
from evermirror.edge.git.credentials import Credentials
from evermirror.edge.git.environment import GitSettings
from evermirror.model.repo import RepoKey
from evermirror.model.source import CatalogSource
from evermirror.model.url import UrlRules
from tests.support.gitrepo import UpstreamRepo

RULES = UrlRules()
LINES = 1_000  # of a file
CHANGED = 100  # lines of a commit


def _file(number: int, *, changed: str = "") -> str:
    """A thousand URLs of about 60 characters; ``changed``: the first hundred are others."""
    base = f"https://forge-{number % 7}.example/organisation-{number}"
    names = (f"{base}/{changed if i < CHANGED else ''}project-{i:04d}.git\n" for i in range(LINES))
    return "".join(names)


def _make(folder: Path, files: int) -> UpstreamRepo:
    repo = UpstreamRepo.init(folder, "catalog", str(folder))
    repo.commit(files={f"{n // 100:02d}/{n:04d}.txt": _file(n) for n in range(files)})
    return repo


def _tree(repo: Path, data: Path) -> GitTree:
    settings = GitSettings(data_dir=data)
    (tree,) = open_trees([CatalogSource(str(repo))], data / "catalog", settings, Credentials())
    assert isinstance(tree, GitTree)
    return tree


async def _load(reader: CatalogReader) -> int:
    reader.begin([await tree.look() for tree in reader.trees])
    return sum([len(some) async for some in reader.load()])


async def _naive(tree: GitTree) -> dict[RepoKey, CatalogEntry]:
    """Every file anew, all of it in a dictionary."""
    listing = await tree.look()
    found: dict[RepoKey, CatalogEntry] = {}
    async for batch in tree.read(list(listing.files.items())):
        for path, data in batch:
            found |= {entry.key: entry for entry in parse_list(data, path, RULES).entries}
    return found


class _Naive:
    """Follows the catalog by reading all of it again and comparing."""

    def __init__(self, tree: GitTree, runner: asyncio.Runner) -> None:
        self._tree, self._runner = tree, runner
        self._before: dict[RepoKey, CatalogEntry] = {}
        self._now: dict[RepoKey, CatalogEntry] = {}

    def read(self) -> Cost:
        self._before = self._now
        with Stopwatch() as watch:
            self._now = self._runner.run(_naive(self._tree))
        return watch.cost

    def compare(self) -> Cost:
        before, now = self._before, self._now
        with Stopwatch() as watch:
            changed = [key for key, entry in now.items() if before.get(key) != entry]
            gone = before.keys() - now.keys()
        assert len(changed) == len(gone) == CHANGED
        return watch.cost


async def _raw(tree: GitTree) -> int:
    listing = await tree.look()
    return sum(
        [len(data.split(b"\n")) async for b in tree.read(list(listing.files.items())) for _, data in b]
    )


def _run(context: Context) -> list[Line]:
    files = context.size(200, 20)
    rounds = context.repeats(2)
    repo = _make(context.folder / "catalog.git", files)
    tree = _tree(repo.path, context.folder / "data")
    reader = CatalogReader([tree], RULES)
    with asyncio.Runner() as runner:

        def timed(work: object) -> Cost:
            with Stopwatch() as watch:
                runner.run(work)  # type: ignore[arg-type]
            return watch.cost

        timed(_load(reader))  # the clone
        raw = [timed(_raw(tree)) for _ in range(rounds)]
        idle = [timed(reader.look(0)) for _ in range(rounds)]
        naive = _Naive(tree, runner)
        naive.read()

        async def follow() -> None:
            seen = await reader.look(0)
            assert seen.plan is not None
            assert len(seen.plan.diff.added) == len(seen.plan.diff.removed) == CHANGED
            reader.take(seen)

        reads, rereads, diffs, rediffs = [], [], [], []
        for turn in range(rounds):
            repo.commit(files={"00/0007.txt": _file(7, changed=f"v{turn}-")})
            diffs.append(timed(follow()))
            rereads.append(naive.read())
            rediffs.append(_both(rereads[-1], naive.compare()))
            reads.append(timed(_load(reader)))
    memory = []
    for mode, costs in (("ours", reads), ("naive", rereads)):
        held_mb, cost = _alone(mode, repo.path, context.folder / f"data-{mode}")
        memory.append(held_mb)
        costs.append(cost)
    return [
        Line(
            f"{files * LINES:,} URLs read from git objects, split only",
            "s CPU",
            _cpu(raw),
            sense=Sense.AT_MOST,
        ),
        Line(
            f"{files * LINES:,} URLs read, checked, indexed",
            "s CPU",
            _cpu(reads),
            _cpu(rereads),
            Sense.TIMES_AS_MUCH,
        ),
        Line(
            f"a commit of {CHANGED} lines worked out", "s CPU", _cpu(diffs), _cpu(rediffs), Sense.TIMES_LESS
        ),
        Line("a look that finds nothing new", "s CPU", _cpu(idle), sense=Sense.AT_MOST),
        Line("memory held", "MB", (memory[0],), (memory[1],), Sense.TIMES_LESS),
    ]


def _both(a: Cost, b: Cost) -> Cost:
    return Cost(a.cpu_s + b.cpu_s, a.wall_s + b.wall_s)


def _cpu(costs: Sequence[Cost]) -> tuple[float, ...]:
    return tuple(c.cpu_s for c in costs)


def _alone(mode: str, repo: Path, data: Path) -> tuple[float, Cost]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.figures.catalog", mode, str(repo), str(data)],
        capture_output=True,
        check=True,
        text=True,
    )
    told = json.loads(done.stdout)
    return float(told["mb"]), Cost(told["cpu_s"], told["wall_s"])


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


async def _main(mode: str, repo: Path, data: Path) -> None:
    tree = _tree(repo, data)
    await tree.look()
    before = _resident_mb()
    reader = CatalogReader([tree], RULES)
    with Stopwatch() as watch:
        kept: object = await _load(reader) if mode == "ours" else await _naive(tree)
    print(json.dumps({"mb": round(_resident_mb() - before, 1), "kept": bool(kept), **asdict(watch.cost)}))


BENCH = Bench(
    name="catalog",
    measures="200,000 URLs in git: read, followed, held",
    alternative="every file parsed anew into a dictionary",
    run=_run,
    order=40,
    takes_s=15,
)

if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
