"""Checks of rules and bounds: who is suspected and when, load, pace, trust, and rates."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property

from evermirror.core.fleet.copies import CopyState, Reason
from evermirror.core.fleet.decisions import Alert, AlertKind, Assign, CopyRow, Send, Welcome
from evermirror.core.fleet.flaps import faded, weight_factor
from evermirror.core.fleet.views import WorkerView
from evermirror.model.repo import RepoKey
from evermirror.model.worker import Duty, Liveness, WorkerId, WorkerRecord
from tests.support.sim.fleet.checks.shadow import Change, CopyStep, Scene, WorkerStep
from tests.support.sim.fleet.worker import RoughWorker

GRACE, BRAKE, SUSPICION, IDS = "grace", "brake", "suspicion", "ids"
EARLY_S = 2.0  # ticks come every second, and timers are as precise


class Attended:
    """Attended: a worker is suspected, declared down and given an id only by the rules.

    - Down only after a whole grace as a suspect, counted in time that a coordinator lived through.
    - Brake: nobody is declared down while too many are suspect, unless that was lifted for people to see.
    - Suspected only after more than ``max_missed`` rounds since it was welcomed, and never while its link
      was sound all the time: a coordinator that was paused suspects nobody for that.
    - An id belongs to one worker until that one retires.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._settings = scene.world.plan.settings
        self._suspect_at: dict[WorkerId, float] = {}  # lived, at most
        self._welcomed_at: dict[WorkerId, float] = {}
        self._sound: list[dict[WorkerId, tuple[int, int]]] = [
            {},
            {},
        ]  # links at the last sweeps, the older first
        self._standing: Counter[Liveness] = Counter()
        self._lifted = False  # too many are suspect, and the alert was called off all the same

    def restarted(self) -> None:
        """Rounds are counted anew."""
        lived_s = self._scene.lived_most_s
        self._welcomed_at = dict.fromkeys(self._scene.shadow.records, lived_s)

    def sweep(self) -> None:
        self._sound = [self._sound[1], {}]
        for worker in self._scene.world.workers:
            if worker.id is not None and (link := self._sound_link(worker)) is not None:
                self._sound[1][worker.id] = link

    def _sound_link(self, worker: RoughWorker) -> tuple[int, int] | None:
        """What stays the same for as long as nothing happens to its link."""
        link = worker.link
        if (
            not worker.welcomed
            or link is None
            or link.broken
            or not self._scene.world.network.reachable(worker.index)
        ):
            return None
        return link.session, link.cuts

    def changed(self, change: Change) -> None:
        for action in change.decision.actions:
            if isinstance(action, Welcome):
                self._welcomed_at[action.worker] = self._scene.lived_most_s
        down = 0
        for step in change.workers:
            self._look_at_id(step)
            self._count(step)
            if _became(step, Liveness.SUSPECT):
                self._suspected(step.after.id)
            elif _became(step, Liveness.DOWN):
                down += 1
                self._down(step.after.id)
            if step.after.liveness is not Liveness.SUSPECT:
                self._suspect_at.pop(step.after.id, None)
        self._look_at_brake(change, down)

    def _look_at_id(self, step: WorkerStep) -> None:
        before, after = step
        if before is None or before.duty is Duty.RETIRED or before.facts.name == after.facts.name:
            return
        self._scene.broken(IDS, f"id {after.id} of {before.facts.name} is given to {after.facts.name}")

    def _count(self, step: WorkerStep) -> None:
        if step.before is not None and step.before.duty is not Duty.RETIRED:
            self._standing[step.before.liveness] -= 1
        if step.after.duty is not Duty.RETIRED:
            self._standing[step.after.liveness] += 1

    def _suspected(self, worker: WorkerId) -> None:
        lived_s = self._scene.lived_most_s
        self._suspect_at[worker] = lived_s
        silent_s = lived_s - self._welcomed_at.get(worker, float("-inf"))
        if silent_s < self._settings.max_missed * self._settings.heartbeat_s - EARLY_S:
            detail = f"{self._scene.name(worker)} is suspected {silent_s:.0f} s after it was welcomed"
            self._scene.broken(SUSPICION, detail)
        known = self._scene.world.worker(worker)
        link = None if known is None else self._sound_link(known)
        if link is not None and link == self._sound[0].get(worker):
            self._scene.broken(SUSPICION, f"{self._scene.name(worker)} is suspected, and its link was sound")

    def _down(self, worker: WorkerId) -> None:
        waited_s = self._scene.lived_most_s - self._suspect_at.get(worker, self._scene.lived_most_s)
        if waited_s < self._settings.grace_s - EARLY_S:
            name, grace_s = self._scene.name(worker), self._settings.grace_s
            self._scene.broken(GRACE, f"{name} is down after {waited_s:.0f} s, its grace is {grace_s:.0f} s")

    def _look_at_brake(self, change: Change, down: int) -> None:
        """Those declared down just now were suspects until now."""
        suspects = self._standing[Liveness.SUSPECT] + down
        members = self._standing[Liveness.ALIVE] + suspects
        too_many = suspects > self._settings.brake_share * members
        for action in change.decision.actions:
            if isinstance(action, Alert) and action.kind is AlertKind.BRAKE:
                self._lifted = action.over and too_many
        self._lifted = self._lifted and too_many
        if down and too_many and not self._lifted:
            self._scene.broken(BRAKE, f"{down} declared down while {suspects} of {members} are suspect")


def _became(step: WorkerStep, liveness: Liveness) -> bool:
    before = None if step.before is None else step.before.liveness
    return step.after.liveness is liveness and before is not liveness and step.after.duty is not Duty.RETIRED


LOAD, PACE, PRIVATE = "load", "pace", "private"
ROUNDING = 2.0  # copies: bounds are rounded up, and the mean changes while many are placed
BELOW = 0.05  # of the bound: so much below it somebody surely could take one more


class Within:
    """Within bounds: load, pace and trust.

    - Load: nobody is given more than its bound while somebody else who could take it is below.
    - Pace: clones asked for and not done stay within what one worker and the whole fleet may have at once; a
      worker starts with few, and gets one more at most for each one done or deferred.
    - Private: what is for trusted workers only is asked of no other.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._settings = scene.world.plan.settings
        self._done: Counter[WorkerId] = Counter()  # clones done since the session began
        self._barred: set[tuple[RepoKey, WorkerId]] = set()  # taken from it, as it could not clone it

    def changed(self, change: Change) -> None:
        for action in change.decision.actions:
            if isinstance(action, Welcome) and not action.resumed:
                self._done[action.worker] = 0
        asked: set[WorkerId] = set()
        gained: defaultdict[WorkerId, list[CopyStep]] = defaultdict(list)
        for step in change.copies:
            if _is(step.before, CopyState.ASKED) and (step.told_held or _is(step.after, CopyState.DEFERRED)):
                self._done[step.worker] += 1
            if step.lost and step.key in change.salts:
                self._barred.add((step.key, step.worker))
            if step.gained:
                gained[step.worker].append(step)
        for action in change.decision.actions:
            if isinstance(action, Send) and isinstance(action.command, Assign):
                self._look_at_trust(action.worker, action.command)
                asked.add(action.worker)
        for worker in asked:
            self._look_at_pace(worker)
        crowd = _Crowd(self._scene)
        for worker, steps in gained.items():
            self._look_at_load(worker, steps, crowd)

    def _look_at_trust(self, worker: WorkerId, command: Assign) -> None:
        scene = self._scene
        if scene.shadow.records[worker].facts.trusted:
            return
        repos = scene.world.store.repos
        for item in command.items:
            repo = repos.get(item.key)
            row = scene.shadow.copies.get(item.key, {}).get(worker)
            held = row is not None and row.state is CopyState.HELD
            if repo is not None and repo.trusted_only and not held:
                scene.broken(PRIVATE, f"{item.key} is private and asked of {scene.name(worker)}")

    def _look_at_pace(self, worker: WorkerId) -> None:
        shadow, settings = self._scene.shadow, self._settings
        asked = shadow.asked[worker]
        window = min(settings.moves_per_worker, settings.moves_first + self._done[worker])
        if asked > window:
            name = self._scene.name(worker)
            detail = f"{asked} clones are asked of {name}, {self._done[worker]} done: {window} may be"
            self._scene.broken(PACE, detail)
        total = self._asked_of_those_there()
        if total > settings.moves_total:
            self._scene.broken(PACE, f"{total} clones are asked for, {settings.moves_total} may be in all")

    def _asked_of_those_there(self) -> int:
        """Of one who is away nothing is under way, whatever it was asked for."""
        if self._scene.shadow.total_asked <= self._settings.moves_total:
            return self._scene.shadow.total_asked
        return sum(
            count
            for worker, count in self._scene.shadow.asked.items()
            if count and (known := self._scene.world.worker(worker)) is not None and known.connected
        )

    def _look_at_load(self, worker: WorkerId, gained: list[CopyStep], crowd: _Crowd) -> None:
        """Copies said to be OVERFULL come last, as nobody else could take them: they are looked at with all
        that the worker has, the others with what it had before those came. Where three copies need the only
        three workers, the lightest must go beyond its bound, and what it had before was no wrong."""
        shadow = self._scene.shadow
        load, own = len(shadow.wanted[worker]), shadow.records[worker]
        bound = self._settings.load_bound
        if load <= bound * shadow.fair_share(worker) + ROUNDING or self._scene.machine is None:
            return
        taking = crowd.taking
        most = bound * self._level(own, crowd) * own.facts.weight + ROUNDING
        forced = sum(_reason(step) is Reason.OVERFULL for step in gained)
        low = [record for record in taking if self._is_low(record)]
        for step in gained:
            reason = _reason(step)
            beyond = (load if reason is Reason.OVERFULL else load - forced) > most
            if not beyond or reason in (Reason.PINNED, Reason.KEPT, Reason.SLOW):
                continue
            for record in low:
                if self._fits(record, step):
                    self._scene.broken(
                        LOAD,
                        f"{step.key} is given to {self._scene.name(worker)} with {load} copies, "
                        f"{self._scene.name(record.id)} has {len(shadow.wanted[record.id])}",
                    )

    def _is_low(self, record: WorkerRecord) -> bool:
        shadow = self._scene.shadow
        below = (self._settings.load_bound - BELOW) * shadow.fair_share(record.id) - ROUNDING
        return len(shadow.wanted[record.id]) < below

    def _level(self, own: WorkerRecord, crowd: _Crowd) -> float:
        """Copies for weight 1, if those that take had everything; for a trusted one perhaps more, if it and
        its like had everything that is private. Also where only a few repos were placed: what the others
        have is known here, and a worker's share does not depend on how many move."""
        level = self._water_level(
            self._scene.shadow.total_wanted, len(self._scene.world.store.repos), crowd.taking
        )
        if own.facts.trusted:
            repos, copies = crowd.private
            trusted = [record for record in crowd.taking if record.facts.trusted]
            level = max(level, self._water_level(copies, repos, trusted))
        return level

    def _water_level(self, copies: float, repos: int, among: list[WorkerRecord]) -> float:
        """Less goes to those that flap, and to nobody more than there are repos."""
        now_s = self._scene.world.utc_s
        weights = [
            record.facts.weight * weight_factor(faded(record.flap_score, record.flap_at, now_s))
            for record in among
        ]
        while weights and copies:
            level = copies / sum(weights)
            full = [weight for weight in weights if weight * level > repos]
            if not full:
                return level
            copies -= repos * len(full)
            weights = [weight for weight in weights if weight * level <= repos]
        return float("inf") if copies > 0 else 0.0

    def _fits(self, record: WorkerRecord, step: CopyStep) -> bool:
        """It could hold that repo, and nothing on the ring speaks against it."""
        repo = self._scene.world.store.repos.get(step.key)
        allowed = repo is not None and (record.facts.trusted or not repo.trusted_only)
        steady = not record.flap_score  # the ring gives less to those that flap
        barred = (step.key, record.id) in self._barred
        return allowed and steady and not barred and record.id not in self._scene.shadow.copies[step.key]


class _Crowd:
    """Who could take repos after one decision, and what is private: looked up once for all that gained."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    @cached_property
    def taking(self) -> list[WorkerRecord]:
        machine = self._scene.machine
        views = machine.workers() if machine is not None else ()
        return [view.record for view in views if self._takes(view)]

    def _takes(self, view: WorkerView) -> bool:
        record = view.record
        full = record.facts.capacity is not None and view.wanted >= record.facts.capacity
        alive = self._scene.shadow.keeps(record.id) and record.liveness is Liveness.ALIVE
        return alive and view.accepting and not view.stalled and not full

    @cached_property
    def private(self) -> tuple[int, int]:
        """Repos, and copies of them that are wanted."""
        keys = [key for key, repo in self._scene.world.store.repos.items() if repo.trusted_only]
        return len(keys), sum(self._scene.shadow.wanted_copies.get(key, 0) for key in keys)


def _reason(step: CopyStep) -> Reason | None:
    return None if step.after is None else step.after.reason


def _is(row: CopyRow | None, state: CopyState) -> bool:
    return row is not None and row.state is state


RATES = "rates"
LEAST = 1e-5  # of the rate
ROUNDED = 1e-9


class Rated:
    """Rates: at every step all workers together may ask no more of a host, or of all hosts, than the fleet's.

    Counted is what workers really obey, whatever the coordinator thinks: the share that a worker was told
    and took in; or, of a host for which it has none, what the repos that it polls can ask for at all. Not
    counted are those that are down in the fleet's books, which others replace, and those that were, until
    they are told anew. Who found no room has a thousandth of a hundredth of the rate.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        settings = scene.world.plan.settings
        self._host_rate, self._whole_rate = settings.host_rate, settings.polls_per_second
        self._min_gap_s = settings.min_gap_s
        self._fell_at: dict[WorkerId, float] = {}  # UTC seconds
        self.on = self._host_rate is not None or self._whole_rate is not None

    def changed(self, change: Change) -> None:
        for step in change.workers:
            if step.after.liveness is Liveness.DOWN:
                self._fell_at[step.after.id] = self._scene.world.utc_s
            elif step.before is None or step.before.duty is Duty.RETIRED:
                self._fell_at.pop(step.after.id, None)  # the id is another's now

    def step(self) -> None:
        if not self.on:
            return
        of_host: Counter[str] = Counter()
        whole, count = 0.0, 0
        for worker in self._scene.world.workers:
            if self._counts(worker):
                count += 1
                whole += self._of_all(worker)
                for host, rate in self._of_hosts(worker).items():
                    of_host[host] += rate  # type: ignore[assignment]
        slack = 1.0 + LEAST * count + ROUNDED
        for host, used in of_host.items():
            if self._host_rate is not None and used > self._host_rate * slack:
                self._scene.broken(RATES, f"{host} may be asked {used:.6f}/s, the rate is {self._host_rate}")
        if self._whole_rate is not None and whole > self._whole_rate * slack:
            self._scene.broken(RATES, f"all may ask {whole:.6f}/s together, the rate is {self._whole_rate}")

    def _counts(self, worker: RoughWorker) -> bool:
        if worker.id is None or not worker.up:
            return False
        record = self._scene.shadow.records.get(worker.id)
        if (
            record is None
            or record.liveness is Liveness.DOWN
            or self._scene.world.worker(record.id) is not worker
        ):
            return False
        fell_at = self._fell_at.get(worker.id)
        return fell_at is None or (worker.limits is not None and worker.limits.told_at > fell_at)

    def _of_hosts(self, worker: RoughWorker) -> dict[str, float]:
        if self._host_rate is None:
            return {}
        repos = Counter(key.partition("/")[0] for key in worker.primaries)
        limits = worker.limits
        usual = self._host_rate if limits is None or limits.host_rate is None else limits.host_rate
        rates = {host: min(self._asks(count), usual) for host, count in repos.items()}
        return rates | dict(() if limits is None else limits.host_rates)

    def _of_all(self, worker: RoughWorker) -> float:
        told = None if worker.limits is None else worker.limits.polls_per_second
        if told is None:
            told = self._whole_rate or 0.0
        return min(told, self._asks(len(worker.primaries))) if told == self._whole_rate else told

    def _asks(self, repos: int) -> float:
        return repos / self._min_gap_s if self._min_gap_s > 0 else float("inf") if repos else 0.0
