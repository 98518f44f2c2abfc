"""The projects of a day of pull mirroring: sources that are pushed to as real ones are, and their targets.

A push at a source is a ref that begins to name a commit which is there since before the day: it costs no
process, and the same day can be played again.
"""

from __future__ import annotations

import os
import random
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from pathlib import Path

from bench.figures.freshness import TRACES
from bench.worlds.population import link_tree
from bench.worlds.server import GitServer
from evermirror.model.pull import INTERVALS_S
from evermirror.model.repo import Priority
from evermirror.sim.polling import Trace, Traces, load_traces
from tests.support.gitrepo import UpstreamRepo, read_refs

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
SHARES = ((Priority.CRITICAL, 10), (Priority.HIGH, 30), (Priority.NORMAL, 100), (Priority.LOW, 60))  # of 200
WEEKS = 4  # that each history gives a day of
MIDWEEK_DAYS = 4  # from that day's beginning to the end of the histories, which is a Saturday night
RECENT_DAYS = 90  # by which histories are ranked: the busiest are the most important projects
MADE_REPOS, MADE_MOST, MADE_TAIL = 50, 100.0, 1.4  # pushes a day fall with a repo's rank
COMMITS, BRANCHES, TAGS = 50, 4, 20
PUSH_BYTES, PUSH_SPREAD = 4_000, 1.0  # of a push's content: median, and sigma of its logarithm
MAIN = "refs/heads/main"
BEGAN_AT = 1_700_000_000  # before any push


@dataclass(slots=True)
class Source:
    """One project at its source, and how far its day has come. ``pushes`` are seconds after its beginning."""

    name: str
    priority: Priority
    repo: UpstreamRepo
    pushes: tuple[float, ...]
    tips: tuple[str, ...]  # before any push, and after each
    _told: int = field(default=0)

    def __post_init__(self) -> None:
        self.begin_again()

    @property
    def interval_s(self) -> float:
        return INTERVALS_S[self.priority]

    @property
    def main(self) -> Path:
        return self.repo.path / MAIN

    def come_to(self, at_s: float) -> str | None:
        """Everything that was pushed until then is there; the new tip, where there is one."""
        count = bisect_right(self.pushes, at_s)
        if count == self._told:
            return None
        self._told = count
        self._point(self.tips[count])
        return self.tips[count]

    def begin_again(self) -> None:
        """Whoever moved it."""
        self._told = 0
        if self.pushes:
            self._point(self.tips[0])

    def _point(self, oid: str) -> None:
        fresh = self.repo.path / "main.new"
        fresh.write_text(f"{oid}\n", "ascii")
        os.replace(fresh, self.main)  # the file may be another repository's, too


def push_times(count: int) -> tuple[list[tuple[float, ...]], bool]:
    """For each project the seconds of a day at which it is pushed to, the busiest projects first. Also
    whether these are real."""
    real = TRACES.is_file()
    days = _real_days(load_traces(TRACES)) if real else _made_days()
    return [days[n * len(days) // count] for n in range(count)], real


def _real_days(traces: Traces) -> list[tuple[float, ...]]:
    def between(trace: Trace, begin: float, end: float) -> tuple[float, ...]:
        pushes = trace.pushes[bisect_left(trace.pushes, begin) : bisect_left(trace.pushes, end)]
        return tuple(at - begin for at in pushes)

    recent = traces.end - RECENT_DAYS * DAY_S
    ranked = sorted(traces.repos, key=lambda trace: -len(between(trace, recent, traces.end)))
    begins = [traces.end - (MIDWEEK_DAYS + 7 * week) * DAY_S for week in range(WEEKS)]
    return [between(trace, begin, begin + DAY_S) for trace in ranked for begin in begins]


def _made_days() -> list[tuple[float, ...]]:
    """For where no real ones are at hand: as heavy-tailed as those."""
    chance, days = random.Random(1), []
    for rank in range(1, MADE_REPOS + 1):
        between_s = DAY_S / (MADE_MOST * rank**-MADE_TAIL)
        for _ in range(WEEKS):
            at, pushes = chance.expovariate(1 / between_s), []
            while at < DAY_S:
                pushes.append(at)
                at += chance.expovariate(1 / between_s)
            days.append(tuple(pushes))
    return days


def make_sources(server: GitServer, count: int, begin_s: float = 0.0) -> tuple[list[Source], bool]:
    """``count`` projects in the proportions of SHARES, with a day of pushes each, or what is left of it from
    ``begin_s`` on."""
    first = server.create("template", commits=0)
    first.bulk_commits(COMMITS, when=BEGAN_AT)
    for n in range(BRANCHES):
        first.branch(f"topic-{n}")
    for n in range(TAGS):
        first.tag(f"v{n}", annotated=True)
    first.git("repack", "-a", "-d", "-q")
    first.git("pack-refs", "--all")
    priorities = [priority for priority, share in SHARES for _ in range(share * count // 200)]
    times, real = push_times(len(priorities))
    sources = []
    for n, (priority, whole) in enumerate(zip(priorities, times, strict=True)):
        pushes = tuple(at - begin_s for at in whole if at >= begin_s)
        path = server.folder / f"group/project-{n}.git"
        link_tree(first.path, path)
        repo = UpstreamRepo(path, f"group/project-{n}", server.url(f"group/project-{n}"))
        tips = _make_commits(repo, len(pushes), random.Random(n))
        sources.append(Source(repo.name, priority, repo, pushes, tips))
    return sources, real


def _make_commits(repo: UpstreamRepo, count: int, chance: random.Random) -> tuple[str, ...]:
    base = repo.tip()
    if not count:
        return (base,)
    stream = f"reset {MAIN}\nfrom {base}\n\n".encode()
    for n in range(count):
        content = chance.randbytes(1 + int(PUSH_BYTES * chance.lognormvariate(0.0, PUSH_SPREAD)))
        stream += f"commit {MAIN}\ncommitter A <a@example.com> {BEGAN_AT + n + 1} +0000\n".encode()
        stream += f"data 5\npush\nM 100644 inline file-{n % 20}\ndata {len(content)}\n".encode()
        stream += content + b"\n"
    repo.git("fast-import", "--quiet", "--date-format=raw", stdin=stream + b"done\n")
    return (base, *repo.git("rev-list", "--reverse", f"{base}..{MAIN}").split())


def make_targets(server: GitServer, sources: list[Source], owner: str) -> list[UpstreamRepo]:
    """A target for each, filled as its source is when the day begins; whoever asks may push there."""
    template = server.folder / f"{owner}.git"
    link_tree(sources[0].repo.path.parent.parent / "template.git", template)
    first = UpstreamRepo(template, owner, server.url(owner))
    first.git("config", "http.receivepack", "true")
    found = []
    for source in sources:
        name = f"{owner}/{source.name}"
        path = server.folder / f"{name}.git"
        link_tree(template, path)
        found.append(UpstreamRepo(path, name, server.url(name)))
    return found


def assert_same(sources: list[Source], *others: list[UpstreamRepo] | list[Path]) -> None:
    """What was pushed this day is there, too."""
    for n, source in enumerate(sources):
        if source.pushes:
            wanted = source.repo.refs()
            for other in others:
                there = other[n]
                assert read_refs(there if isinstance(there, Path) else there.path) == wanted, source.name
