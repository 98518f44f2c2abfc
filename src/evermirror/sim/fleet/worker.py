"""A simulated worker: a disk, a local file, some slots for clones, and a link that comes and goes.

Rules
- Lasts through a crash: the disk, reports not yet acknowledged, its id, its roles, the last command taken in,
  its limits, which it obeys from the moment that it takes them in.
  Does not last: its process (``boot``), commands taken in and not done, clones under way.
- Commands are done in order, a moment after they were taken in. A fresh session forgets those not yet done,
  and its roles: it is told anew.
- A complete copy leaves the disk by ``Release(delete=True)`` or by an injected fault, in no other way.
- A clone takes time by size; from ``source`` through the relay where that one is up and has it, else from
  upstream.
- Where the disk is full, what waits is handed back, and ``accepting`` is False until there is room.

   down ── start ──▶ alone ── hello ──▶ greeting ── welcome ──▶ in session
    ▲                  ▲                    │ no answer             │ link lost
    └──── crash        └────────────────────┴───────────────────────┘
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any

from evermirror.core.fleet.decisions import (
    AckReports,
    Assign,
    Assignment,
    Command,
    CompareRanges,
    Nudge,
    Refuse,
    Release,
    Send,
    SetLimits,
    Welcome,
)
from evermirror.core.fleet.events import (
    ClonesDeferred,
    CopiesDropped,
    CopiesVerified,
    DeletionsDeclined,
    HeldCopy,
    ReposHandedBack,
)
from evermirror.model.messages import ApplySettings
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerFacts, WorkerId
from evermirror.sim.fleet.catalog import digest
from evermirror.sim.fleet.clones import Clones, Job
from evermirror.sim.fleet.messages import Beat, Hello, Report, Told, Took
from evermirror.sim.fleet.network import UP, Link
from evermirror.sim.fleet.reports import CHUNK, ReportLog, compared

if TYPE_CHECKING:
    from evermirror.sim.fleet.world import World

THINK_S = 0.5  # mean time from a command to its doing
GATHER_S = 0.5  # reports within it go together
GREETING_S = 20.0  # without a welcome for so long, the worker tries again
BACKOFF_MAX_S = 30.0
REFUSED_S = 600.0  # after a refusal


class Lie(Enum):
    """What an untrusted worker may be up to."""

    CLAIMS = "claims"  # says at once that it has what it was asked for, and clones nothing
    IGNORES = "ignores"  # sends heartbeats, and does nothing of what it is asked for
    GARBLES = "garbles"  # has it, and reports another digest
    INVENTS = "invents"  # tells of copies it never had nor was asked for


class SimWorker:
    """One end of a link, and all that is behind it."""

    def __init__(self, world: World, index: int, facts: WorkerFacts, *, slots: int, room: int | None) -> None:
        self.world = world
        self.index = index
        self.facts = facts
        self.room = room  # copies that its disk takes, which nobody knows
        # lasts
        self.id: WorkerId | None = None
        self.disk: dict[RepoKey, int] = {}  # complete copies and their versions
        self.claimed: dict[RepoKey, int] = {}  # what a liar says it has
        self.primaries: set[RepoKey] = set()  # what it was told to be first for
        self.log = ReportLog(world.number(), self._send_report)
        self.epoch = 0
        self.seen = 0
        self.limits: ApplySettings | None = None
        self.full = False
        self.lies: Lie | None = None
        self.slowness = 1.0
        self.dead = False  # for ever
        # does not last
        self.up = False
        self.boot = 0
        self.link: Link | None = None
        self.welcomed = False
        self.clones = Clones(self, slots)
        self._commands: deque[Command] = deque()
        self._stale: set[RepoKey] = set()  # upstream moved while it was down
        self._tries = 0
        self._to_tell = False  # all that it holds, after its older reports
        self._took = False  # an acknowledgement of commands is about to go

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def jobs(self) -> dict[RepoKey, Job]:
        """Clones asked for and not done."""
        return self.clones.jobs

    @property
    def connected(self) -> bool:
        """As it sees it."""
        return self.link is not None and self.welcomed

    @property
    def accepting(self) -> bool:
        return not self.full and (self.room is None or len(self.disk) + self.clones.running < self.room)

    # Up and down

    def start(self) -> None:
        if self.up or self.dead:
            return
        self.up = True
        self.boot = self.world.number()
        self._tries = 0
        self._connect_later(self.boot, 1.0)
        if self._stale:
            self.world.time.after(self.world.rng.uniform(5, 60), self._catch_up, self.boot)

    def crash(self, *, told: bool) -> None:
        """``told``: its machine lives and closes the link."""
        if not self.up:
            return
        self.up = False
        self._forget_commands()
        self.log.crashed()
        self._unplug(told=told)

    def lose_file(self) -> None:
        """The local file is gone (while down): other numbers, and it knows of no command."""
        self.log = ReportLog(self.world.number(), self._send_report)
        self.epoch = self.seen = 0
        self.limits = None
        self.primaries.clear()

    def lose(self, keys: Collection[RepoKey]) -> None:
        """A fault of the disk."""
        for key in keys:
            del self.disk[key]
            self.primaries.discard(key)
            self.world.unheld(key, self.index)

    # The link

    def _connect_later(self, boot: int, first_s: float) -> None:
        wait = min(first_s * 2.0**self._tries, BACKOFF_MAX_S) * self.world.rng.uniform(0.5, 1.0)
        self._tries = min(self._tries + 1, 10)
        self.world.time.after(wait, self._connect, boot)

    def _connect(self, boot: int) -> None:
        if boot != self.boot or not self.up or self.link is not None:
            return
        link = self.world.network.connect(self.index, self)
        if link is None:
            self._connect_later(boot, 1.0)
            return
        self.link = link
        hello = Hello(self.id, self.facts, self.boot, self.log.generation, self.epoch, self.seen, self.limits)
        self.world.network.send(link, UP, hello)
        self.world.time.after(GREETING_S, self._greeting_over, link)

    def _greeting_over(self, link: Link) -> None:
        if not self.welcomed:
            self.give_up(link)

    def give_up(self, link: Link) -> None:
        """The other side does not answer."""
        if link is self.link:
            self._unplug(told=True)
            self._connect_later(self.boot, 1.0)

    def _unplug(self, *, told: bool) -> None:
        link, self.link = self.link, None
        self.welcomed = self._to_tell = self._took = False
        self.log.unplugged()
        if link is not None:
            self.world.network.close(link, UP, told=told)

    def closed(self, link: Link) -> None:
        if link is self.link:
            self.link = None
            self.welcomed = self._to_tell = self._took = False
            self.log.unplugged()
            self._connect_later(self.boot, 1.0)

    def arrived(self, link: Link, message: Any) -> None:
        if link is not self.link:
            return
        match message:
            case Send():
                self._take_in(message)
            case AckReports():
                self.log.acked(message.generation, message.seq)
                if self._to_tell:
                    self._tell_all(link)
            case Welcome():
                self._begin(message, link)
            case Refuse():
                self._unplug(told=True)
                self.world.time.after(REFUSED_S, self._connect, self.boot)
            case _:
                self.world.broken("commands", f"{self.name} got {message!r}")

    def _begin(self, welcome: Welcome, link: Link) -> None:
        self.welcomed = True
        self._tries = 0
        self.id = welcome.worker
        self.world.knows(self)
        if not welcome.resumed:
            self._forget_commands()
            self.primaries.clear()  # told anew, as far as it is still so
            self.epoch, self.seen = welcome.epoch, 0
            self._to_tell = True
        elif welcome.epoch != self.epoch:
            self.world.broken("sessions", f"{self.name} resumed by a coordinator that it never met")
        self._beat(link)

    def _beat(self, link: Link) -> None:
        if link is self.link:
            progress = round(self.world.time.now * 1000) if self.clones.running else 0
            self.world.network.send(link, UP, Beat(self.accepting, progress))
            gap = self.world.plan.settings.heartbeat_s * (0.9 + 0.2 * self.world.rng.random())
            self.world.time.after(gap, self._beat, link)

    # Reports

    def _send_report(self, report: Report) -> None:
        if self.link is not None:
            self.world.network.send(self.link, UP, report)

    def _report(self, kind: Any, item: HeldCopy | RepoKey) -> None:
        if self.log.note(kind, item):
            self.world.time.after(GATHER_S, self._write, self.boot)

    def _write(self, boot: int) -> None:
        if boot == self.boot and self.up:
            self.log.write()

    def _verified(self, key: RepoKey, version: int) -> None:
        self._report(CopiesVerified, self._copy(key, version))

    def _copy(self, key: RepoKey, version: int) -> HeldCopy:
        seal = digest(key, version)
        if self.lies is Lie.GARBLES:
            seal ^= 0xBAD
        return HeldCopy(key, seal, self.world.utc_s)

    def _tell_all(self, link: Link) -> None:
        """A fresh session begins: after its older reports, what is on its disk now."""
        self._to_tell = False
        self.log.write()
        held = list(self._told())
        for start in range(0, max(len(held), 1), CHUNK):
            told = Told(tuple(held[start : start + CHUNK]), start + CHUNK >= len(held))
            self.world.network.send(link, UP, told)

    def _told(self) -> Iterable[HeldCopy]:
        yield from (self._copy(key, version) for key, version in self.disk.items())
        yield from (self._copy(key, version) for key, version in self.claimed.items() if key not in self.disk)

    # Commands

    def _take_in(self, message: Send) -> None:
        if message.seq <= self.seen:
            return
        if message.seq != self.seen + 1:
            self.world.broken("commands", f"{self.name} took in {self.seen}, then came {message.seq}")
        self.seen = message.seq
        if isinstance(message.command, SetLimits):
            self.limits = message.command.limits
        else:
            self._commands.append(message.command)
        if len(self._commands) == 1 and not isinstance(message.command, SetLimits):
            wait = self.world.rng.uniform(0.0, 2.0 * THINK_S) * self.slowness
            self.world.time.after(wait, self._work, self.boot)
        if not self._took:
            self._took = True
            self.world.time.after(0.1, self._tell_taken, self.link)

    def _tell_taken(self, link: Link) -> None:
        if link is self.link:
            self._took = False
            self.world.network.send(link, UP, Took(self.seen))

    def _forget_commands(self) -> None:
        self._commands.clear()
        self.clones.clear()
        self.primaries.intersection_update(self.disk)  # a role goes with a copy

    def _work(self, boot: int) -> None:
        if boot != self.boot or not self.up:
            return
        while self._commands:
            command = self._commands.popleft()
            match command:
                case Assign(items):
                    for item in items:
                        self._assigned(item)
                case Release(keys, delete, digests):
                    for key, covered in zip(keys, digests or [0] * len(keys), strict=True):
                        self._released(key, delete, covered)
                case Nudge(keys):
                    for key in keys:
                        self.sync(key, nudged=True)
                case CompareRanges():
                    self._compare(command)
        self.clones.fill_slots()

    def _assigned(self, item: Assignment) -> None:
        key = item.key
        if item.primary:
            self.primaries.add(key)
        else:
            self.primaries.discard(key)
        if key in self.disk:
            self._verified(key, self.disk[key])
        elif self.lies is Lie.IGNORES:
            return
        elif self.lies is Lie.CLAIMS:
            self.claimed[key] = self.world.catalog.version(key)
            self._verified(key, self.claimed[key])
        else:
            self.clones.ask(item)

    def _released(self, key: RepoKey, delete: bool, covered: int) -> None:
        version = self.disk.get(key)
        if version is not None and covered and self._copy(key, version).digest != covered:
            self._report(DeletionsDeclined, self._copy(key, version))
            return
        self.primaries.discard(key)
        self.clones.stop(key)
        if version is not None and delete:
            self.world.deleting(self, key)
            del self.disk[key]
            self.world.unheld(key, self.index)
            version = None
        if version is None and not delete:
            version = self.claimed.get(key)
        if version is None:
            self.claimed.pop(key, None)
            self._report(CopiesDropped, key)
        else:
            self._verified(key, version)

    def _compare(self, command: CompareRanges) -> None:
        self.log.write()
        if self.link is not None and self.welcomed:
            self.world.network.send(self.link, UP, compared(list(self._told()), command.digests))

    # Clones and syncs

    def serves(self, key: RepoKey) -> bool:
        return self.up and key in self.disk and self.world.network.reachable(self.index)

    def cloned(self, key: RepoKey, *, relayed: bool) -> None:
        if self.full:  # filled up by something else while it ran
            self.hand_back(key)
            return
        version = self.world.catalog.version(key)
        self.disk[key] = version
        self.world.cloned(self, key, relayed)
        self._verified(key, version)

    def deferred(self, key: RepoKey) -> None:
        """A first clone failed; it is tried again by itself."""
        self._report(ClonesDeferred, key)

    def hand_back(self, key: RepoKey) -> None:
        self.primaries.discard(key)
        self._report(ReposHandedBack, key)

    def sync(self, key: RepoKey, *, nudged: bool = False) -> None:
        """It polls upstream: what moved is fetched and reported; a nudge is always answered."""
        version = self.disk.get(key)
        if version is None:
            return
        if not self.up:
            self._stale.add(key)
            return
        now = self.world.catalog.version(key)
        if now != version and self.full:
            self._stale.add(key)
        elif now != version:
            self.disk[key] = now
            self._verified(key, now)
        elif nudged:
            self._verified(key, version)

    def make_room(self) -> None:
        """The disk takes writes again."""
        self.full = False
        if self.up:
            self._catch_up(self.boot)

    def _catch_up(self, boot: int) -> None:
        if boot == self.boot and self.up:
            stale, self._stale = self._stale, set()
            for key in sorted(stale):
                self.sync(key)
