"""An aggregator asks the coordinator whose a token is, and believes it for a while when that is away."""

from __future__ import annotations

import httpx2
import pytest

from evermirror.faces.api.problems import ApiProblem
from evermirror.model.access import Role
from evermirror.nodes.aggregator import remote_tokens
from evermirror.nodes.aggregator.remote_tokens import RemoteTokens

TOKEN = "em_" + "t" * 43
OTHER = "em_" + "o" * 43


class Coordinator:
    """Answers as the coordinator's API does; ``status`` None: not at all."""

    def __init__(self) -> None:
        self.status: int | None = 200
        self.asked: list[str] = []
        self.now = 0.0

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(f"{request.url} {request.headers['Authorization']}")
        if self.status is None:
            raise httpx2.ConnectError("away")
        return httpx2.Response(self.status)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
async def tokens(coordinator):
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(coordinator.answer)) as client:
        yield RemoteTokens(client, lambda: "http://c:1", lambda: coordinator.now)


async def test_what_the_coordinator_accepts_may_read_and_nothing_else(coordinator, tokens):
    found = await tokens.find_token(TOKEN)
    assert found is not None
    assert found.role is Role.READER
    assert coordinator.asked == [f"http://c:1/api/version Bearer {TOKEN}"]
    coordinator.status = 401
    assert await tokens.find_token(TOKEN) is None
    coordinator.status = 403
    with pytest.raises(ApiProblem, match="for a worker or an aggregator"):
        await tokens.find_token(TOKEN)
    coordinator.status = None
    with pytest.raises(ApiProblem, match="does not answer"):
        await tokens.find_token(TOKEN)  # that it was accepted once counts no more


async def test_while_it_is_away_only_what_it_accepted_lately_counts(coordinator, tokens):
    await tokens.find_token(TOKEN)
    for trouble in (None, 500, 429, 302):
        coordinator.status = trouble
        assert await tokens.find_token(TOKEN) is not None
        with pytest.raises(ApiProblem) as told:
            await tokens.find_token(OTHER)
        assert told.value.kind.status == 503
    coordinator.now += remote_tokens.AWAY_S + 1
    with pytest.raises(ApiProblem):
        await tokens.find_token(TOKEN)
    coordinator.status = 401
    assert await tokens.find_token(TOKEN) is None


async def test_before_the_coordinator_is_known_nobody_is_asked(coordinator):
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(coordinator.answer)) as client:
        with pytest.raises(ApiProblem):
            await RemoteTokens(client, lambda: "").find_token(TOKEN)
    assert coordinator.asked == []


async def test_what_was_heard_of_a_token_that_was_passed_on_counts_too(coordinator, tokens):
    coordinator.status = None
    tokens.heard(f"Basic {TOKEN}", True)
    with pytest.raises(ApiProblem):
        await tokens.find_token(TOKEN)
    tokens.heard(f"Bearer {TOKEN}.fingerprint", True)
    assert await tokens.find_token(TOKEN) is not None
    tokens.heard(f"bearer {TOKEN}", False)
    with pytest.raises(ApiProblem):
        await tokens.find_token(TOKEN)


async def test_it_says_who_asks_and_a_refused_pass_says_nothing_about_the_token():
    seen = []

    def answer(request):
        seen.append(request.headers["x-evermirror-via"])
        return httpx2.Response(403, headers={"X-Evermirror-Via": "refused"})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        tokens = RemoteTokens(client, lambda: "http://c:1", show=lambda: {"x-evermirror-via": "pass"})
        tokens.heard(f"Bearer {TOKEN}", True)
        assert await tokens.find_token(TOKEN) is not None
    assert seen == ["pass"]


@pytest.mark.parametrize("text", ["hunter2", "em_short", "em_" + "x" * 44, "em_" + "." * 43])
async def test_what_cannot_be_a_token_is_not_told_to_the_coordinator(coordinator, tokens, text):
    assert await tokens.find_token(text) is None
    assert coordinator.asked == []
