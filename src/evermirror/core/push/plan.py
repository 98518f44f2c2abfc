"""What may be pushed: the mirror's branches and tags against the target's, and what we last put there.

    at the target                      wanted           then
    ───────────────────────────────    ──────────────   ─────────────────────────────────────────────────
    what is wanted                     the same         nothing; it counts as ours
    nothing                            a value          create, with the lease "must not be there"
    what we last put, or may have      another, none    update or delete, with the lease of what is there
    (a push whose end nobody saw)
    an old value of our own history    another          the same, at a first push
    something else                     another, none    CONFLICT: it waits; ``adopt`` updates or deletes it
    something that we never put        none             left alone, for ever

What the mirror has no copy of is not overwritten without a person's word, whoever put it there: after a repo
went to another worker, the target may be the only one that still has an old history. It is a CONFLICT. What
was sent in vain before (a hook refused it, after megabytes) waits until it moves, or a person says otherwise.

Guard: where the mirror is empty, or more than max(least, share × last put) refs would be deleted, nothing at
all is pushed until a person accepts it. Only branches and tags are ever pushed.

Changes come in stages. git refuses ``a`` while ``a/b`` is there, so deletions that make room come first; the
other deletions come last, because a target does not give up its default branch before it has another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from evermirror.core.keep.guard import GuardReason, GuardSettings
from evermirror.model.printable import one_line
from evermirror.model.push import PushedRef, RefOutcome, put_digest
from evermirror.model.refs import PUBLIC_PREFIXES, Oid, RefsDigest, RefSnapshot

NOT_AGAIN = "sent in vain before: it is tried again when forced, or when it moves"
CHANGE_BYTES = 80  # of a change's two words in a command line, besides its name and its ids


@dataclass(frozen=True, slots=True)
class Refusal:
    """A value that a target did not take, though much was sent for it."""

    oid: Oid
    reason: str


@dataclass(frozen=True, slots=True)
class LastPut:
    """What we last put at a target. ``pending``: what we may have put besides, in pushes of which nobody saw
    the end; ``refused``: what is not sent again for nothing."""

    refs: Mapping[str, Oid] = field(default_factory=dict)
    pending: Mapping[str, tuple[Oid, ...]] = field(default_factory=dict)
    refused: Mapping[str, Refusal] = field(default_factory=dict)

    def is_ours(self, name: str, oid: Oid) -> bool:
        return self.refs.get(name) == oid or oid in self.pending.get(name, ())

    @property
    def names(self) -> Set[str]:
        return self.refs.keys() | self.pending.keys()


@dataclass(frozen=True, slots=True)
class RefPush:
    """One ref to be moved. ``old`` is the lease, None: it must not be there; ``new`` None deletes it."""

    name: str
    old: Oid | None
    new: Oid | None

    @property
    def size(self) -> int:
        """Bytes in a command line, at most."""
        name = len(self.name.encode("utf-8", "surrogateescape"))
        return 2 * name + len(self.old or "") + len(self.new or "") + CHANGE_BYTES


@dataclass(frozen=True, slots=True)
class PushPlan:
    """``put`` is what is ours before anything is pushed. ``clearing``, ``updates`` and ``deletions`` are done
    in this order. Where ``held`` says why, none of them is."""

    put: LastPut
    clearing: tuple[RefPush, ...] = ()
    updates: tuple[RefPush, ...] = ()
    deletions: tuple[RefPush, ...] = ()
    waiting: tuple[PushedRef, ...] = ()
    held: GuardReason | None = None
    held_words: str = ""  # for people

    @property
    def changes(self) -> tuple[RefPush, ...]:
        return self.clearing + self.updates + self.deletions

    @property
    def at_stake(self) -> dict[str, Oid]:
        """What the target does not have any more once this is done."""
        return {change.name: change.old for change in self.changes if change.old is not None}


def public_refs(refs: Mapping[str, Oid]) -> dict[str, Oid]:
    """Branches and tags: what is pushed, and all that is looked at."""
    return {name: oid for name, oid in refs.items() if name.startswith(PUBLIC_PREFIXES)}


def known_put(
    recorded: LastPut | None, told: RefsDigest | None, mirror: Mapping[str, Oid], target: Mapping[str, Oid]
) -> tuple[LastPut, bool]:
    """What we last put there, and whether this is like a first push, in which our history may answer for it.

    ``recorded`` is our own file's word, ``told`` the coordinator's: another worker may have pushed meanwhile.
    Where the refs there, or those of them that the mirror has, are what was put last, they are ours; what our
    file has besides we may have put in a push that nobody was told of."""
    last = recorded if recorded is not None else LastPut()
    if told is None:
        return last, recorded is None
    if recorded is not None and put_digest(last.refs) == told:
        return last, False
    there = public_refs(target)
    for refs in (there, {name: oid for name, oid in there.items() if name in mirror}):
        if put_digest(refs) == told:
            return LastPut(refs, _besides(refs, last, there), last.refused), False
    return last, True


def _besides(refs: Mapping[str, Oid], last: LastPut, there: Mapping[str, Oid]) -> dict[str, tuple[Oid, ...]]:
    """What may be ours in addition to ``refs``: it is there as our file has it."""
    pending = dict(last.pending)
    for name, oid in last.refs.items():
        if name not in refs and there.get(name) == oid and oid not in pending.get(name, ()):
            pending[name] = (*pending.get(name, ()), oid)
    return pending


def to_be_judged(
    mirror: Mapping[str, Oid], target: Mapping[str, Oid], last: LastPut
) -> dict[str, tuple[Oid, Oid]]:
    """At a first push: what is there and what is wanted, where only our history tells whether it is ours."""
    found: dict[str, tuple[Oid, Oid]] = {}
    for name, want in mirror.items():
        have = target.get(name)
        if have is not None and have != want and not last.is_ours(name, have):
            found[name] = (have, want)
    return found


def plan_push(
    mirror: RefSnapshot,
    target: Mapping[str, Oid],
    last: LastPut,
    guard: GuardSettings,
    *,
    in_history: Set[str] = frozenset(),
    only_there: Set[str] = frozenset(),
    adopt: bool = False,
    accept: bool = False,
) -> PushPlan:
    """Decide. ``in_history``: names whose value at the target our mirror has in its history, at a first push;
    ``only_there``: names whose value at the target our mirror does not have at all. ``adopt`` and ``accept``
    are a person's word: for what is there, and for what the guard holds; each of them for the only copy."""
    wanted, there = public_refs(mirror.refs), public_refs(target)
    draft = _Draft(wanted, there, last, frozenset() if adopt or accept else only_there)
    for name in sorted(wanted.keys() | last.names):
        draft.decide(name, history=name in in_history, adopt=adopt)
    draft.drop_refused()
    draft.drop_ambiguous()
    draft.drop_blocked()
    clearing = draft.clearing()
    deletions = [c for c in draft.changes.values() if c.new is None]
    plan = PushPlan(
        put=LastPut(draft.put, draft.pending, draft.refused),
        clearing=tuple(c for c in deletions if c.name in clearing),
        updates=tuple(
            sorted(
                (c for c in draft.changes.values() if c.new is not None),
                key=lambda c: (c.name != mirror.head, c.name),
            )
        ),
        deletions=tuple(c for c in deletions if c.name not in clearing),
        waiting=tuple(draft.waiting),
    )
    return plan if accept else _guarded(plan, len(wanted), len(last.refs), guard)


def _guarded(plan: PushPlan, wanted: int, put: int, guard: GuardSettings) -> PushPlan:
    gone = len(plan.clearing) + len(plan.deletions)
    if gone and not wanted:
        held, why = GuardReason.EMPTIED, "the mirror is empty, and"
    elif gone > guard.tolerated(put):
        held, why = GuardReason.SHRUNKEN, "the mirror lost many refs, and"
    else:
        return plan
    words = f"held back: {why} {gone} of {put} at the target would be deleted"
    return PushPlan(plan.put, waiting=plan.waiting, held=held, held_words=words)


class _Draft:
    """A plan being made."""

    def __init__(
        self, wanted: Mapping[str, Oid], there: Mapping[str, Oid], last: LastPut, only_there: Set[str]
    ) -> None:
        self._wanted = wanted
        self._there = there
        self._last = last
        self._only_there = only_there
        self.put: dict[str, Oid] = {}
        self.pending: dict[str, tuple[Oid, ...]] = {}
        self.refused: dict[str, Refusal] = {}
        self.changes: dict[str, RefPush] = {}
        self.waiting: list[PushedRef] = []

    def decide(self, name: str, *, history: bool, adopt: bool) -> None:
        want, have = self._wanted.get(name), self._there.get(name)
        if have is None:
            if want is not None:
                self._remember(name)
                self.changes[name] = RefPush(name, None, want)
            return
        if have == want:
            self.put[name] = have
        elif name in self._only_there:
            self._remember(name)
            self._wait(name, want, RefOutcome.CONFLICT, "what is there is nowhere else: this mirror lacks it")
        elif history or self._last.is_ours(name, have):
            self._remember(name)
            self.put[name] = have
            if have in self.pending.get(name, ()):
                del self.pending[name]
            self.changes[name] = RefPush(name, have, want)
        elif adopt:
            self._remember(name)
            self.changes[name] = RefPush(name, have, want)
        else:
            self._remember(name)
            self._wait(name, want, RefOutcome.CONFLICT, "something else is there than what we last put")

    def drop_refused(self) -> None:
        """What the target would refuse once more."""
        for name, refusal in self._last.refused.items():
            change = self.changes.get(name)
            if change is not None and change.new == refusal.oid:
                self.refused[name] = refusal
                self._drop(name, RefOutcome.REFUSED, f"{refusal.reason} ({NOT_AGAIN})")

    def drop_ambiguous(self) -> None:
        """git takes ``refs/heads/x`` for short for ``refs/heads/refs/heads/x`` too, and refuses to choose."""
        for outer in [*self._there, *(n for n in self.changes if n not in self._there)]:
            inner = _inner(outer)
            if inner is None:
                continue
            if outer in self._there:
                if inner in self.changes:
                    words = f"git cannot tell it from {outer}, which is there"
                    self._drop(inner, RefOutcome.CONFLICT, words)
            elif inner in self._wanted or inner in self._there:
                self._drop(outer, RefOutcome.REFUSED, f"git cannot tell it from {inner}")

    def drop_blocked(self) -> None:
        """What cannot be made because of a ref that is not ours to delete."""
        gone = {c.name for c in self.changes.values() if c.new is None}
        stand = self._there.keys() - gone
        below = {folder: name for name in stand for folder in _folders(name)}
        for change in list(self.changes.values()):
            if change.old is None:
                blocker = below.get(change.name) or next(
                    (f for f in _folders(change.name) if f in stand), None
                )
                if blocker is not None:
                    self._drop(change.name, RefOutcome.CONFLICT, f"{blocker} is in the way")

    def clearing(self) -> set[str]:
        """Deletions without which something new has no room."""
        made = {c.name for c in self.changes.values() if c.old is None}
        below = {folder for name in made for folder in _folders(name)}
        return {
            c.name
            for c in self.changes.values()
            if c.new is None and (c.name in below or any(f in made for f in _folders(c.name)))
        }

    def _remember(self, name: str) -> None:
        """What is known of it stays known."""
        if name in self._last.refs:
            self.put[name] = self._last.refs[name]
        if name in self._last.pending:
            self.pending[name] = self._last.pending[name]

    def _drop(self, name: str, outcome: RefOutcome, reason: str) -> None:
        change = self.changes.pop(name)
        self._wait(name, change.new, outcome, reason)

    def _wait(self, name: str, want: Oid | None, outcome: RefOutcome, reason: str) -> None:
        self.waiting.append(PushedRef(name, self._there.get(name), want, outcome, one_line(reason)))


def _inner(name: str) -> str | None:
    """``refs/heads/x`` of ``refs/heads/refs/heads/x``."""
    for prefix in PUBLIC_PREFIXES:
        if name.startswith(prefix + "refs/"):
            return name.removeprefix(prefix)
    return None


def _folders(name: str) -> list[str]:
    return [name[:i] for i, letter in enumerate(name) if letter == "/"]


def batches(changes: Iterable[RefPush], refs_max: int, bytes_max: int) -> Iterator[tuple[RefPush, ...]]:
    """Cut into commands of bounded length; each has at least one ref."""
    batch: list[RefPush] = []
    size = 0
    for change in changes:
        if batch and (len(batch) >= refs_max or size + change.size > bytes_max):
            yield tuple(batch)
            batch, size = [], 0
        batch.append(change)
        size += change.size
    if batch:
        yield tuple(batch)


def halves(batch: Sequence[RefPush]) -> tuple[tuple[RefPush, ...], tuple[RefPush, ...]]:
    """A batch that was refused as a whole: somewhere in it is the ref that was meant."""
    middle = len(batch) // 2
    return tuple(batch[:middle]), tuple(batch[middle:])
