"""How far a repo's hooks can be relied on: learnt from who finds its changes.

                  2 missed in a row
        ┌───────────────────────────────────▶ SILENT
        │                                       │ 2 told in a row, or registered anew
    UNPROVEN ◀──────────────────────────────────┘
        │ ▲
        │ ├── 1 missed: `needed` doubles ───┐
        │ └── its host is doubted ──────────┤
        └── `needed` told in a row ───▶ RELIABLE

| a change is found by       | a hook came within TOLERANCE_S of it, before or after, | none did            |
|                            | or no look has succeeded since it came                 |                     |
|----------------------------|--------------------------------------------------------|---------------------|
| the look that a hook asked | told                                                   | told                |
| a poll                     | told                                                   | missed, TOLERANCE_S |
|                            |                                                        | after we heard of it|
| a look that others asked   | told                                                   | nothing             |

Rules
- One hook tells one change: what else is found within its time counts for nothing.
- A hook whose look fails, or is late, has told all the same: the first look that succeeds shows it.
- A change whose news comes late, after later hooks, counts for nothing: nobody knows whether one was near.
- Refs that were known already, found again by a copy that was behind, are no change.
- What the first look since a start finds ends only the row of those told: its push may have come while nobody
  listened. Where nothing was told since the last such one, it is missed as any other.
- What is `needed` halves with each FADE_S of reliability, which shows at the next relapse.
- A host is doubted when DOUBTED_AFTER of its repos missed one since any hook of it came. Nothing is held
  against its other repos: they are reliable again with the next change that is told.
- Known are repos that ever had a hook, or for which one was registered. Others' changes teach nothing.
- Times are UTC seconds by our own clock; a change from ahead of it is found now.
"""

from __future__ import annotations

import math
import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from evermirror.model.hook import HookMemory, HookTrust
from evermirror.model.repo import RepoKey

TOLERANCE_S = 120.0  # forges send hooks within seconds, and now and then within a minute or two
NEEDED = 5  # changes told in a row before polls get rarer
NEEDED_MAX = 40  # after the third relapse it stays there
FADE_S = 30 * 86_400.0
SILENT_AFTER = 2  # one miss may be a hook lost on its way, or a push of which the forge tells nothing
HEARD_AFTER = 2  # told in a row, and silence is over
DOUBTED_AFTER = 3  # so many repos in a row without a word of their host: all of its hooks seem to be dead
DOUBTS_AT_ONCE = 10_000  # repos looked through in a tick: others wait for it

_TRUSTS = tuple(HookTrust)
_TOTAL_MAX = 2**63 - 1
_ROW_MAX = 2**31 - 1

# A memory as it is kept here, as there may be a million: trust, since, received, last_at, told, missed,
# needed, told_total, missed_total; then its _Marks.
_Packed = struct.Struct("<BdqdiiiqqQBB")

_SPENT = 0  # the last hook has told a change, or none came
_FRESH = 1  # it told nothing yet
_UNSEEN = 2  # nor did a look succeed since


class _Marks(NamedTuple):
    """What is known besides of a repo, and is not stored."""

    refs: int = 0  # which it had at last, as the beginning of their digest; 0: not known
    hook: int = _SPENT
    awake: bool = False  # a hook came, or a look succeeded, since the start


class Found(Enum):
    """What the look was that found a change."""

    BY_HOOK = "hook"
    BY_POLL = "poll"
    BY_OTHER = "other"  # somebody asked


@dataclass(frozen=True, slots=True)
class Reliable:
    key: RepoKey


@dataclass(frozen=True, slots=True)
class Relapsed:
    """It was reliable, and missed one."""

    key: RepoKey


@dataclass(frozen=True, slots=True)
class Silent:
    key: RepoKey


@dataclass(frozen=True, slots=True)
class Heard:
    """It was silent, and is no longer."""

    key: RepoKey


@dataclass(frozen=True, slots=True)
class Doubted:
    """It was reliable, and hooks of its host are not heard."""

    key: RepoKey


Effect = Reliable | Relapsed | Silent | Heard | Doubted


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A change for which a hook may still come."""

    found_at: float
    until: float
    by: Found
    at_start: bool  # no look since the start was before it


@dataclass(slots=True)
class Learnt:
    """What is to be written, newest of each repo, and what became otherwise, in its order."""

    writes: dict[RepoKey, HookMemory] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)


def host_of(key: RepoKey) -> str:
    return key.partition("/")[0]


class Trust:
    """See the module's rules. Memory: some 100 bytes a repo besides its key."""

    def __init__(self, restored: Iterable[HookMemory] = (), started_at: float = -math.inf) -> None:
        self._started_at = started_at
        self._rows: dict[RepoKey, bytes] = {}
        self._counts = dict.fromkeys(HookTrust, 0)
        # Changes for which a hook may still come, in the order heard. The first of a repo stands for those
        # behind it.
        self._waiting: OrderedDict[RepoKey, _Waiting] = OrderedDict()
        self._missing: dict[str, set[RepoKey]] = {}  # by host: who missed one since any hook of it came
        self._doubted: set[str] = set()  # hosts whose repos are looked through next
        self._doubting: set[str] = set()  # those whose repos are looked through now, and what is left of all
        self._to_doubt: list[RepoKey] = []
        self.restore(restored)

    def restore(self, memories: Iterable[HookMemory], refs: Mapping[RepoKey, int] | None = None) -> None:
        """What was stored before this start, and which refs they had; before anything else happens."""
        refs = refs or {}
        for memory in memories:
            self._put(memory, _Marks(refs.get(memory.key, 0)))

    # Events

    def hook(self, key: RepoKey, at: float) -> Learnt:
        """A hook about the repo came."""
        learnt, memory = Learnt(), self._memory(key, at)
        self._missing.pop(host_of(key), None)
        self._doubted.discard(host_of(key))
        self._doubting.discard(host_of(key))
        memory = replace(
            memory, received=min(memory.received + 1, _TOTAL_MAX), last_at=max(memory.last_at, at)
        )
        refs = self._marks(key).refs if key in self._rows else 0
        self._put(memory, _Marks(refs, _UNSEEN, awake=True))
        waiting = self._waiting.get(key)
        if waiting is not None and at <= waiting.found_at + TOLERANCE_S:
            del self._waiting[key]
            self._tell(memory, at, learnt)
        learnt.writes[key] = self._known(key)
        return learnt

    def changed(self, key: RepoKey, found_at: float, by: Found, now: float, refs: int = 0) -> Learnt:
        """Refs of the repo had moved to these; a first clone is no change."""
        learnt = Learnt()
        if key not in self._rows:
            return learnt
        memory, marks = self._known(key), self._marks(key)
        found_at = min(found_at, now)
        self.looked(key, found_at, refs)
        if refs and refs == marks.refs:
            return learnt
        near = memory.received > 0 and abs(memory.last_at - found_at) <= TOLERANCE_S
        late = marks.hook == _UNSEEN and memory.last_at <= found_at
        if by is Found.BY_HOOK or near or late:
            if marks.hook != _SPENT:
                self._waiting.pop(key, None)
                self._tell(memory, now, learnt)
        elif memory.last_at <= found_at and key not in self._waiting:
            self._waiting[key] = _Waiting(found_at, now + TOLERANCE_S, by, at_start=not marks.awake)
        return learnt

    def looked(self, key: RepoKey, at: float, refs: int = 0) -> None:
        """A look at upstream succeeded, whatever it found."""
        row = self._rows.get(key)
        if row is None or (row[-2] != _UNSEEN and row[-1] and not refs):
            return  # as nearly always
        memory, marks = self._known(key), self._marks(key)
        hook = _FRESH if marks.hook == _UNSEEN and memory.last_at <= at else marks.hook
        self._put(memory, _Marks(refs or marks.refs, hook, awake=marks.awake or at >= self._started_at))

    def tick(self, now: float) -> Learnt:
        """Time went by: who waited long enough for a hook was told by none."""
        learnt = Learnt()
        while self._waiting:
            key, change = next(iter(self._waiting.items()))
            if now < change.until:
                break
            del self._waiting[key]
            if change.by is Found.BY_POLL:
                self._miss(key, now, learnt, at_start=change.at_start)
        self._doubt(now, learnt)
        return learnt

    def registered(self, key: RepoKey, now: float) -> Learnt:
        """A hook for the repo was made or mended at its forge: what was missed before says nothing of it."""
        learnt = Learnt()
        memory = self._memory(key, now)
        self._waiting.pop(key, None)
        if memory.trust is HookTrust.SILENT:
            memory = replace(memory, trust=HookTrust.UNPROVEN, since=now)
            learnt.effects.append(Heard(key))
        memory = replace(memory, missed=0)
        refs = self._marks(key).refs if key in self._rows else 0
        self._put(memory, _Marks(refs, awake=True))
        learnt.writes[key] = memory
        return learnt

    def forget(self, key: RepoKey) -> HookMemory | None:
        """The repo left, or our hook for it was removed; what was known of it."""
        self._waiting.pop(key, None)
        if key not in self._rows:
            return None
        memory = self._known(key)
        del self._rows[key]
        self._counts[memory.trust] -= 1
        return memory

    # Readers

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: RepoKey) -> bool:
        return key in self._rows

    def get(self, key: RepoKey) -> HookMemory | None:
        return self._known(key) if key in self._rows else None

    def of(self, trust: HookTrust) -> Iterator[RepoKey]:
        """Those of that trust; looks at all."""
        wanted = _TRUSTS.index(trust)
        return (key for key, row in self._rows.items() if row[0] == wanted)

    @property
    def counts(self) -> Mapping[HookTrust, int]:
        return dict(self._counts)

    @property
    def waiting(self) -> int:
        """Changes for which a hook may still come."""
        return len(self._waiting)

    # Inside

    def _tell(self, memory: HookMemory, now: float, learnt: Learnt) -> None:
        memory = replace(
            memory,
            told=min(memory.told + 1, _ROW_MAX),
            missed=0,
            told_total=min(memory.told_total + 1, _TOTAL_MAX),
        )
        if memory.trust is HookTrust.SILENT and memory.told >= HEARD_AFTER:
            memory = replace(memory, trust=HookTrust.UNPROVEN, since=now)
            learnt.effects.append(Heard(memory.key))
        if memory.trust is HookTrust.UNPROVEN and memory.told >= (memory.needed or NEEDED):
            memory = replace(memory, trust=HookTrust.RELIABLE, since=now)
            learnt.effects.append(Reliable(memory.key))
        self._put(memory, _Marks(self._marks(memory.key).refs, awake=True))
        learnt.writes[memory.key] = memory

    def _miss(self, key: RepoKey, now: float, learnt: Learnt, *, at_start: bool) -> None:
        memory, marks = self._known(key), self._marks(key)
        if at_start and memory.told:
            learnt.writes[key] = memory = replace(memory, told=0)
            self._put(memory, marks)
            return
        self._note_missing(key)
        memory = replace(
            memory,
            told=0,
            missed=min(memory.missed + 1, _ROW_MAX),
            missed_total=min(memory.missed_total + 1, _TOTAL_MAX),
        )
        if memory.trust is HookTrust.RELIABLE:
            needed = min(NEEDED_MAX, 2 * _faded(memory, now))
            memory = replace(memory, trust=HookTrust.UNPROVEN, since=now, needed=needed)
            learnt.effects.append(Relapsed(key))
        if memory.trust is HookTrust.UNPROVEN and memory.missed >= SILENT_AFTER:
            memory = replace(memory, trust=HookTrust.SILENT, since=now)
            learnt.effects.append(Silent(key))
        self._put(memory, marks)
        learnt.writes[key] = memory

    def _note_missing(self, key: RepoKey) -> None:
        missing = self._missing.setdefault(host_of(key), set())
        if len(missing) < DOUBTED_AFTER:
            missing.add(key)
            if len(missing) == DOUBTED_AFTER:
                self._doubted.add(host_of(key))

    def _doubt(self, now: float, learnt: Learnt) -> None:
        if not self._to_doubt:
            if not self._doubted:
                return
            self._doubting, self._doubted = self._doubted, set()
            self._to_doubt = list(self._rows)
        reliable = _TRUSTS.index(HookTrust.RELIABLE)
        some = self._to_doubt[-DOUBTS_AT_ONCE:]
        del self._to_doubt[-DOUBTS_AT_ONCE:]
        for key in some:
            row = self._rows.get(key)
            if row is None or row[0] != reliable or host_of(key) not in self._doubting:
                continue
            memory = replace(self._known(key), trust=HookTrust.UNPROVEN, since=now)
            self._put(memory, self._marks(key))
            learnt.writes[key] = memory
            learnt.effects.append(Doubted(key))

    def _memory(self, key: RepoKey, now: float) -> HookMemory:
        return self._known(key) if key in self._rows else HookMemory(key, since=now)

    def _known(self, key: RepoKey) -> HookMemory:
        trust, *rest, _, _, _ = _Packed.unpack(self._rows[key])
        return HookMemory(key, _TRUSTS[trust], *rest)

    def _marks(self, key: RepoKey) -> _Marks:
        *_, refs, hook, awake = _Packed.unpack(self._rows[key])
        return _Marks(refs, hook, bool(awake))

    def _put(self, memory: HookMemory, marks: _Marks) -> None:
        old = self._rows.get(memory.key)
        if old is not None:
            self._counts[_TRUSTS[old[0]]] -= 1
        self._counts[memory.trust] += 1
        self._rows[memory.key] = _Packed.pack(
            _TRUSTS.index(memory.trust),
            memory.since,
            memory.received,
            memory.last_at,
            memory.told,
            memory.missed,
            memory.needed,
            memory.told_total,
            memory.missed_total,
            *marks,
        )


def _faded(memory: HookMemory, now: float) -> int:
    """How many it needs, less for the time that it was reliable."""
    periods = max(0.0, now - memory.since) // FADE_S
    needed = memory.needed or NEEDED
    return max(NEEDED, needed >> int(min(periods, 8)))
