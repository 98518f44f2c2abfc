"""Hooks at every forge, each against its own stand-in: listed, made, found drifted, mended, removed, sent."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from evermirror.core.hooks.plan import Ours, plan
from evermirror.core.hooks.signatures import is_signed
from evermirror.errors import UsageError
from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.forge import Forge
from evermirror.model.hook import RegistrationState
from tests.edge.forge.forge_world import TOKEN, client, start
from tests.edge.forge.hook_world import SECRET, URL, hooks_client, receiving, wanted
from tests.support.gitrepo import run_git

HOOK_SCOPE = {
    Forge.GITHUB: ("admin:repo_hook",),
    Forge.GITLAB: ("api",),
    Forge.GITEA: ("write:repository",),
    Forge.GITEE: ("hook",),
}
RIGHT = {
    Forge.GITHUB: "admin:repo_hook",
    Forge.GITLAB: "Maintainer",
    Forge.GITEA: "write:repository",
    Forge.GITEE: "permission hook",
}


@pytest.fixture(params=list(Forge), ids=lambda f: f.value)
def forge(request):
    return request.param


@pytest.fixture
def server(forge, tmp_path):
    with start(forge, tmp_path) as made:
        made.add_project("team/x", commits=2)
        yield made


@pytest.fixture
async def api(forge, server):
    made = hooks_client(forge, server)
    yield made
    await made.close()


def foreign(server, number):
    return server.add_hook("team/x", f"https://ci.example.org/{number}", events={"push"})


async def test_all_hooks_are_listed_from_all_pages_each_once(server, api):
    rows = [foreign(server, number) for number in range(23)]
    api.page_size = 5
    found = await api.hooks("team/x")
    assert [hook.id for hook in found] == [str(row.id) for row in rows]
    assert [hook.url for hook in found] == [row.url for row in rows]
    assert len(server.asked("GET")) == 5


async def test_a_page_that_is_just_full_is_not_the_end_and_an_empty_list_is_one_request(server, api):
    assert await api.hooks("team/x") == ()
    assert len(server.asked("GET")) == 1
    for number in range(10):
        foreign(server, number)
    api.page_size = 5
    assert len(await api.hooks("team/x")) == 10


async def test_a_list_that_does_not_end_is_refused(server, api):
    for number in range(41):
        foreign(server, number)
    api.page_size = 2
    with pytest.raises(FailureError, match="more hooks than 20 pages"):
        await api.hooks("team/x")


async def test_a_hook_is_made_as_wanted_and_is_then_as_it_should_be(server, api, forge):
    made = await api.make_hook("team/x", wanted(api))
    assert (made.url, made.active, made.json, made.checks_tls) == (URL, True, True, True)
    assert made.events == api.events
    seen = await api.hooks("team/x")
    assert [replace(hook, trouble="") for hook in seen] == [replace(made, trouble="")], "GitHub pings at once"
    (row,) = server.hooks_of("team/x")
    assert (str(row.id), row.secret, row.active, row.json, row.insecure) == (
        made.id,
        SECRET,
        True,
        True,
        False,
    )
    assert row.encryption_type == (1 if forge is Forge.GITEE else 0)


DRIFTS = {
    "switched off": {Forge.GITHUB: {"active": False}, Forge.GITEA: {"active": False}},
    "events": {forge: {"events": {"push", "push_events"}} for forge in Forge},
    "too many events": {
        Forge.GITHUB: {"events": {"*"}},
        Forge.GITLAB: {"events": {"push_events", "tag_push_events", "issues_events"}},
        Forge.GITEA: {"events": {"push", "create", "delete", "wiki"}},
        Forge.GITEE: {"events": {"push_events", "tag_push_events", "note_events"}},
    },
    "a form": {Forge.GITHUB: {"json": False}, Forge.GITEA: {"json": False}},
    "TLS": {Forge.GITHUB: {"insecure": True}, Forge.GITLAB: {"insecure": True}},
    "some branches": {Forge.GITLAB: {"branch_filter": "main"}, Forge.GITEA: {"branch_filter": "main"}},
    "a template": {Forge.GITLAB: {"template": '{"event":"{{object_kind}}"}'}},
}
CASES = [(forge, drift, rows[forge]) for drift, rows in DRIFTS.items() for forge in Forge if forge in rows]


@pytest.mark.parametrize(
    ("forge", "spoilt"), [(f, s) for f, _, s in CASES], ids=[f"{f.value}-{d}" for f, d, _ in CASES]
)
async def test_drift_is_found_and_mended_and_the_rest_left_alone(server, api, forge, spoilt):
    url = f"https://127.0.0.1:9/api/webhooks/{forge.value}?repo=git.example.org%2Fteam%2Fx"
    ours = Ours(forge, "git.example.org/team/x", ("https://127.0.0.1:9",))
    want = wanted(api, url)
    other = foreign(server, 1)
    made = await api.make_hook("team/x", want)
    assert plan(want, await api.hooks("team/x"), ours).state is RegistrationState.OK
    row = server.hooks_of("team/x")[1]
    for name, value in {"secret": "lost", **spoilt}.items():
        setattr(row, name, value)
    seen = plan(want, await api.hooks("team/x"), ours)
    assert seen.state is RegistrationState.DRIFTED
    mended = await api.change_hook("team/x", made.id, want)
    assert plan(want, (mended,), ours).state is RegistrationState.OK
    assert plan(want, await api.hooks("team/x"), ours).state is RegistrationState.OK
    assert (mended.id, row.secret) == (made.id, SECRET)
    assert (other.url, other.events) == ("https://ci.example.org/1", {"push"})


async def test_a_double_is_removed_and_what_is_gone_already_is_no_trouble(server, api):
    one = await api.make_hook("team/x", wanted(api))
    double = server.add_hook("team/x", URL, events=set(api.events))
    await api.remove_hook("team/x", str(double.id))
    assert [hook.id for hook in await api.hooks("team/x")] == [one.id]
    await api.remove_hook("team/x", str(double.id))
    await api.remove_hook("team/x", one.id)
    assert server.hooks_of("team/x") == []


async def test_a_removal_that_was_not_allowed_is_not_taken_for_one_of_what_was_gone(server, forge, api):
    made = await api.make_hook("team/x", wanted(api))
    server.add_token("guest", scopes=HOOK_SCOPE[forge], manages=False)
    guest = hooks_client(forge, server, "guest")
    with pytest.raises(FailureError) as raised:
        await guest.remove_hook("team/x", made.id)
    assert raised.value.failure.kind in (FailureKind.NOT_FOUND, FailureKind.PERMISSION_DENIED)
    assert len(server.hooks_of("team/x")) == 1
    await guest.close()


async def test_a_change_of_a_hook_that_is_gone_says_so(api):
    with pytest.raises(FailureError) as raised:
        await api.change_hook("team/x", "99999", wanted(api))
    assert raised.value.failure.kind is FailureKind.NOT_FOUND


async def test_a_token_with_the_right_to_hooks_alone_is_enough_and_nothing_else_is_asked(server, forge):
    server.add_token("hooks-only", scopes=HOOK_SCOPE[forge])
    api = hooks_client(forge, server, "hooks-only")
    made = await api.make_hook("team/x", wanted(api))
    await api.hooks("team/x")
    await api.change_hook("team/x", made.id, wanted(api, secret="another-secret-2b7d"))
    assert server.hooks_of("team/x")[0].secret == "another-secret-2b7d"
    await api.remove_hook("team/x", made.id)
    assert all("/hooks" in address for address in server.asked())
    await api.close()


async def test_refusals_name_the_right_that_is_missing(server, forge):
    server.add_token("guest", scopes=HOOK_SCOPE[forge], manages=False)
    server.add_token("reader", scopes=("read_user",))
    for token in ("guest", "reader"):
        api = hooks_client(forge, server, token)
        for path in ("team/x", "team/nothing"):
            with pytest.raises(FailureError) as raised:
                await api.make_hook(path, wanted(api))
            assert raised.value.failure.kind in (FailureKind.NOT_FOUND, FailureKind.PERMISSION_DENIED)
            assert RIGHT[forge] in raised.value.failure.hint
            with pytest.raises(FailureError) as raised:
                await api.hooks(path)
            assert RIGHT[forge] in raised.value.failure.hint
        await api.close()
    assert server.hooks_of("team/x") == []


async def test_a_repository_that_was_moved_is_not_followed(server, api):
    server.add_group("crew")
    server.rename_project("team/x", "crew/y")
    server.requests.clear()
    with pytest.raises(FailureError) as raised:
        await api.hooks("team/x")
    assert raised.value.failure.kind is FailureKind.CONFLICT
    assert "renamed or moved" in raised.value.failure.message
    assert len(server.asked()) == 1


async def test_a_path_that_no_forge_without_subgroups_has_is_refused_before_it_is_asked(server, api, forge):
    if forge is Forge.GITLAB:
        server.add_project("team/sub/deep", commits=1)
        made = await api.make_hook("team/sub/deep", wanted(api))
        assert [hook.id for hook in await api.hooks("team/sub/deep")] == [made.id]
        return
    with pytest.raises(FailureError, match="owner/name"):
        await api.hooks("team/sub/deep")
    assert server.asked() == []


# What is sent


async def test_a_push_is_told_by_hooks_that_are_signed_with_our_secret(server, api, forge):
    with receiving() as receiver:
        await api.make_hook("team/x", wanted(api, receiver.url))
        server.wait_sent()
        receiver.got.clear()
        server.push("team/x", lambda repo: repo.commit())
        server.push("team/x", lambda repo: repo.tag("v1"))
        server.push("team/x", lambda repo: repo.branch("new"))
        server.push("team/x", lambda repo: repo.delete_branch("new"))
        assert {delivery.status for delivery in server.wait_sent()} == {202}
        assert len(receiver.got) >= 4
        for hook in receiver.got:
            assert hook.path == "/api/webhooks/any?repo=a%2Fb"
            assert is_signed(forge, hook.headers, hook.body, [SECRET], time.time())
            assert not is_signed(forge, hook.headers, hook.body, ["another"], time.time())
            assert server.url("team/x.git").encode() in hook.body


async def test_a_real_git_push_is_told_too(server, api):
    with receiving() as receiver:
        await api.make_hook("team/x", wanted(api, receiver.url))
        server.wait_sent()
        receiver.got.clear()
        source = server.add_project("team/source", commits=1)
        target = server.url("team/x.git").replace("http://", f"http://oauth2:{TOKEN}@")
        run_git(source.path, "push", target, "main:topic")
        server.wait_sent()
        assert any(b'"ref":"refs/heads/topic"' in hook.body for hook in receiver.got)
        assert not any(b'"ref":"refs/heads/main"' in hook.body for hook in receiver.got)


async def test_no_group_is_followed_at_gitee(tmp_path):
    with start(Forge.GITEE, tmp_path) as server, pytest.raises(UsageError, match="gitee are not followed"):
        client(Forge.GITEE, server)
