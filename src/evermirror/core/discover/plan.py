"""What a run does: projects that were found, what stands for each here, and what is taken, to steps.

    found   here (by the forge's id)            step
    ─────   ─────────────────────────────────   ──────────────────────────────────────────────────────────────
    yes     nothing, or refused before          CREATE; CLASH or REFUSE with words, tried again at each run
    yes     active, the same path               KEEP, also where a person removed or disabled its project;
                                                RESUME, if a run was cut short after it paused it
    yes     made, and removed by a person       KEEP, at whatever path
    yes     gone, the same path                 RESUME: enabled, if it was a discovery that paused it
    yes     active or gone, another path        RENAME: a project for the new path with the SAME target; the
                                                old one is paused. If the new one cannot be: the old one is
                                                paused all the same, since its address is not its own any more
    no      active                              PAUSE; HOLD where more than max(10, 20 %), or half, of all
                                                are not found any more, or another user looked than before
    no      anything else                       nothing

Nothing is ever deleted, neither here nor at a target. What was not found is gone only after a listing that
is complete. No two projects get one key, one source or one target: the first by path has it. Only what comes
to the path of a renamed one gets a target of its own, beside that which the renamed one keeps.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from evermirror.core.discover.here import Here, place_of
from evermirror.core.discover.naming import Named, NotNamed, beside, name_project
from evermirror.core.discover.rows import (
    NOT_MADE,
    are_too_many,
    current_rows,
    forgotten,
    is_itself,
    is_made,
    kept_places,
    room,
    source_words,
)
from evermirror.core.discover.select import is_chosen
from evermirror.model.discovery import Bound, BoundState, Discovery, Step, StepKind
from evermirror.model.forge import FoundProject
from evermirror.model.repo import RepoKey
from evermirror.model.url import UrlRules


@dataclass(frozen=True, slots=True)
class Listing:
    """What a run found. ``group``: the group's path now."""

    group: str
    found: Sequence[FoundProject]
    number: int  # of the run
    complete: bool = True
    distrust: str = ""  # why it may lack what is there: another user looked than before (``sees_less``)

    @property
    def tells_gone(self) -> bool:
        """What is not in it is gone."""
        return self.complete and not self.distrust


@dataclass(frozen=True, slots=True)
class Planned:
    """One step with what it takes to do it: ``after`` is what holds once it is done, ``old`` the row that a
    rename leaves behind. ``pauses``: the project that is to be paused. ``like``: the one that a rename goes
    on from. ``turns``: its project was that of one which is renamed or gone: paused before all else, and last
    of all it gets the target of ``after`` for its own."""

    step: Step
    after: Bound
    project: FoundProject | None = None
    target_path: str = ""  # where the target is to be; empty: it has none, or keeps the one it had
    old: Bound | None = None
    pauses: RepoKey | None = None
    like: RepoKey | None = None
    turns: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Planned, ...]
    found: int
    chosen: int
    forgotten: tuple[Bound, ...] = ()  # refused before, and no longer found: nothing is to be done

    def count(self, *kinds: StepKind) -> int:
        return sum(planned.step.kind in kinds for planned in self.steps)


def plan(
    discovery: Discovery,
    listing: Listing,
    bound: Iterable[Bound],
    here: Here,
    rules: UrlRules,
    *,
    accept: bool = False,
) -> Plan:
    """``accept``: a person's word that those which are gone may be paused, however many."""
    chosen = {p.id: p for p in listing.found if is_chosen(discovery.spec, p)}
    rows = current_rows(bound)
    unseen = {row.key for id_, row in rows.items() if id_ not in chosen and is_made(row)}
    places = kept_places(rows, chosen, here, complete=listing.tells_gone)
    draft = _Draft(discovery, listing, here, rules, rows, places, unseen)
    known = [p for id_, p in chosen.items() if is_made(rows.get(id_))]
    new = [p for id_, p in chosen.items() if not is_made(rows.get(id_))]
    for project in _by_path(known):  # who has something keeps it, whoever wants it now
        draft.claim_kept(project)
    for project in (*_by_path(known), *_by_path(new)):
        draft.claim_target(project)
    steps: list[Planned] = []
    for project in (*_by_path(known), *_by_path(new)):
        steps += draft.found(project)
    lost = [row for id_, row in rows.items() if id_ not in chosen] if listing.complete else []
    active = sum(row.state is BoundState.ACTIVE for row in rows.values())
    lost_for_good = [row for row in lost if row.key not in draft.sources]
    steps += _gone(discovery, listing, lost_for_good, active, accept=accept)
    over = [forgotten(row, draft.sources) for row in lost]
    steps, spared = _spared(steps, draft.sources)
    return Plan(
        tuple(sorted(steps, key=lambda planned: planned.step.path)),
        len({p.id for p in listing.found}),
        len(chosen),
        (*(row for row in over if row is not None), *draft.moved, *spared),
    )


def candidates(discovery: Discovery, listing: Listing, rules: UrlRules) -> set[str]:
    """The names and sources that a plan may want: who has them here must be known to it."""
    found: set[str] = set()
    for project in listing.found:
        if is_chosen(discovery.spec, project):
            with suppress(NotNamed):
                named = name_project(discovery.spec, listing.group, project, rules)
                found |= {named.project_key, named.source_key}
    return found


def gone_words(discovery: Discovery) -> str:
    return f"no longer in {discovery.spec.group} at {discovery.spec.source_url}"


def _by_path(projects: Iterable[FoundProject]) -> list[FoundProject]:
    return sorted(projects, key=lambda project: (project.path, project.id))


def _gone(
    discovery: Discovery, listing: Listing, lost: Sequence[Bound], active: int, *, accept: bool
) -> Iterator[Planned]:
    """What is there still, and only no longer chosen, goes by the word of the person who chose. What the last
    run did not find, and is active all the same, was held then: it stays so, however many came since."""
    gone, there = [row for row in lost if row.state is BoundState.ACTIVE], {p.id for p in listing.found}
    many = bool(listing.distrust) or are_too_many(sum(row.forge_id not in there for row in gone), active)
    many = many and not accept
    why = gone_words(discovery)
    for row in gone:
        was_held = not accept and row.run < listing.number - 1
        held = (many or was_held) and row.forge_id not in there
        kind = StepKind.HOLD if held else StepKind.PAUSE
        step = Step(kind, row.path, row.project_key, target_url=row.target_url, why=why)
        if held:
            yield Planned(step, row)
        else:
            yield Planned(step, replace(row, state=BoundState.GONE, why=why), pauses=row.key)


def _spared(steps: Sequence[Planned], taken: Container[RepoKey | None]) -> tuple[list[Planned], list[Bound]]:
    """Without pauses of what is another one's from now on; and the rows of steps that are none then."""
    kept: list[Planned] = []
    rows: list[Bound] = []
    for planned in steps:
        if planned.pauses not in taken:
            kept.append(planned)
        elif planned.step.kind is StepKind.PAUSE:
            rows.append(planned.after)
        else:
            kept.append(replace(planned, pauses=None))
    return kept, rows


@dataclass(slots=True)
class _Draft:
    """A plan being made: what its steps so far have taken."""

    discovery: Discovery
    listing: Listing
    here: Here
    rules: UrlRules
    rows: dict[str, Bound]
    kept_places: dict[str, Bound]
    unseen: set[RepoKey | None]  # sources of projects that were not found, or not yet
    names: dict[str, FoundProject] = field(default_factory=dict)  # who has it
    sources: dict[RepoKey, FoundProject] = field(default_factory=dict)
    targets: dict[str, FoundProject] = field(default_factory=dict)
    moved: list[Bound] = field(default_factory=list)
    leaving: set[RepoKey | None] = field(default_factory=set)  # sources of those that were renamed

    def claim_kept(self, project: FoundProject) -> None:
        row = self.rows[project.id]
        if row.key is not None and row.path == project.path:
            self._claim(project, row.project_key, row.key, row.target_url)
        else:
            self.leaving.add(row.key)

    def claim_target(self, project: FoundProject) -> None:
        """Also of one that was renamed, or cannot be made now."""
        row = self.rows.get(project.id)
        if row is not None and row.target_url is not None:
            self.targets.setdefault(place_of(row.target_url), project)

    def found(self, project: FoundProject) -> Iterator[Planned]:
        row = self.rows.get(project.id)
        made = row if is_made(row) else None
        if row is not None and row.state in NOT_MADE and row.path != project.path:
            self.moved.append(replace(row, state=BoundState.RENAMED, why=f"renamed to {project.path}"))
        try:
            named = name_project(self.discovery.spec, self.listing.group, project, self.rules)
        except NotNamed as error:
            yield from self._not_named(project, str(error), row, made)
            return
        if made is None:
            yield self._created(project, named, row)
        elif (made.path, made.key) == (project.path, named.source_key):
            yield self._kept(project, made)
        else:
            yield from self._renamed(project, named, made)

    def _not_named(
        self, project: FoundProject, why: str, row: Bound | None, made: Bound | None
    ) -> Iterator[Planned]:
        if made is not None and made.path == project.path:
            yield self._kept(project, made)  # it could be named once, and nothing about it changed
            return
        if made is not None:
            yield self._paused(made, project.path)
        yield self._refused(project, StepKind.REFUSE, why, row)

    def _kept(self, project: FoundProject, row: Bound) -> Planned:
        after = replace(row, state=BoundState.ACTIVE, why="", run=self.listing.number)
        known = self.here.repos.get(row.key) if row.key is not None else None
        left = known is not None and known.left  # by a run that was cut short before it could note that
        kind = StepKind.RESUME if left or row.state is not BoundState.ACTIVE else StepKind.KEEP
        step = Step(kind, project.path, row.project_key, target_url=row.target_url)
        return Planned(step, after, project)

    def _created(
        self, project: FoundProject, named: Named, row: Bound | None, own: frozenset[RepoKey] = frozenset()
    ) -> Planned:
        named, why = self._with_room(project, named)
        inherited = self._inherited(project, row)
        target = inherited or named.target_url
        turns = bool(why) and target == named.target_url and self._turns(named)
        clash = self._clash(project, named, target, own=own, turns=turns)
        if clash:
            return self._refused(project, StepKind.CLASH, clash, row)
        self._claim(project, named.project_key, named.source_key, target)
        step = Step(StepKind.CREATE, project.path, named.project_key, named.source_url, target, why=why)
        after = self._row(project, named, target, row)
        path = named.target_path if target == named.target_url else ""
        return Planned(step, after, project, path, turns=turns)

    def _with_room(self, project: FoundProject, named: Named) -> tuple[Named, str]:
        """A renamed project keeps its target. What is now at its former path gets one of its own, named by
        its id, and a word why; empty: there is room."""
        holder = self.targets.get(place_of(named.target_url)) if named.target_url is not None else None
        if holder is None or holder.id == project.id or self._is_at_home(holder, named.target_url):
            return named, ""
        return beside(named, project.id), f"{named.target_path} is the target of {holder.path} since before"

    def _is_at_home(self, holder: FoundProject, target: str | None) -> bool:
        try:
            its = name_project(self.discovery.spec, self.listing.group, holder, self.rules).target_url
        except NotNamed:
            return True
        return its is not None and target is not None and place_of(its) == place_of(target)

    def _turns(self, named: Named) -> bool:
        """Whether the project that is here under this source was that of one that was renamed, or is gone."""
        known = self.here.repos.get(named.source_key)
        if known is None or not known.is_project or known.name != named.project_key:
            return False
        gone = self.listing.tells_gone and known.key in self.unseen
        return known.left or gone or known.key in self.leaving

    def _renamed(self, project: FoundProject, named: Named, row: Bound) -> Iterator[Planned]:
        if not self._is_here(row):
            yield self._followed(project, named, row)
            return
        plain, (named, why) = named, self._with_room(project, named)
        inherited = self._inherited(project, row)
        target = inherited or named.target_url
        own = frozenset({row.key} if row.key is not None else ())
        if self._clash(project, named, target, own=own):
            yield self._paused(row, project.path)
            yield self._created(project, plain, row, own)  # as the next run would, if it can be made at all
            return
        self._claim(project, named.project_key, named.source_key, target)
        step = Step(StepKind.RENAME, project.path, named.project_key, named.source_url, target, was=row.path)
        old = None
        if row.path != project.path:  # else its address changed, and not its path: the row is the same
            old = replace(row, state=BoundState.RENAMED, why=f"renamed to {project.path}")
        after = self._row(project, named, target, row)
        path = "" if inherited else named.target_path
        step = step if inherited else replace(step, why=why)
        yield Planned(step, after, project, path, old=old, pauses=row.key, like=row.key)

    def _is_here(self, row: Bound) -> bool:
        known = self.here.repos.get(row.key) if row.key is not None else None
        return known is not None and known.is_project

    def _followed(self, project: FoundProject, named: Named, row: Bound) -> Planned:
        """A person removed its project: its row goes along with it, and nothing is made."""
        if row.path != project.path:
            self.moved.append(replace(row, state=BoundState.RENAMED, why=f"renamed to {project.path}"))
        after = replace(row, path=project.path, key=named.source_key, project_key=named.project_key)
        return self._kept(project, replace(after, state=BoundState.ACTIVE))

    def _paused(self, row: Bound, path: str) -> Planned:
        """The row of a project that is renamed to something that cannot be made."""
        why = f"renamed to {path}"
        step = Step(StepKind.PAUSE, row.path, row.project_key, target_url=row.target_url, why=why)
        return Planned(step, replace(row, state=BoundState.RENAMED, why=why), pauses=row.key)

    def _refused(self, project: FoundProject, kind: StepKind, why: str, row: Bound | None) -> Planned:
        """With the target that it had, for the day that it can be made."""
        key = self.discovery.spec.prefix + project.path
        target = self._inherited(project, row)
        step = Step(kind, project.path, key, target_url=target, why=why)
        state = BoundState.CLASH if kind is StepKind.CLASH else BoundState.REFUSED
        after = Bound(
            self.discovery.id,
            project.id,
            project.path,
            state,
            None,
            key,
            target,
            made_target=target is not None and row is not None and row.made_target,
            why=why,
            run=self.listing.number,
        )
        return Planned(step, after, project)

    def _row(self, project: FoundProject, named: Named, target: str | None, row: Bound | None) -> Bound:
        return Bound(
            self.discovery.id,
            project.id,
            project.path,
            BoundState.ACTIVE,
            named.source_key,
            named.project_key,
            target,
            made_target=row is not None and row.made_target and row.target_url == target,
            branches_open=row is not None and row.branches_open and row.target_url == target,
            run=self.listing.number,
        )

    def _inherited(self, project: FoundProject, row: Bound | None) -> str | None:
        """The target that it had before, unless that is another one's now."""
        if row is None or row.target_url is None:
            return None
        holder = self.targets.get(place_of(row.target_url))
        return row.target_url if holder is not None and holder.id == project.id else None

    def _claim(self, project: FoundProject, name: str, source: RepoKey, target: str | None) -> None:
        self.names.setdefault(name, project)
        self.sources.setdefault(source, project)
        if target is not None:
            self.targets.setdefault(place_of(target), project)

    def _clash(
        self,
        project: FoundProject,
        named: Named,
        target: str | None,
        *,
        own: frozenset[RepoKey],
        turns: bool = False,
    ) -> str:
        """Why it cannot be; empty: it can. ``own``: what it is itself, until now."""
        place = place_of(target) if target is not None else ""
        for taken, what in (
            (self.names.get(named.project_key), f"its key {named.project_key}"),
            (self.sources.get(named.source_key), "its source"),
            (self.targets.get(place), f"its target {target}"),
        ):
            if taken is not None and taken.id != project.id:
                return f"{what} is that of {taken.path}, too"
        holder = self.here.names.get(named.project_key)
        if holder is not None and holder != named.source_key:
            return f"its key {named.project_key} belongs to {holder}; give this discovery a prefix"
        if not self.listing.tells_gone and named.source_key in self.unseen:
            return "its source is here as another project's, which may not be gone"
        known = self.here.repos.get(named.source_key)
        if known is not None and not turns and not is_itself(known, named, place):
            return source_words(known)
        pusher = self.here.targets.get(place) if place else None
        if pusher is not None and pusher not in own | {named.source_key}:
            return f"its target {target} belongs to {self.here.repos[pusher].name}"
        gone = self.kept_places.get(place)
        if gone is not None and gone.key != named.source_key:
            return (
                f"its target {target} is kept for {gone.project_key}, which is gone{room(gone.project_key)}"
            )
        return ""
