"""What a project is called here and at the target, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evermirror.core.discover.here import place_of
from evermirror.core.discover.naming import (
    Named,
    NotNamed,
    name_project,
    path_inside,
    ssh_address,
    target_place,
)
from evermirror.core.discover.select import check_patterns, is_chosen
from evermirror.errors import InvalidUrl, InvalidValue
from evermirror.model.forge import Forge
from tests.core.discover.small import RULES, SOURCE, a_project, a_spec


def named(path: str, group: str = "devops", **spec: object) -> Named:
    return name_project(a_spec(group=group, **spec), group, a_project(1, path), RULES)


@pytest.mark.parametrize(
    ("target", "forge", "path"),
    [
        ("https://gitlab.other.org/mirrors", Forge.GITLAB, "mirrors/tools/core"),
        ("https://gitlab.other.org/mirrors/of/a/", Forge.GITLAB, "mirrors/of/a/tools/core"),
        ("https://gitlab.other.org", Forge.GITLAB, "devops/tools/core"),
        ("https://gitea.other.org/mirrors", Forge.GITEA, "mirrors/tools-core"),
        ("https://github.com/mirrors", Forge.GITHUB, "mirrors/tools-core"),
    ],
)
def test_where_it_goes(target: str, forge: Forge, path: str) -> None:
    name = named("devops/tools/core", target_url=target, target_forge=forge)
    assert name.target_path == path
    assert name.target_url is not None
    assert name.target_url.endswith(f"/{path}.git")


def test_its_key_has_the_prefix_and_the_whole_path() -> None:
    name = named("devops/tools/core", prefix="mirror/", target_url=None)
    assert name.project_key == "mirror/devops/tools/core"
    assert name.source_url == f"{SOURCE}/devops/tools/core.git"
    assert (name.target_path, name.target_url) == ("", None)


def test_a_gitea_below_a_path_has_its_owner_last() -> None:
    place = target_place(a_spec(target_url="https://x.org/git/mirrors", target_forge=Forge.GITEA))
    assert (place.base_url, place.group) == ("https://x.org/git", "mirrors")
    with pytest.raises(InvalidUrl, match="organisation"):
        target_place(a_spec(target_url="https://x.org/", target_forge=Forge.GITHUB))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("devops/a..b", r"\.\."),
        ("devops/-x", "starts with -"),
        ("devops/a b", "spaces"),
        ("devops/x.git", "git"),
        ("other/x", "not inside devops"),
        ("devops", "not inside devops"),
        ("devops/" + "x" * 300, "255"),
        ("devops/a\x1b", "control"),
    ],
)
def test_what_cannot_be_named_is_refused_with_words(path: str, why: str) -> None:
    with pytest.raises(NotNamed, match=why):
        named(path)


def test_case_does_not_count_for_being_inside() -> None:
    assert path_inside("DevOps", "devops/x") == "x"
    assert path_inside("dev", "devops/x") is None


def test_an_ssh_address_is_the_forges_word_if_its_host_is_the_same() -> None:
    assert named("devops/x", over_ssh=True).source_url == "ssh://git@gitlab.example.com/devops/x.git"
    elsewhere = a_project(1, "devops/x")
    for url in ("git@evil.example.net:devops/x.git", "ssh://git@evil.example.net:22/devops/x.git", ""):
        with pytest.raises(NotNamed, match="ssh address"):
            name_project(a_spec(over_ssh=True), "devops", replace(elsewhere, ssh_url=url), RULES)


def test_the_forges_http_address_is_not_believed() -> None:
    project = replace(a_project(1, "devops/x"), http_url="https://evil.example.net/devops/x.git")
    assert name_project(a_spec(), "devops", project, RULES).source_url == f"{SOURCE}/devops/x.git"


@pytest.mark.parametrize(
    ("include", "exclude", "path", "chosen"),
    [
        ((), (), "devops/x", True),
        (("devops/tools/*",), (), "devops/x", False),
        (("devops/tools/*",), (), "devops/tools/deep/x", True),
        (("DEVOPS/*",), (), "devops/X", True),
        ((), ("*/old-*",), "devops/old-x", False),
        (("devops/*",), ("devops/x",), "devops/x", False),
        (("devops/[ab]*",), (), "devops/c", False),
    ],
)
def test_patterns(include: tuple[str, ...], exclude: tuple[str, ...], path: str, chosen: bool) -> None:
    assert is_chosen(a_spec(include=include, exclude=exclude), a_project(1, path)) is chosen


def test_archived_ones_only_where_they_are_asked_for() -> None:
    old = a_project(1, "devops/x", archived=True)
    assert not is_chosen(a_spec(), old)
    assert is_chosen(a_spec(archived=True), old)


@pytest.mark.parametrize("patterns", [("",), ("a\x00",), ("x" * 300,), ("a",) * 101])
def test_patterns_are_bounded(patterns: tuple[str, ...]) -> None:
    with pytest.raises(InvalidValue, match="include"):
        check_patterns("include", patterns)


@pytest.mark.parametrize(
    "told",
    [
        "ssh://[x/devops/a.git",
        "ssh://git@gitlab.example.com:99999999/a.git",
        "ssh://git@gitlab.example.com:x/a.git",
        "ssh://git@gitlab.example\u2100com/a.git",
        "ssh://git@gitlab.example.com:\u00b2/a.git",
    ],
)
def test_an_ssh_address_that_cannot_be_read_is_refused(told: str) -> None:
    project = replace(a_project(1, "devops/a"), ssh_url=told)
    with pytest.raises(NotNamed):
        name_project(a_spec(over_ssh=True), "devops", project, RULES)
    with pytest.raises(NotNamed):
        ssh_address(SOURCE, told)


@pytest.mark.parametrize("port", ["9" * 5000, "\u00b2", "x", ""])
def test_a_place_has_any_port(port: str) -> None:
    assert place_of(f"ssh://git@x.org:{port}/m/a.git") == f"x.org:{port}/m/a"
    assert place_of("ssh://git@x.org:22/m/a.git") == place_of("https://x.org:443/M/a") == "x.org/m/a"
