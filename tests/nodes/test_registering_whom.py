"""Whose API is asked about a repo's hook, and with which credential: a token goes where it was meant to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evermirror.edge.git.credentials import Credential
from evermirror.edge.store.hook_registrations import HookedRepo, Lot
from evermirror.model.failure import FailureError
from evermirror.model.forge import Forge
from evermirror.model.repo import Host, RepoKey
from evermirror.nodes.coordinator.hooks.registering_whom import (
    Instance,
    LeftOut,
    Whom,
    instance_of,
    whom_to_ask,
)
from evermirror.nodes.hook_service import RegisterAction, RegisterWish

HOSTS = frozenset({"gitlab.com", "git.example.com", "in.example.com:8080", "old.example.com:80"})
LAB = Credential("lab", token="t", forge="gitlab", hosts=HOSTS)
FREE = replace(LAB, name="free", hosts=frozenset())
BELOW = replace(LAB, name="below", forge_url="https://git.example.com/tools/gitlab")
ALL = RegisterWish(RegisterAction.REGISTER, all_repos=True)


def at(url: str, credential: str | None = None) -> HookedRepo:
    return HookedRepo(RepoKey("k"), url, Host("h"), credential)


@pytest.mark.parametrize(
    ("url", "credential", "base_url"),
    [
        ("https://gitlab.com/a/b", LAB, "https://gitlab.com"),
        ("http://gitlab.com/a/b", LAB, "https://gitlab.com"),  # of known hosts never in the clear
        ("http://gitlab.com/a/b", FREE, "https://gitlab.com"),
        ("https://git.example.com/a/b.git", LAB, "https://git.example.com"),
        ("ssh://git@git.example.com/a/b", LAB, "https://git.example.com"),
        ("ssh://git@git.example.com:2222/a/b", LAB, "https://git.example.com"),
        ("http://in.example.com:8080/a/b", LAB, "http://in.example.com:8080"),
        ("http://old.example.com/a/b", LAB, "http://old.example.com"),
        ("https://any.example.com:9999/a/b", FREE, "https://any.example.com:9999"),
        ("https://git.example.com/tools/gitlab/a/b", BELOW, "https://git.example.com/tools/gitlab"),
        ("ssh://git@git.example.com:2222/a/b.git", BELOW, "https://git.example.com/tools/gitlab"),
        ("http://git.example.com/tools/gitlab/a/b", BELOW, "https://git.example.com/tools/gitlab"),
    ],
)
def test_where_an_api_is(url, credential, base_url):
    assert instance_of(at(url), credential) == Instance(base_url, "a/b")


@pytest.mark.parametrize(
    ("url", "credential", "words"),
    [
        ("https://git.example.com:9999/a/b", LAB, "'lab' is not for git.example.com:9999"),
        ("http://git.example.com:8080/a/b", LAB, "'lab' is not for git.example.com:8080"),
        ("http://git.example.com/a/b", LAB, "'lab' is not for git.example.com:80"),
        ("https://gitlab.com:444/a/b", LAB, "'lab' is not for gitlab.com:444"),
        ("https://evil.example.com/a/b", BELOW, "'below' is not for evil.example.com"),
        ("https://git.example.com:9999/a/b", BELOW, "'below' is not for git.example.com:9999"),
        ("http://any.example.com/a/b", FREE, "'free' would be sent to any.example.com in the clear"),
        ("http://any.example.com:81/a/b", FREE, "'free' would be sent to any.example.com:81 in the clear"),
    ],
)
def test_where_a_token_does_not_go(url, credential, words):
    with pytest.raises(FailureError, match=words) as refused:
        instance_of(at(url), credential)
    assert refused.value.failure.ours
    assert "hosts" in refused.value.failure.hint


def test_a_repos_own_goes_where_every_poll_of_it_goes():
    assert instance_of(at("http://in.example.com/a", "free"), FREE) == Instance("http://in.example.com", "a")


def test_of_several_the_one_that_names_the_very_port_is_taken():
    ported = replace(LAB, name="ported", hosts=frozenset({"git.example.com:9999"}))
    lot = Lot(Host("git.example.com:9999"), None, 3)
    assert whom_to_ask(lot, ALL, {"lab": LAB, "ported": ported}) == Whom(Forge.GITLAB, ported)


def test_a_credential_of_another_forge_is_not_tried():
    lot = Lot(Host("git.example.com"), None, 3)
    left = whom_to_ask(lot, replace(ALL, forge=Forge.GITEA), {"lab": LAB})
    assert isinstance(left, LeftOut)
    assert "'lab' is for gitlab, and not for gitea" in left.problem
