"""Who is there: from heartbeats to alive, suspect and down, with grace, flaps and the brake.

              missed more than max_missed rounds            grace_s lived, brake off
      ALIVE ──────────────────────────────────▶ SUSPECT ────────────────────────────▶ DOWN
        ▲                heard                     │                                    │
        ├──────────────────────────────────────────┘   nothing moved                    │
        └────────────────────────── heard ──────────────────────────────────────────────┘   joins again

Rules
- Rounds and grace count only time that the coordinator lived through (liveness.py).
- While the brake is on, a grace that ends is noted and nothing more. When the brake goes off by itself,
  workers are coming back one by one: the grace of those still silent begins anew. Overruled, those whose
  grace is over are down.
- Each suspicion is a flap: less weight for new placements until it fades (flaps.py). Not while the brake is
  on: it was our own network.
- Who was suspect before a restart is expected like everybody else, and it is the same fall if it stays
  silent.
"""

from __future__ import annotations

from evermirror.core.fleet.brake import Brake
from evermirror.core.fleet.crew import Crew, Member
from evermirror.core.fleet.decisions import Alert, AlertKind
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.liveness import Rounds
from evermirror.core.fleet.settings import FleetSettings
from evermirror.core.fleet.wheel import TimerWheel
from evermirror.model.worker import Liveness, WorkerId

GRACE = "grace"  # timers of this part: (GRACE, worker)

Timers = TimerWheel[tuple[str, int]]


class Attendance:
    """Each method returns the workers whose standing changed; what follows from it is for the machine."""

    def __init__(self, settings: FleetSettings, crew: Crew, timers: Timers) -> None:
        self._settings = settings
        self._crew = crew
        self._timers = timers
        self._rounds = Rounds(settings.heartbeat_s, settings.max_missed)
        self._brake = Brake(settings.brake_share)
        self._suspects: set[WorkerId] = set()
        self._down: set[WorkerId] = set()

    @property
    def lived_s(self) -> float:
        return self._rounds.lived_s

    @property
    def braked(self) -> bool:
        return self._brake.on

    @property
    def suspects(self) -> int:
        return len(self._suspects)

    @property
    def alive(self) -> int:
        return len(self._crew) - len(self._suspects) - len(self._down)

    def watch(self, member: Member) -> None:
        """Known from before: expected, as if heard just now, unless it was down."""
        if member.record.liveness is Liveness.DOWN:
            self._down.add(member.id)
        else:
            self._rounds.watch(member.id)

    def unwatch(self, member: Member, draft: Draft) -> None:
        """It retired: its silence means nothing, and it counts no more."""
        if member.record.liveness is Liveness.DOWN:
            draft.act(_down_alert(member, "is retired", over=True))
        self._rounds.unwatch(member.id)
        self._timers.cancel((GRACE, member.id))
        self._suspects.discard(member.id)
        self._down.discard(member.id)
        self._update_brake(draft)

    def tick(self, mono_s: float, utc_s: float, draft: Draft) -> list[Member]:
        """Those newly suspect."""
        self._rounds.tick(mono_s)
        suspects = [m for w in self._rounds.overdue() if (m := self._crew.get(w)) is not None]
        self._suspects.update(member.id for member in suspects)
        if suspects:
            self._update_brake(draft)
        for member in suspects:
            self._suspect(member, utc_s, draft)
        return suspects

    def heard(self, member: Member, utc_s: float) -> None:
        """A sign of life; cheap, as there are hundreds a second."""
        self._rounds.heard(member.id)
        member.heard_at = utc_s

    def revive(self, member: Member, utc_s: float, draft: Draft) -> None:
        """It was suspect or down, and is heard again."""
        if member.record.liveness is Liveness.DOWN:
            draft.act(_down_alert(member, "is back", over=True))
        self._timers.cancel((GRACE, member.id))
        self._suspects.discard(member.id)
        self._down.discard(member.id)
        member.grace_over = False
        member.note("up", utc_s, liveness=Liveness.ALIVE, last_alive_at=utc_s)
        draft.worker_changed(member)
        self._update_brake(draft)

    def grace_ended(self, worker: WorkerId, utc_s: float, draft: Draft) -> Member | None:
        """The worker that is down now, if it is."""
        member = self._crew.get(worker)
        if member is None or member.record.liveness is not Liveness.SUSPECT:
            return None
        if self._brake.on:
            member.grace_over = True
            return None
        self._declare_down(member, utc_s, draft)
        self._update_brake(draft)
        return member

    def overrule(self, utc_s: float, draft: Draft) -> list[Member]:
        """A person says that the suspects are gone: those whose grace is over are down."""
        if not self._brake.overrule():
            return []
        draft.act(_brake_alert(over=True))
        gone = [m for m in self._crew if m.grace_over]
        for member in gone:
            self._declare_down(member, utc_s, draft)
        self._update_brake(draft)
        return gone

    def _suspect(self, member: Member, utc_s: float, draft: Draft) -> None:
        if member.record.liveness is Liveness.ALIVE and not self._brake.on:
            member.note_flap(utc_s)
        member.note("suspect", utc_s, liveness=Liveness.SUSPECT, last_alive_at=member.heard_at)
        self._timers.set((GRACE, member.id), self.lived_s + self._settings.grace_s)
        draft.worker_changed(member)

    def _declare_down(self, member: Member, utc_s: float, draft: Draft) -> None:
        self._timers.cancel((GRACE, member.id))
        self._suspects.discard(member.id)
        self._down.add(member.id)
        member.grace_over = False
        member.note("down", utc_s, liveness=Liveness.DOWN)
        draft.worker_changed(member)
        draft.act(_down_alert(member, "is down; its repos go to others"))

    def _update_brake(self, draft: Draft) -> None:
        if not self._brake.update(len(self._suspects), len(self._crew) - len(self._down)):
            return
        draft.act(_brake_alert(over=not self._brake.on))
        if not self._brake.on:
            for worker in sorted(self._suspects):
                self._crew[worker].grace_over = False
                self._timers.set((GRACE, worker), self.lived_s + self._settings.grace_s)


def _brake_alert(*, over: bool) -> Alert:
    text = (
        "enough workers are back; the rest are given their grace again"
        if over
        else "too many workers fell silent at once: taken for our own network, nobody is declared down"
    )
    return Alert(AlertKind.BRAKE, "fleet", text, over)


def _down_alert(member: Member, text: str, *, over: bool = False) -> Alert:
    name = member.record.facts.name
    return Alert(AlertKind.WORKER_DOWN, name, f"worker {name} {text}", over)
