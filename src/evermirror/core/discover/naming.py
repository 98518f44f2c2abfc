"""What a project at the source is called here, and where it goes at the target.

    at the source   https://gitlab.example.com, group devops      devops/tools/core
    key here        prefix + the whole path                       devops/tools/core
    at a GitLab     https://gitlab.other.com/mirrors              mirrors/tools/core
                    https://gitlab.other.com (no group)           devops/tools/core
    at a Gitea,     https://gitea.other.com/mirrors               mirrors/tools-core
    a GitHub        (they have no groups in groups)

Addresses over http(s) are made from the instance's, and never taken from the forge's answers: a password goes
to the host that a person named. Only an ssh address must be the forge's word; its host must be the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from evermirror.errors import InvalidUrl, InvalidValue
from evermirror.model.discovery import DiscoverySpec
from evermirror.model.forge import Forge, FoundProject
from evermirror.model.repo import RepoKey
from evermirror.model.url import UrlRules, check_alias, parse_url


@dataclass(frozen=True, slots=True)
class Place:
    """Where a target is: the instance, and the group in it; empty: none."""

    base_url: str
    group: str


@dataclass(frozen=True, slots=True)
class Named:
    """All names of one project."""

    project_key: str
    source_url: str
    source_key: RepoKey
    target_path: str = ""  # whole, at its instance; empty: no target
    target_url: str | None = None  # over http(s)


class NotNamed(Exception):
    """It cannot be called anything here; the message says why."""


def name_project(spec: DiscoverySpec, group: str, project: FoundProject, rules: UrlRules) -> Named:
    """``group``: its path at the source, now. Raises NotNamed."""
    inside = path_inside(group, project.path)
    if inside is None:
        raise NotNamed(f"it is not inside {group}")
    try:
        key = check_alias(spec.prefix + project.path)
        source = parse_url(source_address(spec, project), rules)
        if spec.target_url is None:
            return Named(key, source.text, source.key)
        place = target_place(spec)
        path = _target_path(spec, place, inside, project.path)
        target = parse_url(f"{place.base_url}/{path}.git", rules)
    except InvalidValue as error:
        raise NotNamed(error.message) from None
    except InvalidUrl as error:
        raise NotNamed(error.reason) from None
    return Named(key, source.text, source.key, path, target.text)


def beside(named: Named, id_: str) -> Named:
    """With another target in the same group: ``mirrors/core`` of project 4711 is ``mirrors/core-4711``."""
    if named.target_url is None:
        return named
    url = f"{named.target_url.removesuffix('.git')}-{id_}.git"
    return replace(named, target_path=f"{named.target_path}-{id_}", target_url=url)


def path_inside(group: str, path: str) -> str | None:
    """The path without the group's; None where it is not in it. Case does not count at a forge."""
    head, rest = path[: len(group) + 1], path[len(group) + 1 :]
    return rest if rest and head.casefold() == f"{group}/".casefold() else None


def source_address(spec: DiscoverySpec, project: FoundProject) -> str:
    """What is fetched; raises NotNamed."""
    if spec.over_ssh:
        return ssh_address(spec.source_url, project.ssh_url)
    return f"{spec.source_url.rstrip('/')}/{project.path}.git"


def ssh_address(instance_url: str, ssh_url: str) -> str:
    """The forge's word for it, if that is at the same host; raises NotNamed."""
    host = urlsplit(instance_url).hostname or ""
    try:
        told = _ssh_host(ssh_url)
    except ValueError:
        raise NotNamed("its ssh address cannot be read") from None
    if not ssh_url or told != host:
        raise NotNamed(f"its ssh address is at {told or 'no host'}, and not at {host}")
    return ssh_url


def _ssh_host(ssh_url: str) -> str:
    """Raises ValueError."""
    if "://" in ssh_url:
        parts = urlsplit(ssh_url)
        return parts.hostname or "" if parts.port != 0 else ""  # a port that is none is a ValueError, too
    return ssh_url.partition(":")[0].rpartition("@")[2].strip("[]").lower()


def target_place(spec: DiscoverySpec) -> Place:
    """The instance and the group of ``target_url``. A Gitea may be below a path, its owner is the last part;
    of a GitLab all of the path is groups. Raises InvalidUrl."""
    parts = urlsplit(spec.target_url or "")
    path = parts.path.strip("/")
    host = f"{parts.scheme}://{parts.netloc}"
    if spec.target_forge is Forge.GITLAB:
        return Place(host, path)
    below, _, owner = path.rpartition("/")
    if not owner:
        raise InvalidUrl(
            "target_url: the organisation or user is missing", hint="Write it like https://host/mirrors"
        )
    return Place(f"{host}/{below}".rstrip("/"), owner)


def path_at_target(spec: DiscoverySpec, target_url: str) -> str:
    """The whole path of a project at its instance, from the address that is pushed to."""
    base = target_place(spec).base_url
    if target_url.startswith(f"{base}/"):
        path = target_url.removeprefix(f"{base}/")
    else:
        path = target_url.partition("://")[2].partition("/")[2]
    return path.removesuffix(".git")


def parent_of(path: str) -> str:
    """The group that a project is in."""
    return path.rpartition("/")[0]


def _target_path(spec: DiscoverySpec, place: Place, inside: str, whole: str) -> str:
    if spec.target_forge is not Forge.GITLAB:
        return f"{place.group}/{inside.replace('/', '-')}"
    return f"{place.group}/{inside}" if place.group else whole
