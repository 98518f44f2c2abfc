"""Hooks of forges: from one received to the refs in the mirror, beside a bare fetch; and very many at once.

The latency is of one repo that is pushed to: a hook is sent, and the mirror's ref on the disk is watched;
``git fetch`` of the same push into a clone is what nobody can be quicker than. Against an all-in-one, and
through a coordinator and a worker of their own; the load too. A part of it by default; what is promised is a
minute, and ``--seconds 60`` gives it, over ten times as many repos.
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.measure import Bench, Context, Line, Sense
from bench.worlds.hook_load import load, load_lines
from bench.worlds.hook_sender import made, send_one
from bench.worlds.hook_worlds import SECRET, World, all_in_one, fleet, until
from bench.worlds.server import GitServer
from tests.support.gitrepo import UpstreamRepo, run_git

STAND_IN = "pool/stand-in"
SEEN_S = 30.0
PUSHED, QUIET = 20, 160  # repos that change while hooks come, and those that do not
PUSHED_LONG, QUIET_LONG = 100, 1900  # the same of a load that is asked for
SECONDS = 10
WORLDS = (
    ("all-in-one", all_in_one, 300.0, "hooks-one"),
    ("coordinator, worker", fleet, 500.0, "hooks-fleet"),
)


def _latency(world: World, repo: UpstreamRepo, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds from a hook to the ref, and of a bare fetch of the same push."""
    clone = world.disk.data.parent / f"clone-{world.disk.name}.git"
    run_git(clone.parent, "clone", "--quiet", "--mirror", repo.url, str(clone))
    ours, theirs = [], []
    for number in range(rounds):
        tip = repo.commit()
        fetch_first = number % 2 == 0
        if fetch_first:
            theirs.append(_fetch_ms(clone))
        request, at = made(repo.url, SECRET).numbered(tip), time.monotonic()
        assert send_one(world.front.port, request) == 202
        until(lambda tip=tip: world.tip(repo.name) == tip, SEEN_S, 0.001)  # type: ignore[misc]
        ours.append((time.monotonic() - at) * 1000)
        if not fetch_first:
            theirs.append(_fetch_ms(clone))
        time.sleep(1.1)  # beyond the gap: each hook is the first
    return ours, theirs


def _fetch_ms(clone: Path) -> float:
    at = time.monotonic()
    run_git(clone, "fetch", "--quiet", "--prune", "origin")
    return (time.monotonic() - at) * 1000


def _latency_lines(
    who: str, ours: list[float], theirs: list[float], goal_ms: float, promise: str
) -> list[Line]:
    beyond = tuple(a - b for a, b in zip(ours, theirs, strict=True))
    beside = f"{who}: hook to refs, beside git fetch"
    return [
        Line(beside, "ms wall", tuple(ours), tuple(theirs), Sense.TIMES_AS_MUCH),
        Line(
            f"{who}: beyond the fetch", "ms wall", beyond, sense=Sense.AT_MOST, goal=goal_ms, promise=promise
        ),
    ]


def _run_all(context: Context) -> list[Line]:
    rounds = context.rounds or context.size(6, 2)
    seconds = context.seconds or context.size(SECONDS, 1)
    many = seconds > SECONDS
    pushes = context.size(PUSHED_LONG if many else PUSHED, 3)
    with GitServer(context.folder / "upstream", tls=False, stand_in=STAND_IN, remembers=True) as server:
        server.create(STAND_IN)
        pushed = [server.create(f"pool/pushed-{n}") for n in range(pushes)]
        quiet = [f"pool/quiet-{n}" for n in range(context.size(QUIET_LONG if many else QUIET, 20))]
        names = [*quiet, *(repo.name for repo in pushed)]
        lines: list[Line] = []
        for who, of, goal_ms, promise in WORLDS:
            with of(_folder(context, who), server, names) as world:
                lines += _latency_lines(who, *_latency(world, pushed[0], rounds), goal_ms, promise)
                lines += load_lines(who, load(world, quiet, pushed, seconds))
    return lines


def _folder(context: Context, name: str) -> Path:
    folder = context.folder / name.replace(", ", "-")
    folder.mkdir(parents=True)
    return folder


BENCH = Bench(
    name="hooks",
    measures="from a hook to the refs, and 500 hooks a second",
    alternative="a bare `git fetch`",
    run=_run_all,
    order=80,
    takes_s=63,
)
