"""What hooks may add to the catalog: nothing that nobody vouched for, nothing elsewhere, and not too much."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from evermirror.core.hooks.secrets import Secrets
from evermirror.errors import UsageError
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.forge import Forge
from evermirror.model.hook import Hook, HookAnswer, HookEnd, HookKind
from evermirror.model.repo import RepoKey
from evermirror.model.url import UrlRules, parse_url
from evermirror.nodes.coordinator.hooks import hook_additions
from evermirror.nodes.coordinator.hooks.hook_additions import ADDED_BURST, DAY_S, QUEUE_MAX, HookAdditions
from evermirror.nodes.coordinator.hooks.hook_checking import Vouched

SECRET = "some secret of somebody"


class Catalog:
    """``hosts`` have a repo in it; ``refusal`` is raised in place of adding; ``gate`` holds it up."""

    def __init__(self) -> None:
        self.added: list[str] = []
        self.hosts: set[str] = set()
        self.refusal: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def has_host(self, host: str) -> bool:
        return host in self.hosts

    async def add(self, url: str, *, actor: str) -> RepoKey:
        await self.gate.wait()
        if self.refusal is not None:
            raise self.refusal
        self.added.append(url)
        return key_of(url)


def key_of(url: str) -> RepoKey:
    return parse_url(url, UrlRules()).key


class Adding:
    def __init__(self) -> None:
        self.catalog = Catalog()
        self.now = 0.0
        self.additions = HookAdditions(self.catalog, key_of, lambda: self.now)
        self.additions.configure(Secrets({"own.example.org": (SECRET,)}, {}), is_on=True)

    def offer(
        self, *urls: str, forge: Forge = Forge.GITHUB, signed_for: tuple[RepoKey, ...] = ()
    ) -> asyncio.Future[HookAnswer | None]:
        hook = Hook(forge, HookKind.MOVED, "push", "1", urls)
        answer: asyncio.Future[HookAnswer | None] = asyncio.get_running_loop().create_future()
        keys = signed_for or tuple(key_of(url) for url in urls)
        self.additions.offer(Vouched(hook, keys), answer.set_result)
        return answer

    async def end(self, *urls: str, forge: Forge = Forge.GITHUB) -> HookEnd:
        answer = await self.offer(*urls, forge=forge)
        assert answer is not None
        return answer.end


@pytest.fixture
async def adding() -> AsyncIterator[Adding]:
    adding = Adding()
    running = asyncio.create_task(adding.additions.run())
    yield adding
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_only_addresses_that_the_hook_is_signed_for_are_added(adding: Adding) -> None:
    adding.catalog.hosts = {"bank.example.org", "small.example.org"}
    bank, small = "https://bank.example.org/payroll/core.git", "https://small.example.org/x/y"
    answer = await adding.offer(bank, small, signed_for=(key_of(small),))
    assert answer == HookAnswer(HookEnd.ADDED, key_of(small))
    assert adding.catalog.added == [small]
    answer = await adding.offer(bank, signed_for=(RepoKey("small.example.org/other"),))
    assert answer is not None
    assert (answer.end, answer.reason) == (HookEnd.IGNORED, "no address of it is allowed")


@pytest.mark.parametrize(
    ("host", "forge", "end"),
    [
        ("github.com", Forge.GITHUB, HookEnd.ADDED),
        ("gitlab.com", Forge.GITLAB, HookEnd.ADDED),
        ("github.com", Forge.GITEA, HookEnd.IGNORED),
        ("gitlab.com", Forge.GITHUB, HookEnd.IGNORED),
        ("own.example.org", Forge.GITEA, HookEnd.ADDED),  # has a secret of its own
        ("known.example.org", Forge.GITEA, HookEnd.ADDED),  # has a repo in the catalog
        ("strange.example.org", Forge.GITEA, HookEnd.IGNORED),
        ("own.example.org:8443", Forge.GITEA, HookEnd.IGNORED),
    ],
)
async def test_only_hosts_of_the_forge_or_known_to_us_are_added_at(
    adding: Adding, host: str, forge: Forge, end: HookEnd
) -> None:
    adding.catalog.hosts = {"known.example.org", "github.com", "gitlab.com"}
    assert await adding.end(f"https://{host}/team/one.git", forge=forge) is end
    assert len(adding.catalog.added) == (end is HookEnd.ADDED)


async def test_so_many_at_once_and_so_many_a_day(adding: Adding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_additions, "ADDED_DAY", 50)
    adding.additions = HookAdditions(adding.catalog, key_of, lambda: adding.now)
    adding.additions.configure(Secrets(), is_on=True)
    running = asyncio.create_task(adding.additions.run())

    async def added(offered: int, apart_s: float) -> int:
        ends = []
        for n in range(offered):
            adding.now += apart_s
            ends.append(await adding.end(f"https://github.com/team/n{adding.now:g}-{n}"))
        return ends.count(HookEnd.ADDED)

    assert await added(40, 0.0) == ADDED_BURST
    assert await added(40, 100.0) == 50 - ADDED_BURST
    adding.now = DAY_S + 1
    assert await added(40, 0.0) == ADDED_BURST
    running.cancel()


async def test_what_is_refused_or_cannot_be_stored_spends_nothing_and_holds_up_nobody(adding: Adding) -> None:
    adding.catalog.refusal = UsageError("this address is not allowed")
    answer = await adding.offer("https://github.com/team/a")
    assert answer == HookAnswer(HookEnd.IGNORED, RepoKey("github.com/team/a"), "this address is not allowed")
    for refusal in (FailureError(Failure(FailureKind.NETWORK_TIMEOUT, "away")), KeyError("a bug")):
        adding.catalog.refusal = refusal
        assert await adding.offer("https://github.com/team/a") is None, "to be sent again"
    adding.catalog.refusal = None
    assert await adding.end("https://github.com/team/a") is HookEnd.ADDED


async def test_the_queue_is_bounded_and_nobody_waits_after_the_end() -> None:
    adding = Adding()
    adding.catalog.gate.clear()
    running = asyncio.create_task(adding.additions.run())
    first = adding.offer("https://github.com/team/first")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    many = [adding.offer(f"https://github.com/team/r{n}") for n in range(QUEUE_MAX + 5)]
    ended = [answer.result() for answer in many if answer.done()]
    assert 4 <= len(ended) <= 5
    assert all(answer is not None and answer.end is HookEnd.IGNORED for answer in ended)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert first.result() is None
    assert all(answer.done() for answer in many)
