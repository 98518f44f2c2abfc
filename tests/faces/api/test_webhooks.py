"""Hooks over HTTP: who is let in, what they are answered, and what they may take."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from urllib.parse import quote, urlencode

import httpx2
import pytest

from evermirror.core.hooks.secrets import Secrets
from evermirror.core.hooks.signatures import gitea_signature, gitee_sign, github_signature, standard_signature
from evermirror.errors import Unavailable
from evermirror.faces.api.auth import AuthSettings
from evermirror.faces.api.buckets import Rate
from evermirror.faces.api.hook_door import HookDoor
from evermirror.faces.api.limits import BodyRule, LimitSettings
from evermirror.model.forge import Forge
from evermirror.model.hook import HookAnswer, HookEnd
from tests.core.hooks import bodies
from tests.faces.api.fake import ManualClock
from tests.faces.api.fake_webhooks import NOW, FakeWebhooks

SECRET, OTHER = "a secret of our own", "somebody else's"
KEY = "gitea.example.org/team/tools"
REMOTE = {"address": "203.0.113.9", "base": "http://whatever.example"}
SIGNING = "whsec_" + "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="
PUSH = bodies.GITEA_PUSH


def signed(sent, secret=SECRET, body=None):
    body = sent.body if body is None else body
    match sent.forge:
        case Forge.GITLAB:
            extra = {"x-gitlab-token": secret}
        case Forge.GITEE:
            extra = {"x-gitee-token": secret}
        case Forge.GITEA:
            extra = {"x-gitea-signature": gitea_signature(secret, body)}
        case _:
            extra = {"x-hub-signature-256": github_signature(secret, body)}
    return sent.headers | extra


@pytest.fixture
def hooks(house):
    secrets = Secrets({}, dict.fromkeys(Forge, (SECRET,)))
    repos = {KEY, "git.example.org/team/tools", "gitee.com/team/tools"}
    house.hooks = FakeWebhooks(secrets, repos)
    house.auth = AuthSettings(tokens_required=True, public_reads=False, hosts=("mirror.example.org",))
    house.with_tokens()
    return house.hooks


@pytest.fixture
async def forge(house, hooks):
    """Another machine, without a token, that reaches us under a name we have never heard of."""
    async with house.client(**REMOTE) as client:
        yield client


async def post(client, sent=PUSH, headers=None, body=None, path=None):
    headers = signed(sent) if headers is None else headers
    path = path or f"/api/webhooks/{sent.forge.value}"
    return await client.post(path, content=sent.body if body is None else body, headers=headers)


# Who is let in


@pytest.mark.parametrize(
    "sent", [bodies.GITLAB_PUSH, bodies.GITEE_PUSH, bodies.GITEA_PUSH, bodies.FORGEJO_PUSH], ids=str
)
async def test_a_signed_hook_needs_no_token_and_no_name_of_ours(forge, hooks, sent):
    answer = await post(forge, sent)
    assert answer.status_code == 202
    body = answer.json()
    assert body["status"] == "accepted"
    assert body["repo"] in hooks.repos
    ((taken, headers, raw, repo),) = hooks.taken
    assert (taken, raw, repo) == (sent.forge, sent.body, None)
    assert headers["content-type"] == "application/json"
    assert all(name == name.lower() for name in headers)


async def test_everything_else_still_needs_a_token(forge):
    for method, path in (("POST", "/api/tasks"), ("GET", "/api/overview"), ("POST", "/api/webhooksX/github")):
        assert (await forge.request(method, path, json={})).status_code in (401, 403), path
    assert (await forge.get("/api/webhooks/github")).status_code in (401, 403)


async def test_a_signed_form_is_taken(forge, hooks):
    body = urlencode({"payload": PUSH.body.decode()}).encode()
    headers = signed(PUSH) | {"content-type": "application/x-www-form-urlencoded"}
    assert (await post(forge, headers=headers, body=body)).json()["status"] == "accepted"


async def test_the_timed_signatures_are_taken(forge, house):
    house.hooks.configure(Secrets({}, {Forge.GITEE: (SECRET,), Forge.GITLAB: (SIGNING,)}))
    at = str(int(NOW * 1000))
    gitee = bodies.GITEE_PUSH.headers | {"x-gitee-timestamp": at, "x-gitee-token": gitee_sign(SECRET, at)}
    assert (await post(forge, bodies.GITEE_PUSH, gitee)).status_code == 202
    sent, at = bodies.GITLAB_PUSH, str(int(NOW))
    extra = {
        "webhook-id": "m1",
        "webhook-timestamp": at,
        "webhook-signature": standard_signature(SIGNING, "m1", at, sent.body),
    }
    assert (await post(forge, sent, sent.headers | extra)).status_code == 202
    assert (await post(forge, sent, sent.headers | extra | {"webhook-id": "m2"})).status_code == 403


async def test_the_repo_of_the_hooks_own_address_is_handed_on(forge, hooks):
    answer = await post(forge, path=f"/api/webhooks/gitea?repo={quote(KEY, safe='')}")
    assert answer.json() == {"status": "accepted", "repo": KEY, "reason": None}
    assert hooks.taken[0][3] == KEY


@pytest.mark.parametrize(
    ("query", "repo"),
    [
        ("", None),
        ("repo=", ""),
        ("repo=git.example.org/a+b%2Bc", "git.example.org/a b+c"),
        ("repo=git.example.org%2Fa=b", "git.example.org/a=b"),
        ("repo=git.example.org%2F%C3%A4%FF", "git.example.org/ä\ufffd"),
        ("rep%6F=git.example.org%2Fa", "git.example.org/a"),
        ("x=1&repo=git.example.org%2Fa", "git.example.org/a"),
        ("repo=git.example.org%2Fa&x=1", "git.example.org/a"),
        ("x=1", None),
    ],
)
async def test_however_the_address_names_the_repo_it_is_the_same(forge, hooks, query, repo):
    hooks.configure(Secrets({}, {Forge.GITEA: (SECRET,)}))
    await post(forge, path=f"/api/webhooks/gitea?{query}")
    assert [taken[3] for taken in hooks.taken] == [repo]


@pytest.mark.parametrize("repo", ["a%00b", "x" * 3000, "a%1bb"])
async def test_a_repo_that_cannot_be_one_is_refused(forge, hooks, repo):
    assert (await post(forge, path=f"/api/webhooks/gitea?repo={repo}")).status_code == 422
    assert not hooks.taken


async def test_a_ping_is_answered_with_200(forge):
    answer = await post(forge, bodies.GITEE_PING)
    assert (answer.status_code, answer.json()["status"]) == (200, "pong")


@pytest.mark.parametrize("end", list(HookEnd))
async def test_every_end_has_its_word(forge, hooks, end, monkeypatch):
    async def received(*_):
        return HookAnswer(end, None, "because")

    monkeypatch.setattr(hooks, "received", received)
    answer = await post(forge)
    assert answer.status_code == (200 if end is HookEnd.PONG else 202)
    assert answer.json() == {"status": end.value, "repo": None, "reason": "because"}


# Who is not

STRANGER = json.dumps(
    PUSH.found | {"repository": {"clone_url": "https://gitea.example.org/not/ours.git"}}
).encode()


async def test_who_cannot_sign_learns_nothing_about_what_is_here(forge, hooks):
    known = await post(forge, headers=signed(PUSH, OTHER))
    stranger = await post(forge, headers=signed(PUSH, OTHER, STRANGER), body=STRANGER)
    hooks.configure(Secrets({KEY: (SECRET,)}, {}))
    own = await post(forge, headers=signed(PUSH, OTHER))
    none = await post(forge, headers=signed(PUSH, OTHER, STRANGER), body=STRANGER)
    unsigned = await post(forge, headers=PUSH.headers)
    shapeless = await post(forge, headers=PUSH.headers, body=b'{"repository": 7}')
    answers = [known, stranger, own, none, unsigned, shapeless]
    assert {a.status_code for a in answers} == {403}
    assert len({a.text for a in answers}) == 1
    assert len({str(sorted(a.headers.items())) for a in answers}) == 1
    problem = known.json()
    assert problem["type"] == "/problems/hook-refused"
    assert "webhooks.gitea_secret" in problem["hint"]
    for said in (KEY, "not/ours", SECRET, OTHER):
        assert said not in known.text
    assert not hooks.taken


@pytest.mark.parametrize("body", [PUSH.body, b"{}", b"", b"nonsense"])
async def test_with_no_secret_set_whatever_comes_is_403(forge, hooks, body):
    hooks.configure(Secrets({}, {Forge.GITHUB: (SECRET,)}))
    for headers in (signed(PUSH, SECRET, body), signed(PUSH, "", body), PUSH.headers):
        answer = await post(forge, headers=headers, body=body)
        assert (answer.status_code, answer.json()["type"]) == (403, "/problems/hook-refused")


async def test_a_signed_hook_of_a_repo_that_is_not_ours_is_ignored_in_words(forge):
    answer = await post(forge, headers=signed(PUSH, SECRET, STRANGER), body=STRANGER)
    assert answer.status_code == 202
    assert answer.json()["status"] == "ignored"
    assert answer.json()["reason"]


async def test_the_secret_of_a_forge_does_not_open_a_repo_that_has_its_own(forge, hooks):
    hooks.configure(Secrets({KEY: ("its own",)}, {Forge.GITEA: (SECRET,)}))
    by_one_name = json.dumps({"repository": {"clone_url": f"https://{KEY}.git"}}).encode()
    refused = await post(forge, headers=signed(PUSH, SECRET, by_one_name), body=by_one_name)
    assert refused.status_code == 403
    by_its_others = await post(forge)  # ssh on another port: another repo, as far as we know
    assert by_its_others.json()["status"] == "ignored"
    own = await post(forge, headers=signed(PUSH, "its own"))
    assert own.json() == {"status": "accepted", "repo": KEY, "reason": None}


async def test_a_changed_body_is_refused(forge):
    assert (await post(forge, body=PUSH.body + b" ")).status_code == 403


@pytest.mark.parametrize(
    ("body", "headers", "status", "kind"),
    [
        (b"", {}, 400, "malformed-request"),
        (PUSH.body[:-20], {}, 400, "malformed-request"),
        ("{}".encode("utf-16"), {}, 400, "malformed-request"),
        (b"[" * 50_000, {}, 400, "malformed-request"),
        (b"{}", {"content-encoding": "gzip"}, 400, "malformed-request"),
        (b"a: 1", {"content-type": "application/yaml"}, 400, "malformed-request"),
        (b"{}", {"content-type": "application/json; charset=gbk"}, 400, "malformed-request"),
        (b"[]", {}, 422, "invalid-input"),
        (b'{"repository": 7}', {}, 422, "invalid-input"),
        (b"{}", {}, 422, "invalid-input"),
    ],
)
async def test_a_body_that_is_none_is_refused_in_words(forge, hooks, body, headers, status, kind):
    answer = await post(forge, headers=signed(PUSH, SECRET, body) | headers, body=body)
    assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{kind}")
    assert answer.json()["detail"]
    assert not hooks.taken


async def test_another_forge_and_another_method_are_told(house, forge, hooks):
    answer = await forge.post("/api/webhooks/bitbucket", content=b"{}")
    assert answer.status_code == 404
    assert "github, gitee" in answer.json()["hint"] or "gitlab" in answer.json()["hint"]
    async with house.client("em_reader", **REMOTE) as reader:
        got = await reader.get("/api/webhooks/github")
        assert (got.status_code, got.headers["allow"]) == (405, "POST")


async def test_a_server_without_hooks_says_so(house):
    house.hooks = None
    async with house.client() as client:
        assert (await post(client)).status_code == 404


# What they may take


@pytest.mark.parametrize("chunked", [False, True])
async def test_25_megabytes_are_taken_and_more_are_413(forge, hooks, chunked):
    async def pieces(size):
        left = size
        while left > 0:
            yield b" " * min(left, 1_000_000)
            left -= 1_000_000

    async def send(size, secret=SECRET):
        content = pieces(size) if chunked else b" " * size
        headers = bodies.JSON | {"x-hub-signature-256": github_signature(secret, b" " * size)}
        return await forge.post("/api/webhooks/github", content=content, headers=headers)

    assert (await send(25_000_000)).status_code == 400  # empty, but not too large
    assert (await send(25_000_001)).status_code == 413
    assert (await send(25_000_000, OTHER)).status_code == 403  # nobody looks at it
    assert not hooks.taken


async def test_a_large_real_hook_is_taken(forge):
    found = PUSH.found | {"commits": PUSH.found["commits"] * 2_000}
    body = json.dumps(found).encode()
    assert len(body) > 600_000
    assert (await post(forge, headers=signed(PUSH, SECRET, body), body=body)).status_code == 202


async def test_a_body_that_never_ends_is_408(house, hooks):
    limits = LimitSettings(hook_body=BodyRule(max_bytes=1_000, timeout_s=0.05))
    house.settings = replace(house.settings, limits=limits)

    async def stuck():
        yield b"{"
        await asyncio.Event().wait()

    app = house.app()
    async with house.client(app=app, **REMOTE) as client:
        assert (await client.post("/api/webhooks/github", content=stuck())).status_code == 408
    assert app.state.api.hook_door.held_bytes == 0


async def test_too_many_at_once_wait_outside_and_are_told_when_to_come_again(house, hooks):
    app = house.app()
    door = app.state.api.hook_door = HookDoor(room_bytes=3 * len(PUSH.body) + 10)
    hooks.gate.clear()
    async with house.client(app=app, **REMOTE) as client:
        held = [asyncio.create_task(post(client)) for _ in range(3)]
        while door.held_bytes < 3 * len(PUSH.body):
            await asyncio.sleep(0.001)
        refused = await post(client)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0
        assert door.held_bytes == 3 * len(PUSH.body)
        hooks.gate.set()
        assert {a.status_code for a in await asyncio.gather(*held)} == {202}
        assert (await post(client)).status_code == 202
    assert door.held_bytes == 0


async def test_while_the_inbox_is_full_forges_are_told_to_come_again(forge, hooks):
    hooks.explode = Unavailable("too many hooks wait")
    answer = await post(forge)
    assert (answer.status_code, answer.json()["detail"]) == (503, "too many hooks wait")
    assert int(answer.headers["retry-after"]) > 0


async def test_hooks_have_a_rate_of_their_own(house, hooks):
    limits = LimitSettings(requests=Rate(0.001, 2.0), hooks=Rate(0.001, 5.0))
    house.settings = replace(house.settings, limits=limits)
    app = house.app()
    async with house.client("em_reader", app=app, **REMOTE) as client:
        answers = [(await client.get("/api/version")).status_code for _ in range(5)]
        assert answers == [200] * 4 + [429]  # two of the address, two of the token
        codes = [(await post(client)).status_code for _ in range(6)]
        assert codes == [202] * 5 + [429]
    async with house.client(app=app, address="203.0.113.10") as other:
        assert (await post(other)).status_code == 202


async def test_a_whole_gitlab_may_send_thousands_from_one_address(forge):
    codes = [(await post(forge)).status_code for _ in range(600)]
    assert set(codes) == {202}


async def test_wrong_signatures_of_one_address_are_bounded_and_keep_no_genuine_hook_out(house, hooks):
    clock = ManualClock()
    app = house.app()
    app.state.api.hook_door = HookDoor(clock)
    async with house.client(app=app, **REMOTE) as client:
        codes = [(await post(client, headers=PUSH.headers)).status_code for _ in range(101)]
        assert codes == [403] * 100 + [429]
        refused = await post(client, headers=PUSH.headers)
        assert (refused.status_code, refused.json()["type"]) == (429, "/problems/too-many-requests")
        assert int(refused.headers["retry-after"]) >= 1
        assert (await post(client)).status_code == 202, "behind a proxy, forger and forge have one address"
        clock.now += 0.6
        assert (await post(client)).status_code == 202
        assert (await post(client, headers=PUSH.headers)).status_code == 403
        assert (await post(client, headers=PUSH.headers)).status_code == 429
    async with house.client(app=app, address="203.0.113.10") as other:
        assert (await post(other)).status_code == 202


async def test_good_hooks_cost_nothing_of_that_bound_and_bodies_that_are_none_do(house, hooks):
    app = house.app()
    app.state.api.hook_door = HookDoor(ManualClock())
    async with house.client(app=app, **REMOTE) as client:
        assert {(await post(client)).status_code for _ in range(150)} == {202}
        codes = [(await post(client, body=b"{")).status_code for _ in range(101)]
        assert codes == [400] * 100 + [429]


async def test_who_signed_something_strange_is_not_counted_among_the_wrong(house, hooks):
    app = house.app()
    app.state.api.hook_door = HookDoor(ManualClock())
    body = b'{"repository": 7}'
    async with house.client(app=app, **REMOTE) as client:
        headers = signed(PUSH, SECRET, body)
        codes = {(await post(client, headers=headers, body=body)).status_code for _ in range(150)}
    assert codes == {422}


async def test_a_proxy_on_this_machine_is_given_more(house, hooks):
    app = house.app()
    app.state.api.hook_door = HookDoor(ManualClock())
    async with house.client(app=app) as client:
        codes = [(await post(client, headers=PUSH.headers)).status_code for _ in range(300)]
        assert set(codes) == {403}


async def test_a_client_that_leaves_in_the_middle_frees_what_it_took(house, hooks):
    app = house.app()

    async def receive():
        return messages.pop(0)

    messages = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    sent = []

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/api/webhooks/github", "raw_path": b"/api/webhooks/github",
        "query_string": b"", "headers": [], "client": ("203.0.113.9", 1), "server": ("h", 80),
        "scheme": "http", "http_version": "1.1",
    }  # fmt: skip
    await app(scope, receive, send)
    assert not hooks.taken
    assert app.state.api.hook_door.held_bytes == 0
    assert sent[0]["status"] == 400


async def test_the_first_of_two_equal_headers_counts(house, hooks):
    good, bad = signed(PUSH)["x-gitea-signature"], gitea_signature(OTHER, PUSH.body)
    for pair, status in (((good, bad), 202), ((bad, good), 403)):
        headers = [*PUSH.headers.items(), *(("x-gitea-signature", value) for value in pair)]
        async with house.client(**REMOTE) as client:
            request = client.build_request(
                "POST", "/api/webhooks/gitea", content=PUSH.body, headers=httpx2.Headers(headers)
            )
            assert (await client.send(request)).status_code == status
