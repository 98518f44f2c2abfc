"""Small parts of discovery: bounds of a listing, what a renamed project takes over, who uses credentials."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evermirror.core.pull.layers import LEFT, ProjectChange
from evermirror.edge.git.credentials import Credential
from evermirror.errors import UsageError
from evermirror.model.discovery import RunState
from evermirror.model.failure import FailureError
from evermirror.model.forge import Forge
from evermirror.model.pull import Project, PullConfig, Target, TargetSpec
from evermirror.model.push import TargetId
from evermirror.model.repo import Host, Priority, RepoKey
from evermirror.model.url import UrlRules
from evermirror.nodes.coordinator.discovery import discovery_parts
from evermirror.nodes.coordinator.discovery.credential_watch import Use, uses_of
from evermirror.nodes.coordinator.discovery.discovering_checks import checked_spec
from evermirror.nodes.coordinator.discovery.discovering_listing import (
    PAGES_MAX,
    PROJECTS_MAX,
    check_bounds,
    usable,
)
from evermirror.nodes.coordinator.discovery.discovering_projects import taken_over
from evermirror.nodes.coordinator.discovery.discovery_parts import Paces
from tests.core.discover.small import a_project, a_spec


def test_a_group_that_is_too_large_is_refused_with_what_to_do():
    check_bounds(RunState(1, 0.0, None, PAGES_MAX, PROJECTS_MAX))
    for pages, found in ((1, PROJECTS_MAX + 1), (PAGES_MAX + 1, 1)):
        with pytest.raises(FailureError, match="20000") as raised:
            check_bounds(RunState(1, 0.0, None, pages, found))
        assert "subgroups one by one" in raised.value.failure.hint


def test_ids_and_paths_that_no_forge_has_are_passed_over():
    odd = [
        a_project("", "g/a"),
        a_project("1", ""),
        a_project("2", "g/" + "x" * 600),
        a_project("3", "g/\x00"),
    ]
    good = a_project("4", "g/a b")  # refused later, with words
    assert usable([*odd, good]) == (good,)


def a_known(enabled: bool = True, paused: str = "", over: frozenset[str] = frozenset()) -> Project:
    config = PullConfig(Priority.CRITICAL, 77.0, enabled, 9, 99.0)
    target = Target(TargetId(1), "https://t.example.com/m/a.git", "push")
    return Project(RepoKey("x/a"), "a", Host("x"), config, (target,), over, paused=paused)


def test_what_people_set_is_taken_over_and_nothing_else():
    change = ProjectChange(
        priority=Priority.LOW, interval_s=None, targets=(TargetSpec("https://t.example.com/m/a.git", "push"),)
    )
    assert taken_over(change, a_known()).priority is Priority.LOW
    after = taken_over(change, a_known(over=frozenset({"priority", "sync_interval", "max_retries"})))
    assert (after.priority, after.interval_s, after.max_retries) == (Priority.CRITICAL, 77.0, 9)
    assert after.retry_delay_s is None
    assert taken_over(change, a_known(enabled=False)).enabled is False
    assert taken_over(change, a_known(enabled=False, paused=f"{LEFT}renamed")).enabled is None
    assert taken_over(change, a_known(enabled=False, paused="failed 5 times")).enabled is None
    other = ProjectChange(targets=(TargetSpec("https://t.example.com/m/b.git"),))
    assert taken_over(other, a_known()).targets == other.targets


def test_credentials_are_asked_for_where_they_are_used():
    known = {
        "src": Credential("src", token="1"),
        "dst": Credential("dst", token="2"),
        "push": Credential("push", token="3", forge="gitlab"),
        "plain": Credential("plain", token="4"),
    }
    spec = a_spec(credential="src", target_credential="dst")
    assert uses_of([spec], [a_known()], known) == {
        Use("src", Forge.GITLAB, "https://gitlab.example.com"),
        Use("dst", Forge.GITLAB, "https://gitlab.other.org"),
        Use("push", Forge.GITLAB, "https://t.example.com"),
    }
    assert uses_of([], [a_known()], {"push": Credential("push", token="3")}) == set()
    assert uses_of([], [a_known()], {"push": Credential("push", token="3", forge="gitee")}) == set()


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("forge", {"forge": Forge.GITEE}),
        ("forge", {"source_url": "https://gitee.com"}),
        ("target_forge", {"target_forge": Forge.GITEE}),
        ("target_forge", {"target_url": "https://gitee.com/mirrors"}),
    ],
)
def test_groups_at_gitee_are_refused_with_what_to_do(field, asked):
    known = {"dst": Credential("dst", token="2")}
    spec = replace(a_spec(target_credential="dst"), **asked)
    with pytest.raises(UsageError, match=f"^{field}: groups at Gitee are not followed") as raised:
        checked_spec(spec, UrlRules(), known)
    assert "one by one" in raised.value.hint


def test_the_pace_of_an_instance_is_shared_and_those_kept_are_bounded(monkeypatch):
    monkeypatch.setattr(discovery_parts, "PACES_MAX", 3)
    paces = Paces()
    first, second = paces.of("https://0.example"), paces.of("https://1.example")
    assert first is not second
    for n in range(2, 20):
        paces.of(f"https://{n}.example")
        assert paces.of("https://0.example") is first, "it is in use"
    assert paces.of("https://1.example") is not second
    assert len(paces) == 3
