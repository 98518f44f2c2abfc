"""Credentials that end or are refused: what is told when forges answer, are away, and after a restart."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from evermirror.core.discover.expiry import DAY_S
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.forge import Forge, TokenFacts
from evermirror.nodes.coordinator.discovery import credential_watch
from evermirror.nodes.coordinator.discovery.credential_watch import CredentialWatch, Use
from tests.support.alert_book import BookAlerts

NOW = 1_800_000_000.0
A, B = Use("tok", Forge.GITLAB, "https://a.example"), Use("tok", Forge.GITLAB, "https://b.example")
SOON = TokenFacts("t", (), NOW + 5 * DAY_S)
REFUSED = Failure(FailureKind.AUTH_FAILED, "401 Unauthorized")
AWAY = Failure(FailureKind.NETWORK_TIMEOUT, "no answer")


class World:
    """Forges that answer by their address; alerts that outlast a restart."""

    def __init__(self) -> None:
        self.now = NOW
        self.answers: dict[str, TokenFacts | Failure | ValueError | None] = {}
        self.uses: list[Use] = [A]
        self.alerts = BookAlerts(lambda: self.now)
        self.asked = 0
        self.at_once: set[asyncio.Task[object] | None] = set()
        self.most_at_once = 0

    @contextlib.asynccontextmanager
    async def opened(self, forge: Forge, base_url: str, name: str) -> AsyncIterator[World]:
        self.asked += 1
        task = asyncio.current_task()
        self.at_once.add(task)
        self.most_at_once = max(self.most_at_once, len(self.at_once))
        self.answer = self.answers.get(base_url)
        try:
            yield self
        finally:
            self.at_once.discard(task)

    async def token(self) -> TokenFacts | None:
        answer = self.answer
        await asyncio.sleep(0)
        if isinstance(answer, Failure):
            raise FailureError(answer)
        if isinstance(answer, ValueError):
            raise answer
        return answer

    def started(self, **dates: float) -> CredentialWatch:
        return CredentialWatch(self, lambda: self.uses, dates, self.alerts, lambda: self.now)  # type: ignore[arg-type]

    async def looked(self, watch: CredentialWatch) -> list[str]:
        await watch.ask()
        watch.tell()
        return [alert.kind for alert in self.alerts.standing]


@pytest.mark.parametrize(("before", "kind"), [(SOON, "credential-expiring"), (REFUSED, "credential-refused")])
async def test_what_was_told_stays_after_a_restart_until_the_forge_answers(before, kind):
    world = World()
    world.answers = {A.base_url: before}
    assert await world.looked(world.started()) == [kind]
    world.answers = {A.base_url: AWAY}
    again = world.started()
    again.tell()
    assert await world.looked(again) == [kind], "nobody knows that it is over"
    world.answers = {A.base_url: None}
    assert await world.looked(again) == []


async def test_nothing_is_told_of_a_credential_that_nobody_uses_any_more():
    world = World()
    world.answers = {A.base_url: SOON, B.base_url: REFUSED}
    world.uses = [A, B]
    watch = world.started()
    assert sorted(await world.looked(watch)) == ["credential-expiring", "credential-refused"]
    world.uses = [A]
    assert await world.looked(watch) == ["credential-expiring"]
    world.uses = []
    assert await world.looked(watch) == []
    assert watch.expiries() == {}
    assert await world.looked(world.started(tok=NOW + DAY_S)) == ["credential-expiring"], (
        "the settings say it"
    )


async def test_a_credential_that_one_of_two_forges_refuses_is_told():
    for answers in ({A.base_url: REFUSED}, {B.base_url: REFUSED}):
        world = World()
        world.uses, world.answers = [A, B], dict(answers)
        watch = world.started()
        assert await world.looked(watch) == ["credential-refused"]
        assert next(iter(answers)) in world.alerts.standing[0].text
        world.answers = {}
        assert await world.looked(watch) == []


async def test_the_first_end_counts_where_two_forges_tell_one():
    world = World()
    world.uses = [A, B]
    world.answers = {A.base_url: TokenFacts("t", (), NOW + 9 * DAY_S), B.base_url: SOON}
    watch = world.started(tok=NOW + DAY_S, other=NOW + DAY_S)
    await watch.ask()
    assert watch.expiries() == {"tok": NOW + 5 * DAY_S, "other": NOW + DAY_S}


class Minutes:
    """A watch that runs, in a world where a minute passes when it is said."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self._go, self._slept, self._real = asyncio.Event(), asyncio.Event(), asyncio.sleep
        monkeypatch.setattr(credential_watch, "FIRST_S", 0.0)
        monkeypatch.setattr(credential_watch.asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        if seconds != credential_watch.LOOK_S:
            await self._real(seconds)
            return
        self._slept.set()
        await self._go.wait()
        self._go.clear()
        self.world.now += seconds

    @contextlib.asynccontextmanager
    async def running(self, watch: CredentialWatch) -> AsyncIterator[None]:
        work = asyncio.create_task(watch.run())
        try:
            await self._slept.wait()
            yield
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def pass_(self, minutes: int) -> int:
        """How many questions there were until then."""
        for _ in range(minutes):
            self._slept.clear()
            self._go.set()
            await self._slept.wait()
        return self.world.asked


async def test_a_forge_that_was_away_is_asked_again_in_an_hour_and_others_in_a_day(monkeypatch):
    world = World()
    world.uses, world.answers = [A, B], {A.base_url: AWAY}
    time = Minutes(world, monkeypatch)
    async with time.running(world.started()):
        assert world.asked == 2
        assert await time.pass_(59) == 2
        assert await time.pass_(1) == 3
        world.answers = {A.base_url: SOON}
        assert await time.pass_(60) == 4
        assert [alert.kind for alert in world.alerts.standing] == ["credential-expiring"]
        assert await time.pass_(22 * 60 - 1) == 4
        assert await time.pass_(2 * 60 + 1) == 6


async def test_a_new_use_is_asked_in_a_minute_and_one_that_ended_is_told_no_more(monkeypatch):
    world = World()
    world.uses, world.answers = [], {A.base_url: TokenFacts("t", (), NOW + 3600.0)}
    time = Minutes(world, monkeypatch)
    async with time.running(world.started()):
        assert world.asked == 0
        world.uses = [A]
        assert await time.pass_(1) == 1
        assert [alert.kind for alert in world.alerts.standing] == ["credential-expiring"]
        world.uses = []
        await time.pass_(1)
        assert not world.alerts.standing


async def test_what_a_run_found_refused_is_asked_at_once_and_a_refusal_hourly(monkeypatch):
    world = World()
    time = Minutes(world, monkeypatch)
    suspected: list[tuple[Use, float]] = []
    watch = world.started()
    watch.suspected = lambda: suspected
    async with time.running(watch):
        assert await time.pass_(10) == 1
        world.answers = {A.base_url: REFUSED}
        suspected = [(A, world.now + 1.0), (A, NOW - 9.0)]
        assert await time.pass_(1) == 2
        assert [alert.kind for alert in world.alerts.standing] == ["credential-refused"]
        assert await time.pass_(59) == 2, "one run, one question"
        world.answers = {}
        assert await time.pass_(1) == 3
        assert not world.alerts.standing


async def test_an_answer_that_we_cannot_read_does_not_end_the_watch():
    world = World()
    world.uses, world.answers = [A, B], {A.base_url: ValueError("our mistake"), B.base_url: REFUSED}
    assert await world.looked(world.started()) == ["credential-refused"]
    assert "b.example" in world.alerts.standing[0].text


async def test_many_forges_are_asked_side_by_side_and_not_all_at_once():
    world = World()
    world.uses = [Use("tok", Forge.GITLAB, f"https://g{n}.example") for n in range(500)]
    await world.started().ask()
    assert world.asked == credential_watch.USES_MAX
    assert 1 < world.most_at_once <= credential_watch.AT_ONCE
