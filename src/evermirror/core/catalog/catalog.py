"""Everything the catalog's files say, compactly; and what a change of some of them means for the repos.

Rules. Files have an order (sources as configured, then paths). Of a repo's mentions the first one that was
understood counts. A repo that is mentioned only by lines that were not understood stays as it is, whatever
that is. A file that is broken says what it said before. What no file mentions any more is removed.

    changed files, old and new ──others──▶ which other files mention the same repos ──plan──▶ Plan ──take──▶

The files' content is not kept, only who mentions which repo (``Mentions``): old content comes with a change.
``plan`` changes nothing, so that a plan that removes too much can be put aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from evermirror.core.catalog.diff import CatalogDiff
from evermirror.core.catalog.entry import CatalogEntry, Parsed, Problem, few, repeat
from evermirror.core.catalog.mentions import Hashes, Mentions, Owners, hashes_of
from evermirror.model.repo import RepoKey

PROBLEMS_MAX = 100_000  # kept in all; a catalog with more has another problem, and they are counted


@dataclass(frozen=True, slots=True, order=True)
class FileName:
    """A file of the catalog; names are ordered as the files count."""

    source: int
    path: str


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a file said and says; None where it was or is not there."""

    file: FileName
    old: Parsed | None
    new: Parsed | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What changed files mean. ``states`` is what each of them says from now on; None: it is gone."""

    diff: CatalogDiff
    states: Mapping[FileName, Parsed | None]
    others: Mapping[FileName, Parsed]
    held: Mapping[FileName, Parsed]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known, to go on from in another process. ``files`` are by number; None: none has it now."""

    files: tuple[FileName | None, ...]
    hashes: Hashes
    owners: Owners
    problems: Mapping[FileName, tuple[Problem, ...]]


_Value = CatalogEntry | None  # None: mentioned, but not understood
_Values = Mapping[RepoKey, _Value]


class Catalog:
    """``load`` every file once, in order; then ``others``, ``plan`` and ``take`` for each change."""

    def __init__(self) -> None:
        self._mentions = Mentions()
        self._numbers: dict[FileName, int] = {}
        self._names: list[FileName] = []
        self._free: list[int] = []  # numbers of files that are gone
        self._problems: dict[FileName, tuple[Problem, ...]] = {}
        self._held: dict[FileName, Parsed] = {}  # of broken files, what they said before

    @classmethod
    def of(cls, snapshot: Snapshot) -> Catalog:
        """As it was when the snapshot was made."""
        made = cls()
        made._mentions = Mentions.of(snapshot.hashes, snapshot.owners)
        for number, file in enumerate(snapshot.files):
            made._names.append(file or FileName(0, ""))
            if file is None:
                made._free.append(number)
            else:
                made._numbers[file] = number
        made._problems = dict(snapshot.problems)
        return made

    def snapshot(self) -> Snapshot | None:
        """None where a file is broken: what it said before is in no file."""
        if self._held:
            return None
        free = frozenset(self._free)
        files = tuple(None if n in free else name for n, name in enumerate(self._names))
        return Snapshot(files, *self._mentions.columns(), dict(self._problems))

    # What is known

    @property
    def total(self) -> int:
        """How many repos are mentioned."""
        return self._mentions.distinct()

    @property
    def broken(self) -> tuple[FileName, ...]:
        """Files that are not understood as a whole."""
        return tuple(self._held)

    @property
    def problems_total(self) -> int:
        return sum(map(len, self._problems.values()))

    def problems(self, limit: int = PROBLEMS_MAX) -> list[Problem]:
        """In the order of files and lines."""
        found: list[Problem] = []
        for file in sorted(self._problems):
            found += self._problems[file][: limit - len(found)]
            if len(found) >= limit:
                break
        return found

    def unmentioned(self, keys: Sequence[RepoKey]) -> list[RepoKey]:
        """Those of ``keys`` that no file mentions."""
        found = self._mentions.mentioned(hashes_of(keys))
        return [key for key, is_there in zip(keys, found.tolist(), strict=True) if not is_there]

    # What happens

    def load(self, file: FileName, parsed: Parsed) -> list[CatalogEntry]:
        """One more file, after all that come before it; returns the entries that count."""
        hashes = hashes_of([entry.spec.key for entry in parsed.entries])
        repeats = self._earlier(file, parsed.entries, hashes)
        self._add(file, parsed, hashes)
        self._note(file, parsed.problems, repeats)
        if parsed.broken:
            self._held[file] = parsed
        return [e for e in parsed.entries if e.key not in repeats] if repeats else list(parsed.entries)

    def others(self, changes: Sequence[FileChange]) -> list[FileName]:
        """Unchanged files that mention a repo of which a changed one now says something else."""
        changed = {change.file for change in changes}
        keys = list(dict.fromkeys(key for change in changes for key in self._affected(change)))
        files = {self._names[mention.file] for mention in self._mentions.find(hashes_of(keys))}
        return sorted(files - changed)

    def plan(self, changes: Sequence[FileChange], others: Mapping[FileName, Parsed]) -> Plan:
        """What ``changes`` mean; ``others`` are what the files that ``others`` named say."""
        keys = {key for change in changes for key in self._affected(change)}
        before = {change.file: _values(self._old(change)) for change in changes}
        after = {change.file: _values(self._new(change)) for change in changes}
        for file, parsed in others.items():
            before[file] = after[file] = _values(self._held.get(file, parsed))
        was, now = _first(before, keys), _first(after, keys)
        added = [e for key, e in now.items() if e is not None and was.get(key) is None]
        changed = [e for key, e in now.items() if e is not None and was.get(key) not in (None, e)]
        removed = [key for key in was if key not in now]
        held = {c.file: self._old(c) for c in changes if c.new is not None and c.new.broken}
        return Plan(
            CatalogDiff(tuple(added), tuple(removed), tuple(changed)),
            {change.file: change.new for change in changes},
            others,
            held,
        )

    def take(self, plan: Plan) -> None:
        """``plan`` holds from now on."""
        self._mentions.remove([self._numbers[file] for file in plan.states if file in self._numbers])
        says: dict[FileName, Parsed] = dict(plan.others)
        for file, state in plan.states.items():
            self._held.pop(file, None)
            self._problems.pop(file, None)
            if state is None and file in self._numbers:
                self._free.append(self._numbers.pop(file))
            elif state is not None:
                says[file] = state
                if state.broken:
                    self._held[file] = plan.held[file]
                said = self._held.get(file, state)
                self._add(file, said, hashes_of([entry.spec.key for entry in said.entries]))
        for file, state in says.items():  # all mentions are in: now it can be seen what repeats what
            entries = self._held.get(file, state).entries
            repeats = self._earlier(file, entries, hashes_of([entry.spec.key for entry in entries]))
            self._note(file, state.problems, repeats)

    # Inside

    def _old(self, change: FileChange) -> Parsed:
        return self._held.get(change.file) or change.old or Parsed()

    def _new(self, change: FileChange) -> Parsed:
        if change.new is None:
            return Parsed()
        return self._old(change) if change.new.broken else change.new

    def _affected(self, change: FileChange) -> list[RepoKey]:
        """The repos of which the file says something else than before."""
        old, new = _values(self._old(change)), _values(self._new(change))
        nothing = object()
        return [key for key in old.keys() | new.keys() if old.get(key, nothing) != new.get(key, nothing)]

    def _earlier(
        self, file: FileName, entries: Sequence[CatalogEntry], hashes: Hashes
    ) -> dict[RepoKey, Problem]:
        """The entries that an earlier file has, too, each with what is to be told."""
        first: dict[int, FileName] = {}
        for mention in self._mentions.find(hashes):
            other = self._names[mention.file]
            if not mention.unsure and other < first.get(mention.index, file):
                first[mention.index] = other
        return {
            entries[index].key: repeat(entries[index], f"repeats {other.path}")
            for index, other in first.items()
        }

    def _add(self, file: FileName, parsed: Parsed, hashes: Hashes) -> None:
        if file not in self._numbers:
            number = self._free.pop() if self._free else len(self._names)
            self._numbers[file] = number
            self._names[number : number + 1] = [file]
        self._mentions.add(self._numbers[file], hashes, hashes_of(parsed.unsure))

    def _note(self, file: FileName, problems: Sequence[Problem], repeats: Mapping[RepoKey, Problem]) -> None:
        both = few([*problems, *repeats.values()])
        if both:
            self._problems[file] = tuple(sorted(both, key=lambda p: (p.line == 0, p.line)))
        else:
            self._problems.pop(file, None)


def _values(parsed: Parsed) -> dict[RepoKey, _Value]:
    found: dict[RepoKey, _Value] = dict.fromkeys(parsed.unsure)
    found.update((entry.spec.key, entry) for entry in parsed.entries)
    return found


def _first(files: Mapping[FileName, _Values], keys: Iterable[RepoKey]) -> dict[RepoKey, _Value]:
    """What counts of each key: of its mentions the first that was understood."""
    wanted = frozenset(keys)
    found: dict[RepoKey, _Value] = {}
    for file in sorted(files):
        for key, value in files[file].items():
            if key in wanted and found.get(key) is None:
                found[key] = value
    return found
