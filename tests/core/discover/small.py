"""Small worlds for the plans: projects at a forge, rows and projects here, and steps carried out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from evermirror.core.discover.here import Here, Known, place_of
from evermirror.core.discover.plan import Listing, Plan, plan
from evermirror.model.discovery import Bound, BoundState, Discovery, DiscoveryId, DiscoverySpec, StepKind
from evermirror.model.forge import Forge, FoundProject, Visibility
from evermirror.model.repo import RepoKey
from evermirror.model.url import UrlRules

SOURCE = "https://gitlab.example.com"
TARGET = "https://gitlab.other.org/mirrors"
RULES = UrlRules(schemes=frozenset({"https", "ssh"}))
CHANGES = (StepKind.CREATE, StepKind.RENAME, StepKind.PAUSE, StepKind.RESUME)


def a_spec(**more: object) -> DiscoverySpec:
    values: dict[str, object] = {"group": "devops", "target_url": TARGET, **more}
    return DiscoverySpec(SOURCE, Forge.GITLAB, **values)  # type: ignore[arg-type]


def a_discovery(**more: object) -> Discovery:
    return Discovery(DiscoveryId(1), a_spec(**more), "me", 0.0)


def a_project(id_: object, path: str, **more: object) -> FoundProject:
    name = path.rpartition("/")[2]
    values: dict[str, object] = {"visibility": Visibility.PRIVATE, **more}
    ssh = f"git@gitlab.example.com:{path}.git"
    return FoundProject(str(id_), path, f"{SOURCE}/{name}.git", ssh, **values)  # type: ignore[arg-type]


@dataclass
class World:
    """Here: rows of the discovery, and projects; ``left``: those paused by it."""

    discovery: Discovery = field(default_factory=a_discovery)
    rows: dict[tuple[str, str], Bound] = field(default_factory=dict)
    projects: dict[RepoKey, Known] = field(default_factory=dict)
    left: set[RepoKey] = field(default_factory=set)
    time: float = 0.0
    run: int = 0

    def here(self) -> Here:
        repos = {key: replace(known, left=key in self.left) for key, known in self.projects.items()}
        names = {k.name: k.key for k in repos.values()} | {k.key: k.key for k in repos.values()}
        targets = {place: k.key for k in repos.values() if not k.left for place in k.targets}
        return Here(repos, names, targets)

    def plan(
        self,
        *found: FoundProject,
        group: str = "devops",
        complete: bool = True,
        distrust: str = "",
        **more: bool,
    ) -> Plan:
        listing = Listing(group, found, self.run + 1, complete, distrust)
        return plan(self.discovery, listing, self.rows.values(), self.here(), RULES, **more)

    def do(self, *found: FoundProject, **more: object) -> Plan:
        """Planned, and carried out as the node does it."""
        made = self.plan(*found, **more)  # type: ignore[arg-type]
        self.run += 1
        for planned in made.steps:
            self.time += 1
            kind, after = planned.step.kind, planned.after
            if kind in (StepKind.CREATE, StepKind.RENAME):
                assert after.key is not None
                places = frozenset({place_of(after.target_url)} if after.target_url else ())
                new = Known(after.key, after.project_key, True, places)
                self.projects[after.key] = new if planned.turns else self.projects.get(after.key, new)
                self.left.discard(after.key)
            if kind is StepKind.RESUME and after.key is not None:
                self.left.discard(after.key)
            self._save(after)
            if planned.old is not None:
                self._save(planned.old)
        for planned in made.steps:
            if planned.pauses is not None:
                self.left.add(planned.pauses)
        for row in made.forgotten:
            self._save(row)
        return made

    def _save(self, row: Bound) -> None:
        self.rows[row.forge_id, row.path] = replace(row, updated_at=self.time)

    def state(self, path: str) -> BoundState:
        (row,) = [row for row in self.rows.values() if row.path == path]
        return row.state

    def pushing(self) -> dict[RepoKey, Known]:
        return {key: known for key, known in self.projects.items() if key not in self.left}


def kinds(made: Plan) -> dict[str, str]:
    return {planned.step.path: planned.step.kind.value for planned in made.steps}
