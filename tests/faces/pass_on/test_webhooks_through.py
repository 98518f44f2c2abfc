"""Hooks by way of an aggregator: unchanged to the byte, without a token, under any name."""

from __future__ import annotations

import asyncio
import json
import time

import httpx2
import pytest

from evermirror.core.hooks.reading import read
from evermirror.core.hooks.secrets import Secrets
from evermirror.core.hooks.signatures import gitea_signature, github_signature
from evermirror.faces.api.app import create_app
from evermirror.faces.api.auth import Auth, AuthSettings
from evermirror.faces.api.metrics import Metrics
from evermirror.faces.pass_on import kept
from evermirror.faces.pass_on.app import PassOnSettings
from evermirror.model.access import Role
from evermirror.model.forge import Forge
from tests.core.hooks import bodies
from tests.faces.api.fake_webhooks import FakeWebhooks
from tests.faces.pass_on.pair import Pair

SECRET = "a secret of our own"
PUSH = bodies.GITEA_PUSH
ELSEWHERE = {"host": "hooks.example.net"}


class HookPair(Pair):
    def api(self):
        self.hooks = FakeWebhooks(
            Secrets({}, dict.fromkeys(Forge, (SECRET,))), {"gitea.example.org/team/tools"}
        )
        return create_app(
            self.service,
            Auth(self.tokens, AuthSettings(tokens_required=True, hosts=("mirror.example.org",))),
            self.settings,
            Metrics(),
            read_pass=lambda sealed: self.read.read_pass(sealed, time.time()),
            hook_service=self.hooks,
        )


@pytest.fixture
async def through():
    pair = HookPair(names=("mirror.example.org",), pass_on=PassOnSettings(waiting=10))
    for role in Role:
        pair.tokens.add(f"em_{role.value}", role)
    async with pair.running():
        yield pair


def gitea(body=PUSH.body, secret=SECRET):
    return PUSH.headers | ELSEWHERE | {"x-gitea-signature": gitea_signature(secret, body)}


async def test_every_byte_and_every_header_that_matters_arrives(through):
    body = json.dumps(PUSH.found, indent=3, ensure_ascii=False).encode() + b"\n \n"
    async with httpx2.AsyncClient(base_url=through.url, trust_env=False) as client:
        answer = await client.post(
            "/api/webhooks/gitea?repo=gitea.example.org%2Fteam%2Ftools", content=body, headers=gitea(body)
        )
    assert (answer.status_code, answer.json()["status"]) == (202, "accepted")
    ((_, headers, raw, repo),) = through.hooks.taken
    assert raw == body
    assert repo == "gitea.example.org/team/tools"
    for name in ("x-gitea-event", "x-gitea-delivery", "x-gitea-signature", "x-github-event", "content-type"):
        assert headers[name] == gitea(body)[name], name


@pytest.mark.parametrize("sent", bodies.ALL, ids=lambda sent: sent.found.get("event_name", ""))
async def test_all_headers_that_are_read_are_passed_on(through, sent):
    """What the reader makes of a hook is the same with and without an aggregator in between."""
    extra = {"x-gitlab-token": SECRET, "x-gitee-token": SECRET, "webhook-id": "w", "webhook-timestamp": "1"}
    extra |= {"webhook-signature": "v1,x", "x-forgejo-signature": gitea_signature(SECRET, sent.body)}
    headers = sent.headers | extra | ELSEWHERE
    async with httpx2.AsyncClient(base_url=through.url, trust_env=False) as client:
        answer = await client.post(f"/api/webhooks/{sent.forge.value}", content=sent.body, headers=headers)
    assert answer.status_code in (200, 202)
    ((_, arrived, raw, _),) = through.hooks.taken
    assert read(sent.forge, arrived, raw) == read(sent.forge, headers, sent.body)
    for name in extra:
        assert arrived[name] == headers[name]


async def test_refusals_come_back_as_they_are(through):
    async with httpx2.AsyncClient(base_url=through.url, trust_env=False) as client:
        wrong = await client.post("/api/webhooks/gitea", content=PUSH.body, headers=gitea(secret="no"))
        assert (wrong.status_code, wrong.json()["type"]) == (403, "/problems/hook-refused")
        cut = await client.post("/api/webhooks/gitea", content=PUSH.body[:-9], headers=gitea())
        assert cut.status_code == 400
        large = await client.post("/api/webhooks/gitea", content=b" " * 25_000_001, headers=gitea())
        assert large.status_code == 413
        other = await client.post("/api/tasks", json={}, headers=ELSEWHERE)
        assert other.status_code == 403, "only hooks may come under any name"


async def test_a_whole_gitlab_is_one_address_and_takes_nothing_from_users(through):
    through.hooks.gate.clear()
    async with httpx2.AsyncClient(base_url=through.url, trust_env=False, timeout=20) as client:
        hooks = [
            asyncio.create_task(client.post("/api/webhooks/gitea", content=PUSH.body, headers=gitea()))
            for _ in range(60)
        ]
        async with asyncio.timeout(20):
            while len(through.seen) < 60:
                await asyncio.sleep(0.01)
        token = {"Authorization": "Bearer em_operator"}
        asked = await client.put("/api/tasks", headers=token)
        assert asked.status_code == 405, "answered, though 60 hooks wait"
        through.hooks.gate.set()
        assert {a.status_code for a in await asyncio.gather(*hooks)} == {202}


async def test_who_sends_slowly_takes_no_place_from_others():
    pair = HookPair(names=("mirror.example.org",), pass_on=PassOnSettings(hooks=1))
    async with pair.running():
        host, port = pair.url.removeprefix("http://").split(":")
        _, slow = await asyncio.open_connection(host, int(port))
        slow.write(b"POST /api/webhooks/gitea HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        await slow.drain()
        async with httpx2.AsyncClient(base_url=pair.url, trust_env=False) as client:
            for _ in range(3):
                answer = await client.post("/api/webhooks/gitea", content=PUSH.body, headers=gitea())
                assert answer.status_code == 202
        slow.close()


async def test_hooks_leave_what_is_kept_for_readers(through, monkeypatch):
    monkeypatch.setattr(kept, "FRESH_S", 60.0)  # a busy machine is slow
    token = {"Authorization": "Bearer em_reader"}
    async with httpx2.AsyncClient(base_url=through.url, trust_env=False) as client:
        await client.get("/api/version", headers=token)
        reads = sum(seen.method == "GET" for seen in through.seen)
        await client.post("/api/webhooks/gitea", content=PUSH.body, headers=gitea())
        await client.get("/api/version", headers=token)
        assert sum(seen.method == "GET" for seen in through.seen) == reads


async def test_a_hook_while_the_coordinator_is_away_is_503_with_a_time(through):
    await through.stop()
    body = PUSH.body
    headers = {"x-github-event": "push", "x-hub-signature-256": github_signature(SECRET, body)}
    async with httpx2.AsyncClient(base_url=through.url, trust_env=False) as client:
        answer = await client.post("/api/webhooks/github", content=body, headers=headers)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
