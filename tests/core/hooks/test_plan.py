"""What is done about our hook at a repo: tables, and that a plan carried out leaves nothing to do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.hooks.plan import Make, Mend, Ours, Remove, hook_url, plan, removal
from evermirror.model.forge import Forge
from evermirror.model.hook import ForgeHook, RegistrationState, WantedHook
from evermirror.model.repo import RepoKey

KEY = RepoKey("github.com/Owner/name")
BASE = "https://mirror.example.org"
OURS = Ours(Forge.GITHUB, KEY, (BASE, "https://old.example.org:8443/mirror"))
EVENTS = frozenset({"push", "create"})
WANTED = WantedHook(hook_url(BASE, Forge.GITHUB, KEY), "a secret of 16 letters", EVENTS)
GOOD = ForgeHook("7", WANTED.url, True, EVENTS)
REPO = "repo=github.com%2FOwner%2Fname"


def at(url: str, id_: str = "9") -> ForgeHook:
    return replace(GOOD, id=id_, url=url)


def test_the_address_of_a_hook_names_the_repo_and_nothing_else_of_us():
    assert WANTED.url == f"{BASE}/api/webhooks/github?{REPO}"
    assert hook_url("https://x.org/em/", Forge.GITEE, RepoKey("a.org:8443/b c")).endswith(
        "/em/api/webhooks/gitee?repo=a.org%3A8443%2Fb%20c"
    )


@pytest.mark.parametrize(
    "url",
    [
        WANTED.url,
        f"http://mirror.example.org/api/webhooks/github?{REPO}",  # before it had TLS
        f"https://mirror.example.org:443/api/webhooks/github?{REPO}",
        f"https://MIRROR.example.org/api/webhooks/github?{REPO}",
        f"https://old.example.org:8443/mirror/api/webhooks/github?{REPO}",  # an earlier address
        f"{BASE}/api/webhooks/github?x=1&repo=github.com/Owner/name",
        f"{BASE}/api/webhooks/github/?{REPO}",
    ],
)
def test_ours_is_known(url):
    assert OURS.is_ours(at(url))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "not a url",
        "https://[broken/api/webhooks/github?repo=x",
        f"https://mirror.example.org:99999999/api/webhooks/github?{REPO}",
        f"https://other.example.org/api/webhooks/github?{REPO}",  # another mirror's
        f"https://mirror.example.org:8443/api/webhooks/github?{REPO}",  # another port: another server
        f"https://old.example.org/api/webhooks/github?{REPO}",
        f"https://old.example.org:8443/api/webhooks/github?{REPO}",  # of the same host, below another path
        f"https://old.example.org:8443/staging/api/webhooks/github?{REPO}",
        f"{BASE}/staging/api/webhooks/github?{REPO}",
        f"{BASE}/api/webhooks/gitlab?{REPO}",
        f"{BASE}/api/webhooks/github",
        f"{BASE}/api/webhooks/github?repo=github.com%2Fowner%2Fname",  # another repo's
        f"{BASE}/api/webhooks/github?{REPO}&{REPO}2",
        f"{BASE}/?{REPO}",
        f"{BASE}.evil.org/api/webhooks/github?{REPO}",
        f"https://mirror.example.org@evil.org/api/webhooks/github?{REPO}",
        f"{BASE}/api/webhooks/github?{'&'.join(['a=b'] * 1000)}&{REPO}",
    ],
)
def test_what_is_not_ours_is_never_touched(url):
    assert not OURS.is_ours(at(url))
    assert plan(WANTED, [at(url)], OURS).steps == (Make(),)
    assert removal([at(url), GOOD], OURS) == (Remove("7"),)


@pytest.mark.parametrize(
    ("there", "steps", "state", "why"),
    [
        ([], (Make(),), RegistrationState.MISSING, "no hook of ours"),
        ([GOOD], (), RegistrationState.OK, ""),
        ([replace(GOOD, active=False)], (Mend("7"),), RegistrationState.DRIFTED, "switched off"),
        (
            [replace(GOOD, events=frozenset({"push"}))],
            (Mend("7"),),
            RegistrationState.DRIFTED,
            "events are missing: create",
        ),
        (
            [replace(GOOD, events=EVENTS | {"issues"})],
            (Mend("7"),),
            RegistrationState.DRIFTED,
            "events are too many: issues",
        ),
        ([replace(GOOD, json=False)], (Mend("7"),), RegistrationState.DRIFTED, "not JSON"),
        ([replace(GOOD, checks_tls=False)], (Mend("7"),), RegistrationState.DRIFTED, "certificate"),
        (
            [at(f"http://mirror.example.org/api/webhooks/github?{REPO}")],
            (Mend("9"),),
            RegistrationState.DRIFTED,
            "sent to http://mirror.example.org/api/webhooks/github",
        ),
        (
            [replace(GOOD, id="1", active=False), GOOD, replace(GOOD, id="8")],
            (Remove("1"), Remove("8")),
            RegistrationState.DRIFTED,
            "3 times",
        ),
        (
            [replace(GOOD, id="1", active=False), replace(GOOD, id="2", active=False, json=False)],
            (Mend("1"), Remove("2")),
            RegistrationState.DRIFTED,
            "switched off",
        ),
    ],
)
def test_what_is_done(there, steps, state, why):
    made = plan(WANTED, there, OURS)
    assert (made.steps, made.state) == (steps, state)
    assert why in "; ".join(made.why)


def test_an_address_that_the_forge_writes_otherwise_is_the_same():
    assert plan(WANTED, [at(f"{BASE}:443/api/webhooks/github?repo=github.com/Owner/name")], OURS).steps == ()


def test_a_certificate_is_checked_only_where_there_is_one():
    wanted = replace(WANTED, url=WANTED.url.replace("https:", "http:"))
    assert plan(wanted, [replace(GOOD, url=wanted.url, checks_tls=False)], OURS).steps == ()


def test_a_new_secret_is_written_where_nothing_else_is_wrong():
    assert plan(WANTED, [GOOD], OURS, renew=True).steps == (Mend("7"),)
    assert plan(WANTED, [GOOD], OURS, renew=True).state is RegistrationState.OK


def test_what_the_forge_says_of_its_deliveries_is_told_and_not_mended():
    made = plan(WANTED, [replace(GOOD, trouble="last answered 502")], OURS)
    assert (made.steps, made.state, made.trouble) == ((), RegistrationState.OK, "last answered 502")


def test_a_foreign_address_is_in_no_words():
    made = plan(WANTED, [at("https://ci.example.org/hook?token=hunter2")], OURS)
    assert "ci.example" not in repr(made)


URLS = st.sampled_from(
    [
        WANTED.url,
        f"http://mirror.example.org/api/webhooks/github?{REPO}",
        f"https://old.example.org:8443/api/webhooks/github?{REPO}",
        "https://ci.example.org/hook",
        f"https://other.example.org/api/webhooks/github?{REPO}",
    ]
)
HOOKS = st.lists(
    st.builds(
        ForgeHook,
        id=st.integers(0, 10**6).map(str),
        url=URLS,
        active=st.booleans(),
        events=st.frozensets(st.sampled_from(["push", "create", "issues"])),
        json=st.booleans(),
        checks_tls=st.booleans(),
    ),
    max_size=8,
    unique_by=lambda hook: hook.id,
)


def applied(there: list[ForgeHook], steps: tuple[object, ...]) -> list[ForgeHook]:
    """As a forge would."""
    for step in steps:
        match step:
            case Make():
                there = [*there, replace(GOOD, id="new")]
            case Mend(id=id_):
                there = [replace(GOOD, id=id_) if hook.id == id_ else hook for hook in there]
            case Remove(id=id_):
                there = [hook for hook in there if hook.id != id_]
    return there


@given(HOOKS)
def test_a_plan_carried_out_leaves_nothing_to_do_and_others_as_they_were(there):
    after = applied(there, plan(WANTED, there, OURS).steps)
    again = plan(WANTED, after, OURS)
    assert (again.steps, again.state) == ((), RegistrationState.OK)
    assert [hook for hook in after if OURS.is_ours(hook)] == [replace(GOOD, id=again.hook_id)]
    assert [h for h in after if not OURS.is_ours(h)] == [h for h in there if not OURS.is_ours(h)]


@given(HOOKS)
def test_a_removal_leaves_all_others_and_none_of_ours(there):
    after = applied(there, removal(there, OURS))
    assert after == [hook for hook in there if not OURS.is_ours(hook)]
    assert removal(after, OURS) == ()


FORMER = f"{BASE}/api/webhooks/github?repo=github.com%2FOwner%2Fbefore"


def test_a_hook_with_a_name_of_before_is_ours_and_mended():
    made = plan(WANTED, [at(FORMER)], OURS)
    assert (made.state, made.steps, made.renamed) == (RegistrationState.DRIFTED, (Mend("9"),), True)
    assert any("github.com/Owner/before" in why for why in made.why)
    both = plan(WANTED, [at(FORMER), GOOD], OURS)
    assert (both.steps, both.renamed) == ((Remove("9"),), True)
    assert removal([at(FORMER), GOOD], OURS) == (Remove("9"), Remove("7"))
    assert not plan(WANTED, [GOOD], OURS).renamed


def test_the_same_repo_under_another_host_has_a_hook_of_its_own():
    assert not OURS.is_ours(at(f"{BASE}/api/webhooks/github?repo=inside.example.org%2FOwner%2Fname"))
