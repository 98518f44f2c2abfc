"""What is here already, as far as a plan must know it: names, sources and targets that are somebody's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from evermirror.core.pull.layers import has_left
from evermirror.model.pull import Project
from evermirror.model.repo import RepoKey, RepoRecord
from evermirror.model.url import DEFAULT_PORTS

_DEFAULT_PORTS = frozenset(map(str, DEFAULT_PORTS.values()))


@dataclass(frozen=True, slots=True)
class Known:
    """A repo that is here."""

    key: RepoKey
    name: str
    is_project: bool = True
    targets: frozenset[str] = frozenset()  # by ``place_of``
    left: bool = False  # a discovery paused it


@dataclass(frozen=True, slots=True)
class Here:
    """``targets``: who pushes to each; who left does not."""

    repos: Mapping[RepoKey, Known] = field(default_factory=lambda: MappingProxyType({}))
    names: Mapping[str, RepoKey] = field(default_factory=lambda: MappingProxyType({}))
    targets: Mapping[str, RepoKey] = field(default_factory=lambda: MappingProxyType({}))


def here_of(projects: Iterable[Project], records: Iterable[RepoRecord]) -> Here:
    """``projects``: all; ``records``: repos that a plan may meet by name or by source."""
    repos = {p.key: _known(p) for p in projects}
    for record in records:
        repos.setdefault(record.key, Known(record.key, record.alias or record.key, is_project=False))
    names: dict[str, RepoKey] = {}
    targets: dict[str, RepoKey] = {}
    for known in repos.values():
        names[known.name] = names[known.key] = known.key
        if not known.left:
            targets.update(dict.fromkeys(known.targets, known.key))
    return Here(repos, names, targets)


def place_of(url: str) -> str:
    """What two addresses of one place at a target have in common: over ssh or http, in any case."""
    _, remote, rest = url.partition("://")
    if not remote:
        return url
    host, _, path = rest.partition("/")
    host = host.rpartition("@")[2]
    name, _, port = host.rpartition(":")
    if port in _DEFAULT_PORTS:
        host = name
    return f"{host}/{path}".removesuffix(".git").casefold()


def _known(project: Project) -> Known:
    targets = frozenset(place_of(target.url) for target in project.targets)
    return Known(project.key, project.name, True, targets, has_left(project))
