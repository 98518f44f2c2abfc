"""An operator's question to the fleet: what would happen if so many workers were lost, joined or drained?

    fill an empty fleet ─▶ settled ─▶ the change (t = 0) ─▶ looks, until nothing moves any more ─▶ findings
      (bytes take no time)              lose, join, drain      (bytes take their time)

The machine that decides is the real one; workers, network and bytes are the simulated world's. Equal studies
have equal findings.
"""

from __future__ import annotations

from collections.abc import Callable

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.decisions import CopyRow, Decision, DropCopies, PutCopies
from evermirror.core.fleet.events import DrainAsked
from evermirror.core.fleet.machine import FleetMachine
from evermirror.core.fleet.views import Totals
from evermirror.errors import EvermirrorError
from evermirror.model.repo import RepoKey
from evermirror.model.worker import Duty, Liveness, WorkerFacts, WorkerId
from evermirror.sim.fleet.question import HOUR, Change, Findings, Point, Study, is_trusted
from evermirror.sim.fleet.world import FleetWorld

FILL_STEP_S = 5.0
FILL_MAX_S = 12 * HOUR  # bytes take no time then; a fleet that is not full by now never is
BEFORE_S = 120.0  # of the settled fleet, shown before the change
QUIET_S = 60.0  # after the last thing that could still happen by itself
POINT_S = 5.0  # between two points of the findings, at first; then a hundredth of the time gone by
POINTS_SHARE = 0.01
LOOK_MAX_S = 60.0
BLINK_S = 1e-6  # less is rounding, not time
TO_COME = (CopyState.PLANNED, CopyState.ASKED, CopyState.DEFERRED)


Progress = Callable[[str, float], None]  # what is going on, and how much of it is done (of 1)


class StudyWorld(FleetWorld):
    """Workers are trusted by turns, not by chance: small fleets get their share.

    Once ``watching``, notes which copies go where they were not: those that came, and those to come."""

    def __init__(self, study: Study) -> None:
        super().__init__(study.seed, study.settings, slots=study.slots, mean_mb=study.mean_mb)
        self.watching = False
        self._trusted = study.trusted
        self._came: set[tuple[RepoKey, WorkerId]] = set()
        self._to_come: set[tuple[RepoKey, WorkerId]] = set()

    @property
    def machine(self) -> FleetMachine:
        machine = self.coordinator.machine
        if machine is None:
            raise EvermirrorError("the simulated coordinator is not running")
        return machine

    @property
    def moved(self) -> int:
        return len(self._came | self._to_come)

    def make_facts(self, index: int) -> WorkerFacts:
        return WorkerFacts(f"w{index:03}", trusted=is_trusted(index, self._trusted))

    def decided(self, decision: Decision) -> None:
        if not self.watching:
            return
        for write in decision.writes:
            match write:
                case PutCopies(rows):
                    for row in rows:
                        self._put(row)
                case DropCopies(copies):
                    self._to_come.difference_update(copies)  # planned, and then not
                case _:
                    pass

    def _put(self, row: CopyRow) -> None:
        copy = row.key, row.worker
        if row.state in TO_COME:
            self._to_come.add(copy)
        elif row.state is CopyState.HELD and copy in self._to_come:
            self._to_come.remove(copy)
            self._came.add(copy)


def run(study: Study, tell: Progress = lambda what, share: None) -> Findings:
    """The whole study; ``tell`` is called every now and then."""
    whole = _Run(study, tell)
    whole.play()
    return whole.findings()


def readable(totals: Totals) -> int:
    """How many repos are complete on a worker that is alive; none lies here, so nobody has to verify them."""
    return totals.held + totals.unverified


class _Missing:
    """How many lacked something at most, and since when none does; None: some still do."""

    def __init__(self) -> None:
        self.most = 0
        self.none_after_s: float | None = 0.0

    def look(self, missing: int, now: float) -> None:
        self.most = max(self.most, missing)
        if missing:
            self.none_after_s = None
        elif self.none_after_s is None:
            self.none_after_s = now


class _Run:
    """The world of one study, and what was seen of it."""

    def __init__(self, study: Study, tell: Progress) -> None:
        self._study = study
        self._tell = tell
        self._world = StudyWorld(study)
        self._points: list[Point] = []
        self._counted_mb = (0.0, 0.0)
        self._suspected_s: float | None = None
        self._down_s: float | None = None
        self._brake_s: float | None = None
        self._unowned = _Missing()
        self._unheld = _Missing()
        self._zero_s = 0.0  # the world's time of the change
        self._copies = self._ideal = 0
        self._done_before = (0, 0, 0)  # clones, through the relay, deletions
        self._settled_s: float | None = None

    # The three acts

    def play(self) -> None:
        world = self._world
        self._fill()
        self._show_before()
        self._done_before = (world.clones, world.relayed, world.deleted)
        self._copies = sum(view.wanted for view in world.machine.workers())
        world.watching = True
        self._ideal = self._change()
        self._follow()

    def _fill(self) -> None:
        world, study = self._world, self._study
        world.begin(study.workers, study.repos, study.private)
        while world.time.now < FILL_MAX_S:
            world.advance(FILL_STEP_S)
            totals = world.machine.totals()
            held = readable(totals)
            self._tell("filling the fleet", held / study.repos)
            if held == study.repos and totals.alive == study.workers and self._settled(totals):
                return
        raise EvermirrorError(
            "the simulated fleet did not fill up", hint="Please report this, with all options"
        )

    def _show_before(self) -> None:
        """The settled fleet for a while; from now on bytes take their time."""
        self._world.traffic.rate_mb_s = self._study.bandwidth_mb_s
        self._zero_s = self._world.time.now + BEFORE_S
        self._note(self._look())
        self._world.advance(BEFORE_S)
        self._note(self._look())

    def _change(self) -> int:
        """Do it; how many copies must move for it."""
        study, world = self._study, self._world
        if study.change is Change.JOIN:
            world.join(study.count)
            return round(self._copies * study.count / (study.workers + study.count))
        chosen = sorted(world.rng.sample(range(study.workers), study.count))
        on = {view.record.id: view.wanted for view in world.machine.workers()}
        ids = [id for index in chosen if (id := world.workers[index].id) is not None]
        for index, id in zip(chosen, ids, strict=True):
            if study.change is Change.DRAIN:
                world.coordinator.handle(DrainAsked(id))
            elif study.back_after_s is None:
                world.kill(index)
            else:
                world.crash(index, told=False)
                world.time.after(study.back_after_s, world.start, index)
        return sum(on[id] for id in ids)

    def _follow(self) -> None:
        """Look until nothing moves, nor could begin to by itself."""
        study = self._study
        last_s = study.back_after_s or 0.0  # the last thing that is done to the fleet
        still_s = last_s + study.detection_s + study.grace_s + 2 * study.settings.rebalance_gap_s
        most = 1
        while study.longest_s - self._now > BLINK_S:
            self._world.advance(self._step(still_s))
            totals = self._look()
            self._note_at_times(totals)
            if not self._settled(totals):
                self._settled_s = None
            elif self._settled_s is None:
                self._settled_s = self._now
            most = max(most, totals.planned + totals.asked)
            self._tell_of(totals, most, still_s)
            if self._now >= still_s + QUIET_S and self._is_over(totals):
                break
        self._note(self._look())

    def _is_over(self, totals: Totals) -> bool:
        if totals.braked and not totals.planned + totals.asked:
            return True  # only people can go on from here
        return self._settled_s is not None and self._now >= self._settled_s + QUIET_S

    def _step(self, still_s: float) -> float:
        """Every tick while something may happen at any moment, then more and more rarely."""
        tick_s = self._study.settings.tick_s
        rare_s = min(max(tick_s, self._now * POINTS_SHARE / 2), LOOK_MAX_S)
        return min(tick_s if self._now < still_s else rare_s, self._study.longest_s - self._now)

    def _tell_of(self, totals: Totals, most: int, still_s: float) -> None:
        left = totals.planned + totals.asked
        if left:
            self._tell("copies move", 1 - left / most)
        else:
            self._tell("time passes", min(self._now / (still_s + QUIET_S), 1.0))

    # Looking

    @property
    def _now(self) -> float:
        return self._world.time.now - self._zero_s

    def _settled(self, totals: Totals) -> bool:
        """Every live worker holds what is wanted of it, and nothing else; nobody is suspect."""
        if totals.planned or totals.asked or totals.suspect:
            return False
        views = self._world.machine.workers()
        return all(view.held == view.wanted for view in views if view.record.liveness is Liveness.ALIVE)

    def _look(self) -> Totals:
        totals, now = self._world.machine.totals(), self._now
        if now <= 0:
            return totals
        if totals.suspect and self._suspected_s is None:
            self._suspected_s = now
        if totals.alive + totals.suspect < totals.workers and self._down_s is None:
            self._down_s = now
        if totals.braked and self._brake_s is None:
            self._brake_s = now
        self._unowned.look(totals.repos - totals.owned, now)
        self._unheld.look(totals.repos - readable(totals), now)
        return totals

    def _note_at_times(self, totals: Totals) -> None:
        """A point when it is time for one, or when the picture changed at one blow."""
        last = self._points[-1]
        jumped = (last.alive, last.owned, last.braked) != (totals.alive, totals.owned, totals.braked)
        if jumped or self._now - last.at_s >= max(POINT_S, self._now * POINTS_SHARE):
            self._note(totals)

    def _note(self, totals: Totals) -> None:
        traffic, now = self._world.traffic, self._now
        traffic.catch_up()
        gone_s = now - self._points[-1].at_s if self._points else 0.0
        if self._points and not gone_s:
            return
        upstream_mb, relay_mb = (
            traffic.upstream_mb - self._counted_mb[0],
            traffic.relay_mb - self._counted_mb[1],
        )
        self._counted_mb = (traffic.upstream_mb, traffic.relay_mb)
        self._points.append(
            Point(
                now,
                totals.alive,
                totals.owned,
                readable(totals),
                totals.planned,
                totals.asked,
                self._load(),
                upstream_mb / gone_s if gone_s else 0.0,
                relay_mb / gone_s if gone_s else 0.0,
                totals.braked,
            )
        )

    def _load(self) -> float:
        loads = [
            view.wanted / view.record.facts.weight
            for view in self._world.machine.workers()
            if view.record.liveness is Liveness.ALIVE and view.record.duty is Duty.ACTIVE
        ]
        return max(loads) * len(loads) / sum(loads) if sum(loads) else 0.0

    # The answer

    def findings(self) -> Findings:
        world, traffic, points = self._world, self._world.traffic, self._points
        totals = world.machine.totals()
        busy_s = traffic.busy_s
        clones, relayed, deleted = self._done_before
        return Findings(
            copies=self._copies,
            ideal=self._ideal,
            moved=world.moved,
            cloned=world.clones - clones,
            relayed=world.relayed - relayed,
            deleted=world.deleted - deleted,
            upstream_mb=traffic.upstream_mb,
            relay_mb=traffic.relay_mb,
            suspected_after_s=self._suspected_s,
            down_after_s=self._down_s,
            unowned_max=self._unowned.most,
            owned_after_s=self._unowned.none_after_s,
            unheld_max=self._unheld.most,
            held_after_s=self._unheld.none_after_s,
            settled_after_s=self._settled_s,
            waiting_for_room=totals.no_room,
            brake_after_s=self._brake_s,
            brake_at_end=totals.braked,
            load_before=points[0].load,
            load_peak=max(point.load for point in points),
            load_after=points[-1].load,
            peak_mb_s=traffic.peak_mb_s,
            upstream_peak_mb_s=traffic.upstream_peak_mb_s,
            relay_peak_mb_s=traffic.relay_peak_mb_s,
            upstream_mean_mb_s=traffic.upstream_mb / busy_s if busy_s else 0.0,
            relay_mean_mb_s=traffic.relay_mb / busy_s if busy_s else 0.0,
            busy_s=busy_s,
            studied_s=self._now,
            events=world.coordinator.events,
            points=tuple(points),
        )
