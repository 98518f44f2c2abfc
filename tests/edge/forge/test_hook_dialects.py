"""What each forge has for itself: GitLab's switched-off hooks and signing tokens, words about deliveries."""

from __future__ import annotations

import asyncio
import base64
import json
import time

import gitlab
import pytest

from evermirror.core.hooks.signatures import is_signed
from evermirror.edge.forge.hooks_gitlab import is_signing_token
from evermirror.model.forge import Forge
from tests.edge.forge.forge_world import TOKEN, start
from tests.edge.forge.hook_world import SECRET, URL, hooks_client, receiving, wanted

SIGNING = "whsec_" + base64.b64encode(bytes(range(32))).decode()


@pytest.fixture
def lab(tmp_path):
    with start(Forge.GITLAB, tmp_path) as made:
        made.add_project("team/sub/x", commits=1)
        yield made


@pytest.fixture
async def api(lab):
    made = hooks_client(Forge.GITLAB, lab)
    yield made
    await made.close()


# GitLab


async def test_python_gitlab_sees_the_hook_as_we_made_it_and_we_see_its(lab, api):
    made = await api.make_hook("team/sub/x", wanted(api))
    other = gitlab.Gitlab(lab.base_url, private_token=TOKEN)

    def look_and_make():
        project = other.projects.get("team/sub/x")
        (seen,) = project.hooks.list(get_all=True)
        new = project.hooks.create({"url": "https://ci.example.org/", "push_events": True, "token": "theirs"})
        seen.push_events_branch_filter = "main"
        seen.save()
        return seen, new

    seen, new = await asyncio.to_thread(look_and_make)
    assert (str(seen.id), seen.url) == (made.id, URL)
    assert (seen.push_events, seen.tag_push_events, seen.issues_events) == (True, True, False)
    assert seen.enable_ssl_verification is True
    ours, theirs = await api.hooks("team/sub/x")
    assert ours.events == {"tag_push_events"}, "a branch filter leaves out pushes"
    assert (theirs.id, theirs.url, theirs.events) == (str(new.id), new.url, {"push_events"})
    await api.remove_hook("team/sub/x", theirs.id)
    left = await asyncio.to_thread(lambda: other.projects.get("team/sub/x").hooks.list(get_all=True))
    assert [str(hook.id) for hook in left] == [made.id]


@pytest.mark.parametrize(("failures", "until"), [(4, True), (40, False)], ids=["for a while", "for good"])
async def test_a_hook_that_gitlab_switched_off_is_seen_so_and_switched_on_by_a_test(
    lab, api, failures, until
):
    with receiving() as receiver:
        receiver.status = 503
        made = await api.make_hook("team/sub/x", wanted(api, receiver.url))
        (row,) = lab.hooks_of("team/sub/x")
        for _ in range(failures):
            lab.ping("team/sub/x", row)
        (seen,) = await api.hooks("team/sub/x")
        assert not seen.active
        assert "switched it off" in seen.trouble
        assert (" until 20" in seen.trouble) is until
        still = await api.change_hook("team/sub/x", made.id, wanted(api, receiver.url))
        assert not still.active
        assert "a test: HTTP 422" in still.trouble
        receiver.status = 202
        mended = await api.change_hook("team/sub/x", made.id, wanted(api, receiver.url))
        assert (mended.active, mended.trouble) == (True, "")


@pytest.mark.parametrize("signs", [True, False], ids=["GitLab 19", "before"])
async def test_a_signing_token_signs_and_an_older_gitlab_gets_it_as_its_secret_token(lab, api, signs):
    lab.signs = signs
    with receiving() as receiver:
        made = await api.make_hook("team/sub/x", wanted(api, receiver.url, SIGNING))
        (row,) = lab.hooks_of("team/sub/x")
        assert (row.signing, row.secret) == ((SIGNING, "") if signs else ("", SIGNING))
        lab.push("team/sub/x", lambda repo: repo.commit())
        lab.wait_sent()
        (got,) = receiver.got
        assert ("webhook-signature" in got.headers, "x-gitlab-token" in got.headers) == (signs, not signs)
        assert is_signed(Forge.GITLAB, got.headers, got.body, [SIGNING], time.time())
        changed = await api.change_hook("team/sub/x", made.id, wanted(api, receiver.url, SIGNING))
        assert (changed.id, len(lab.hooks_of("team/sub/x"))) == (made.id, 1)


@pytest.mark.parametrize(
    ("secret", "is_one"),
    [
        (SIGNING, True),
        (SECRET, False),
        ("whsec_", False),
        ("whsec_AAAA", False),
        ("whsec_not base64!", False),
    ],
)
def test_a_signing_token_has_the_form_that_gitlab_asks_for(secret, is_one):
    assert is_signing_token(secret) is is_one


def test_gitlab_tells_no_push_of_more_than_three_branches(lab):
    lab.add_hook("team/sub/x", URL, events={"push_events"})
    lab.push("team/sub/x", lambda repo: [repo.branch(f"b{n}") for n in range(4)])
    assert lab.wait_sent() == []
    lab.push("team/sub/x", lambda repo: [repo.branch(f"c{n}") for n in range(3)])
    assert len(lab.wait_sent()) == 3


# GitHub


async def test_github_refuses_a_second_hook_for_an_address_and_the_first_is_made_as_wanted(tmp_path):
    with start(Forge.GITHUB, tmp_path) as hub:
        hub.add_project("team/x", commits=1)
        api = hooks_client(Forge.GITHUB, hub)
        there = hub.add_hook("team/x", URL, events=set(api.events), active=False, json=False)
        made = await api.make_hook("team/x", wanted(api))
        assert made.id == str(there.id)
        assert (made.active, made.json, there.secret) == (True, True, SECRET)
        assert len(hub.hooks_of("team/x")) == 1
        await api.close()


# What forges say of deliveries


async def test_github_and_gitee_say_what_became_of_the_latest_delivery(tmp_path):
    for forge in (Forge.GITHUB, Forge.GITEE):
        with start(forge, tmp_path / forge.value) as server, receiving() as receiver:
            server.add_project("team/x", commits=1)
            api = hooks_client(forge, server)
            receiver.status = 403
            await api.make_hook("team/x", wanted(api, receiver.url))
            (row,) = server.hooks_of("team/x")
            server.ping("team/x", row)
            assert (await api.hooks("team/x"))[0].trouble.startswith("403: ")
            receiver.status = 202
            server.ping("team/x", row)
            assert (await api.hooks("team/x"))[0].trouble == ""
            await api.close()


# The stand-ins send what their forges do


def test_github_pings_at_once_and_tells_branches_made_deleted_and_names_changed(tmp_path):
    with start(Forge.GITHUB, tmp_path) as hub, receiving() as receiver:
        hub.add_project("team/x", commits=1)
        hub.add_hook("team/x", receiver.url, secret=SECRET, events={"push", "create", "delete", "repository"})
        hub.push("team/x", lambda repo: repo.branch("new"))
        hub.push("team/x", lambda repo: repo.delete_branch("new"))
        hub.push("team/x", lambda repo: [repo.tag(f"v{n}") for n in range(4)])
        hub.rename_project("team/x", "team/y")
        hub.wait_sent()
        told = sorted(hook.headers["x-github-event"] for hook in receiver.got)
        assert told == ["create", "delete", "push", "push", "repository"]
        (renamed,) = [h for h in receiver.got if h.headers["x-github-event"] == "repository"]
        body = json.loads(renamed.body)
        assert body["changes"]["repository"]["name"]["from"] == "x"
        assert body["repository"]["full_name"] == "team/y"


def test_a_letter_is_sent_again_byte_for_byte(tmp_path):
    with start(Forge.GITHUB, tmp_path) as hub, receiving() as receiver:
        hub.add_project("team/x", commits=1)
        hub.add_hook("team/x", receiver.url, secret=SECRET, events={"push"})
        hub.push("team/x", lambda repo: repo.commit())
        (delivery,) = hub.wait_sent()
        hub.send(delivery.letter)
        hub.wait_sent()
        one, other = receiver.got
        assert one.body == other.body
        assert one.headers["x-github-delivery"] == other.headers["x-github-delivery"]


def test_gitea_signs_the_json_of_a_form_and_gitee_may_send_a_password(tmp_path):
    with start(Forge.GITEA, tmp_path) as tea, start(Forge.GITEE, tmp_path) as tee, receiving() as receiver:
        tea.add_project("team/x", commits=1)
        tee.add_project("team/x", commits=1)
        tea.add_hook("team/x", receiver.url, secret=SECRET, events={"push"}, json=False)
        tee.add_hook("team/x", receiver.url, secret=SECRET, events={"push_events"})
        for server, forge in ((tea, Forge.GITEA), (tee, Forge.GITEE)):
            receiver.got.clear()
            server.push("team/x", lambda repo: repo.commit())
            server.wait_sent()
            (got,) = receiver.got
            assert is_signed(forge, got.headers, got.body, [SECRET], time.time()), forge
        assert got.headers["x-gitee-token"] == SECRET
