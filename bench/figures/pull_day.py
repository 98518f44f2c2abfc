"""A day of pull mirroring, 200 projects: the pull machine and a worker, against a plain loop of git commands.

The machine decides in virtual time when which project is looked at; a worker looks at real sources and pushes
on to real targets. The loop looks at one project in ``LOOPED`` of these, in the same order, with the same
pushes in between. It does all looks that find something new there, and one in ``SAMPLED`` of those that find
nothing; what each kind costs counts for as many as there were at all projects. Both live through a sixth of
the day. Only git's own CPU counts as the sources': how they are served is not what is compared.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path

from bench.measure import Bench, Context, Line, Sense, Stopwatch
from bench.worlds.population import link_tree, mirror_all
from bench.worlds.processes import ProcessCount
from bench.worlds.product import Product, ScriptedPort, new_loop, spec_of, worker_on
from bench.worlds.pull_sources import HOUR_S, Source, assert_same, make_sources, make_targets
from bench.worlds.server import GitServer, Served
from evermirror.core.pull.events import OpenTask, ProjectPut, StartTask, TaskEnded, TaskOpened, Woke
from evermirror.core.pull.machine import PullMachine
from evermirror.core.pull.settings import PullSettings
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.edge.git.push import Pusher
from evermirror.edge.git.push_sending import PushSettings
from evermirror.edge.store.outcomes import outcome_of
from evermirror.model.address import AllowList
from evermirror.model.messages import AssignRepos, Failed, Refused, Synced, SyncNow
from evermirror.model.pull import Project, PullConfig, Strategy, Target
from evermirror.model.push import PushTo, TargetId
from evermirror.model.repo import RepoSpec
from evermirror.model.task import TaskId, TaskStatus, Trigger
from evermirror.model.url import UrlRules
from evermirror.nodes.clock import SteadyClock
from tests.support.gitrepo import UpstreamRepo

BEGIN = 1_800_000_000.0
PULL_S = 2.0  # of virtual time, for the pulls that run at once
LOOK_S = 0.2  # what the machine is told: the source is never found to be slow
LOOPED, SAMPLED = 3, 8
FROM_H, HOURS = 12, 4  # of the day, by UTC
TRACED = 10  # looks of the loop whose processes are counted
TIMEOUT_S = 600
LOOP = """
while read -r clone ref oid; do
    if [ "$oid" != - ]; then printf '%s\\n' "$oid" >"$ref"; fi
    git -C "$clone" remote update >/dev/null 2>&1 && git -C "$clone" push --quiet --mirror || exit 1
done
"""


@dataclass(frozen=True, slots=True)
class Look:
    """Source number ``n`` was looked at; ``oid`` is new then, or nothing is."""

    n: int
    oid: str | None


@dataclass(frozen=True, slots=True)
class Bill:
    """What looks cost: the source, the targets, and who looks."""

    source: Served = field(default_factory=Served)
    targets: Served = field(default_factory=Served)
    cpu_s: float = 0.0

    def __add__(self, other: Bill) -> Bill:
        return Bill(self.source + other.source, self.targets + other.targets, self.cpu_s + other.cpu_s)

    def __mul__(self, times: float) -> Bill:
        return Bill(self.source * times, self.targets * times, self.cpu_s * times)


@dataclass(slots=True)
class World:
    """Sources behind one server, targets behind another; none of them remembers its answers."""

    source: GitServer
    target: GitServer
    sources: list[Source]
    hours: int
    real: bool

    def meter(self) -> Meter:
        return Meter(self)


class Meter:
    """``with world.meter() as meter: …`` and then ``meter.bill``."""

    bill: Bill

    def __init__(self, world: World) -> None:
        self._world = world
        self._watch = Stopwatch()

    def __enter__(self) -> Meter:
        self._before = self._world.source.served(), self._world.target.served()
        self._watch.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.__exit__()
        source, target = self._before
        self.bill = Bill(
            self._world.source.served() - source,
            self._world.target.served() - target,
            self._watch.cost.cpu_s,
        )


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one side. ``same`` and ``processes`` (of git) are for one look that finds nothing."""

    day: Bill
    looks: list[Look]
    same: Bill
    processes: float

    @property
    def changed(self) -> int:
        return sum(look.oid is not None for look in self.looks)

    @property
    def found(self) -> Bill:
        """Of one look that finds something: what is left of the day without the others."""
        others = self.same * (self.changed - len(self.looks))
        return (self.day + others) * (1 / self.changed)


# Ours


class Ours:
    """The machine's decisions, carried out by a worker; each batch of looks ends before time goes on."""

    def __init__(self, world: World, port: ScriptedPort, targets: list[UpstreamRepo]) -> None:
        self._world, self._port = world, port
        self._specs = [replace(spec_of(world.source, s.name), pulled=True) for s in world.sources]
        self._number = {spec.key: n for n, spec in enumerate(self._specs)}
        self._targets = targets
        self._machine = PullMachine(PullSettings(), UTC, Strategy())
        self._ids = 0
        self._now = BEGIN
        self.looks: list[Look] = []

    async def settle_in(self) -> None:
        """Each target was seen to have what its source has."""
        await self._port.command(AssignRepos(tuple(self._specs)))
        commands = [
            SyncNow(spec.key, self._new_id(), push=(PushTo(TargetId(1), target.url),))
            for spec, target in zip(self._specs, self._targets, strict=True)
        ]
        synced = {report.key: report for report in await self._ask(commands)}
        for n, spec in enumerate(self._specs):
            (pushed,) = synced[spec.key].pushes
            assert pushed.failure is None, pushed.failure
            target = Target(TargetId(1), self._targets[n].url, put=pushed.put, put_at=BEGIN)
            self._machine.handle(ProjectPut(self._project(n, spec, target)), BEGIN)

    def _project(self, n: int, spec: RepoSpec, target: Target) -> Project:
        source = self._world.sources[n]
        due = BEGIN + n * 7919 % 1_009 / 1_009 * source.interval_s
        return Project(
            spec.key,
            source.name,
            spec.host,
            PullConfig(source.priority, source.interval_s),
            (target,),
            last_sync_at=due - source.interval_s,
            next_sync_at=due,
            last_status=TaskStatus.SKIPPED,
        )

    async def live_through(self) -> None:
        """The day, from the machine's first word to its last."""
        while (at := self._machine.next_wake(self._now)) is not None and at < self._end:
            self._now = max(at, self._now)
            opens = self._machine.handle(Woke(), self._now).opens
            while opens and self._now < self._end:
                opens = await self._pull(opens)

    @property
    def _end(self) -> float:
        return BEGIN + self._world.hours * HOUR_S

    async def _pull(self, opens: Sequence[OpenTask]) -> tuple[OpenTask, ...]:
        starts: list[StartTask] = []
        for opened in opens:
            event = TaskOpened(opened.project.key, self._new_id(), Trigger.SCHEDULE)
            starts += self._machine.handle(event, self._now).starts
        for start in starts:
            n = self._number[start.key]
            self.looks.append(Look(n, self._world.sources[n].come_to(self._now - BEGIN)))
        began, self._now = self._now, self._now + PULL_S
        following: list[OpenTask] = []
        for report in await self._ask([SyncNow(s.key, s.task_id, push=s.push) for s in starts]):
            outcome = outcome_of(report)
            assert outcome.failure is None, outcome.failure
            (task_id,) = report.task_ids
            end = TaskEnded(
                report.key,
                task_id,
                outcome.status,
                began,
                self._now,
                pushes=report.pushes,
                look_s=LOOK_S,
            )
            following += self._machine.handle(end, self._now).opens
        return tuple(following)

    async def look_once_more(self) -> int:
        """At every project: nothing is new."""
        keys = [spec.key for spec in self._specs]
        pushes = {key: self._machine.push_of(key, self._now) for key in keys}
        reports = await self._ask([SyncNow(key, self._new_id(), push=pushes[key]) for key in keys])
        assert all(outcome_of(report).status is TaskStatus.SKIPPED for report in reports)
        return len(keys)

    async def _ask(self, commands: list[SyncNow]) -> list[Synced]:
        for command in commands:
            await self._port.command(command)
        return await self._answers({(command.task_id,) for command in commands}, len(commands))

    async def _answers(self, wanted: set[tuple[TaskId, ...]], count: int) -> list[Synced]:
        answers: list[Synced] = []
        async with asyncio.timeout(TIMEOUT_S):
            while len(answers) < count:
                report = await self._port.next_report()
                if isinstance(report, Failed | Refused):
                    raise AssertionError(f"{report.key}: {report.failure.message}")
                if isinstance(report, Synced) and report.task_ids in wanted:
                    answers.append(report)
        return answers

    def _new_id(self) -> TaskId:
        self._ids += 1
        return TaskId(self._ids)


async def _ours(world: World, folder: Path, processes: ProcessCount) -> Result:
    product = Product.wire(world.source, folder / "data")
    targets = make_targets(world.target, world.sources, folder.name)
    rules = UrlRules(schemes=frozenset({"http", "https"}), allow=AllowList.parse(["127.0.0.1"]))
    pusher = Pusher(product.git, product.mirrors, product.prober, PushSettings(rules=rules), SteadyClock())
    settings = ScheduleSettings(slots=5, min_gap_s=3600, host_rate=None)
    specs = [spec_of(world.source, s.name) for s in world.sources]
    folder.mkdir(exist_ok=True)
    await mirror_all(product, specs, folder / "local.sqlite")
    async with worker_on(product, settings, folder / "local.sqlite", pusher) as (_, port):
        ours = Ours(world, port, targets)
        await ours.settle_in()
        with world.meter() as day:
            await ours.live_through()
        mirrors = [product.mirrors.path(spec.key) for spec in specs]
        assert_same(world.sources, mirrors, targets)
        before = processes.total
        with world.meter() as same:
            count = await ours.look_once_more()
        started = processes.total - before
    await product.close()
    return Result(day.bill, ours.looks, same.bill * (1 / count), started / count)


# Theirs


def _clones(world: World, folder: Path, targets: list[UpstreamRepo]) -> list[Path]:
    """As after ``git clone --mirror`` and ``git remote set-url --push origin``."""
    env, first = world.source.git_env(folder), folder / "first.git"
    url = world.source.url("template")
    subprocess.run(["git", "clone", "--quiet", "--mirror", url, str(first)], env=env, check=True)
    config = (first / "config").read_text("utf-8")
    clones = []
    for n, (source, target) in enumerate(zip(world.sources, targets, strict=True)):
        clone = folder / f"{n}.git"
        link_tree(first, clone)
        (clone / "config").unlink()
        mine = config.replace(url, source.repo.url) + f"\tpushurl = {target.url}\n"
        (clone / "config").write_text(mine, "utf-8")
        clones.append(clone)
    return clones


def _theirs(world: World, folder: Path, looks: list[Look]) -> Result:
    folder.mkdir()
    targets = make_targets(world.target, world.sources, folder.name)
    clones = _clones(world, folder, targets)
    env = world.source.git_env(folder)

    def loop(some: list[Look], **more: str) -> None:
        lines = [f"{clones[x.n]} {world.sources[x.n].main} {x.oid or '-'}\n" for x in some]
        subprocess.run(["sh", "-c", LOOP], input="".join(lines).encode(), env={**env, **more}, check=True)

    changed, same = ([x for x in looks if bool(x.oid) is moved] for moved in (True, False))
    played, sampled = ([x for x in some if x.n % LOOPED == 0] for some in (changed, same))
    sampled = sampled[::SAMPLED]
    for source in world.sources:
        source.begin_again()
    with world.meter() as found:
        loop(played)
    assert_same(world.sources[::LOOPED], clones[::LOOPED], targets[::LOOPED])
    with world.meter() as nothing:
        loop(sampled)
    traces = folder / "traces"
    traces.mkdir()
    traced = sampled[:TRACED]
    loop(traced, GIT_TRACE2_EVENT=str(traces))
    processes = len(list(traces.iterdir())) / len(traced)
    each = nothing.bill * (1 / len(sampled))
    return Result(found.bill * (len(changed) / len(played)) + each * len(same), looks, each, processes)


# Both


def _lines(world: World, ours: list[Result], theirs: list[Result]) -> list[Line]:
    looks, changed = len(ours[0].looks), ours[0].changed
    assert changed, "nobody pushed"
    whole = f"{len(world.sources)} projects, {world.hours} h of a day"
    of = f"{looks:,} looks, {changed} find something; loop: 1 project in {LOOPED}, scaled"
    histories = "" if world.real else ", made pushes"
    nothing, something = "a look that finds nothing", "a look that finds something"

    def line(
        what: str, unit: str, figure: Callable[[Result], float], goal: float | None = None, promise: str = ""
    ) -> Line:
        sides = [tuple(map(figure, side)) for side in (ours, theirs)]
        sense = Sense.TIMES_LESS if goal is None else Sense.AT_MOST
        return Line(what, unit, sides[0], sides[1], sense, goal, promise=promise)

    return [
        line(
            f"{whole} ({of}{histories})",
            "requests at the source",
            lambda r: r.day.source.requests,
            None,
            "pull-day",
        ),
        line(whole, "MB from the source", lambda r: r.day.source.sent_bytes / 1e6, None, "pull-day"),
        line(whole, "s CPU of git at the source", lambda r: r.day.source.git_cpu_s, None, "pull-day"),
        line(whole, "s CPU of who mirrors", lambda r: r.day.cpu_s, None, "pull-day"),
        line(whole, "requests at the targets", lambda r: r.day.targets.requests),
        line(whole, "s CPU of git at the targets", lambda r: r.day.targets.git_cpu_s),
        line(nothing, "requests at the source", lambda r: r.same.source.requests, 1.0, "pull-request"),
        line(nothing, "git processes here", lambda r: r.processes, 0.0, "pull-process"),
        line(nothing, "requests at the target", lambda r: r.same.targets.requests, 0.0),
        line(nothing, "ms CPU of git at the source", lambda r: r.same.source.git_cpu_s * 1e3),
        line(nothing, "ms CPU of who mirrors", lambda r: r.same.cpu_s * 1e3),
        line(something, "requests at the source", lambda r: r.found.source.requests),
        line(something, "ms CPU of who mirrors", lambda r: r.found.cpu_s * 1e3),
    ]


def _run(context: Context) -> list[Line]:
    processes = ProcessCount()
    ours: list[Result] = []
    theirs: list[Result] = []
    with (
        GitServer(context.folder / "sources", remembers=False) as source,
        GitServer(context.folder / "targets", tls=False, remembers=False) as target,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        sources, real = make_sources(source, context.size(200, 10), FROM_H * HOUR_S)
        world = World(source, target, sources, context.size(HOURS, 3), real)
        for n in range(context.rounds or 1):
            for each in sources:
                each.begin_again()
            ours.append(runner.run(_ours(world, context.folder / f"ours-{n}", processes)))
            theirs.append(_theirs(world, context.folder / f"theirs-{n}", ours[-1].looks))
    return _lines(world, ours, theirs)


BENCH = Bench(
    name="pull-day",
    measures="200 pulled projects, each with a target, four hours: what it costs the source, and us",
    alternative=f"a loop of git remote update && git push --mirror (for 1 project in {LOOPED}, and 1 in"
    f" {SAMPLED} of its looks that find nothing; scaled)",
    run=_run,
    order=65,
    takes_s=31,
)
