"""The settings of hooks: several secrets a line, by repo, host and forge, and every mistake told by name."""

from __future__ import annotations

import json

import pytest

from evermirror.config.load import load, load_config
from evermirror.config.show import as_toml, shown_settings
from evermirror.core.hooks.secrets import SECRETS_MAX
from evermirror.errors import ConfigError
from evermirror.model.forge import Forge
from evermirror.model.repo import RepoKey

KEY = RepoKey("git.example.org:8443/Team/tools")
NEW, OLD = "the new one of sixteen", "the old one of sixteen"


@pytest.fixture(autouse=True)
def _no_file_of_a_person(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def webhooks(**settings):
    env = {f"EVERMIRROR_WEBHOOKS__{name.upper()}": value for name, value in settings.items()}
    return load_config(None, env, {}).webhooks


def problem(**settings):
    with pytest.raises(ConfigError) as refused:
        webhooks(**settings)
    (one,) = refused.value.problems
    return one


def test_nothing_is_set_and_nobody_is_believed():
    found = webhooks()
    assert (found.url, found.unknown) == (None, "ignore")
    assert all(found.as_secrets().of(forge, KEY, "git.example.org:8443") == () for forge in Forge)


def test_each_forge_has_its_own_and_several_are_one_a_line():
    expected = {Forge.GITLAB: f"whsec_{NEW}", Forge.GITEE: f"{NEW}-gitee", Forge.GITEA: f"{NEW}-gitea"}
    found = webhooks(
        github_secret=f"{NEW}\n{OLD}\n",
        **{f"{forge.value}_secret": secret for forge, secret in expected.items()},
    ).as_secrets()
    assert found.of(Forge.GITHUB, None, "") == (NEW, OLD)
    assert found.current(Forge.GITHUB, None, "") == NEW
    assert {forge: found.current(forge, None, "") for forge in expected} == expected


def test_a_file_may_hold_several(tmp_path):
    file = tmp_path / "secret"
    file.write_text(f"{NEW}\n{OLD}\n")
    found = webhooks(gitea_secret__file=str(file))
    assert found.as_secrets().of(Forge.GITEA, None, "") == (NEW, OLD)


@pytest.mark.parametrize(
    "name", ["git.example.org:8443/Team/tools", "GIT.Example.org:8443/Team/tools.git", f"{KEY}/"]
)
def test_a_repos_own_comes_before_its_hosts_before_its_forges(name):
    repo, host, forge = (f"the secret of the {whose}" for whose in ("repo", "host", "forge"))
    table = {name: repo, "Git.example.ORG:8443": host}
    found = webhooks(secrets=json.dumps(table), gitea_secret=forge).as_secrets()
    assert found.of(Forge.GITEA, KEY, "git.example.org:8443") == (repo,)
    assert found.of(Forge.GITEA, RepoKey("git.example.org:8443/x"), "git.example.org:8443") == (host,)
    assert found.of(Forge.GITEA, RepoKey("h.example/x"), "h.example") == (forge,)
    other = RepoKey("git.example.org:8443/team/tools")
    assert found.of(Forge.GITEA, other, "git.example.org:8443") == (host,), "case counts in a path"


def test_two_spellings_of_one_name_are_both_good():
    table = {"H.example": NEW, "h.example": OLD}
    assert webhooks(secrets=json.dumps(table)).as_secrets().of(Forge.GITEA, None, "h.example") == (NEW, OLD)


@pytest.mark.parametrize(
    "name", ["https://h.example/a", "git@h.example", "/a/b", "", "a b", "h.example/é", "a\nb"]
)
def test_a_name_that_is_neither_host_nor_key_is_told(name):
    told = problem(secrets=json.dumps({name: "hidden-value"}))
    assert "webhooks.secrets" in told
    assert "neither a host nor a key" in told
    assert "hidden-value" not in told


@pytest.mark.parametrize("text", ["\n", " \n \n"])
def test_lines_without_a_secret_are_told(text):
    assert "webhooks.github_secret: is empty" in problem(github_secret=text)
    assert "'h' is empty" in problem(secrets=json.dumps({"h": text}))


def test_too_many_secrets_are_told():
    many = "\n".join(f"hidden-of-the-sixteen-{n}" for n in range(SECRETS_MAX + 1))
    told = problem(gitlab_secret=many)
    assert f"more than {SECRETS_MAX} lines" in told
    assert "hidden" not in told
    assert webhooks(gitlab_secret=many.rpartition("\n")[0]).as_secrets().of(Forge.GITLAB, None, "")


def test_a_secret_that_can_be_guessed_is_told():
    for short in ("x", "hidden-15-chars", f"{NEW}\nhidden-15-chars"):
        for told in (problem(github_secret=short), problem(secrets=json.dumps({"h": short}))):
            assert "shorter than 16 letters" in told
            assert "openssl rand" in told
            assert "hidden" not in told
    assert webhooks(github_secret="just-16-letters!").github_secret is not None


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("https://mirror.example.org", "https://mirror.example.org"),
        ("https://mirror.example.org/", "https://mirror.example.org"),
        ("http://mirror.example.org:8420/em/", "http://mirror.example.org:8420/em"),
        ("none", None),
    ],
)
def test_where_forges_reach_us(url, taken):
    assert webhooks(url=url).url == taken


@pytest.mark.parametrize(
    "url",
    [
        "mirror.example.org",
        "ftp://h",
        "https://h/?a=b",
        "https://h/#x",
        "https://u:p4ss@h",
        "https://h/a b\x01",
        "https://h/api/webhooks/github",
        "https://h/em/api/",
    ],
)
def test_an_address_that_forges_cannot_use_is_told(url):
    told = problem(url=url)
    assert "webhooks.url" in told
    assert "p4ss" not in told


def test_what_to_do_with_unknown_repos_is_one_of_two():
    assert webhooks(unknown="add").unknown == "add"
    assert "one of ignore, add" in problem(unknown="keep")


def test_each_line_is_masked_in_logs_and_none_is_shown():
    env = {
        "EVERMIRROR_WEBHOOKS__GITHUB_SECRET": "canary-of-sixteen-1\ncanary-of-sixteen-2",
        "EVERMIRROR_WEBHOOKS__SECRETS": json.dumps({"h.example": "canary-of-sixteen-3\ncanary-of-sixteen-4"}),
    }
    loaded = load(None, env, {})
    assert {f"canary-of-sixteen-{n}" for n in range(1, 5)} <= set(loaded.config.secret_values())
    shown = "".join(f"{s.name}{as_toml(s.value)}" for s in shown_settings(loaded))
    for text in (shown, repr(loaded), repr(loaded.config.webhooks.as_secrets())):
        assert "canary" not in text
