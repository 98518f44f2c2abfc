"""A hostile worker in a real fleet: what it claims, keeps or was given once opens no private repository.

Everything is real but the spy: a coordinator with gRPC and tokens, a worker with git, an aggregator's relay.
The spy speaks the protocol as it likes, and reads through the relay with whatever it was ever given.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from evermirror.edge.relay.ask import HolderAway, HolderLacks, HolderRefused
from evermirror.edge.relay.asking import AskingLines
from evermirror.edge.relay.holder_refs import holder_refs
from evermirror.edge.relay.limits import ServingLimits
from evermirror.edge.relay.seal import PASS_S, TICKET_S, Unsealer
from evermirror.edge.relay.serving import ServingLines
from evermirror.model.access import Role, TokenRecord
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.messages import AssignRepos, LookAt
from evermirror.model.relay import Denial, Source, worker_node_id
from evermirror.model.repo import RepoKey
from evermirror.model.wire import Access, AskSource, Ordered
from evermirror.nodes.supervisor import Supervisor
from tests.support.aggregation import Aggregation
from tests.support.followers import House, Worker, house_at
from tests.support.upstream import UpstreamServer

FALSE = "ab" * 32
SPY = 66  # its token's number where it comes without gRPC


@pytest.fixture
def fleet(tmp_path: Path, upstream: UpstreamServer) -> Aggregation:
    return Aggregation(tmp_path, upstream)


def house_of(fleet: Aggregation) -> House:
    assert fleet.lead is not None
    assert fleet.doorway.server is not None
    return House(fleet.lead, fleet.doorway.server)


def spying(fleet: Aggregation, *claims: str):
    """An untrusted worker that claims to hold these."""
    return house_of(fleet).worker(SPY, "spy", holds=dict.fromkeys(claims, FALSE), trusted=False, grpc=True)


def sources(spy: Worker, key: str) -> list[Source]:
    """All that it was given to read this repo with."""
    orders = [o.command for o in spy.all(Ordered) if isinstance(o.command, AssignRepos | LookAt)]
    return [source for order in orders for source in order.sources if source.key == key]


async def given(spy: Worker, key: str, seen: int = 0) -> Source:
    async with asyncio.timeout(30):
        while len(sources(spy, key)) <= seen:
            await asyncio.sleep(0.01)
    return sources(spy, key)[seen]


async def read(spy: Worker, source: Source) -> str:
    """The tip of main, read from the holder through the relay as git would."""
    access = spy.all(Access)[-1]
    lines = AskingLines()
    lines.set_access(access)
    try:
        return str((await holder_refs(lines, source, access.pass_)).refs["refs/heads/main"])
    finally:
        lines.close()


@contextlib.asynccontextmanager
async def serving(access: Access) -> AsyncIterator[ServingLines]:
    """The spy waits at the relays to be read from."""
    lines = ServingLines(None, ServingLimits(pause_first_s=0.05, pause_last_s=0.2))
    lines.set_access(access)
    async with Supervisor().running("lines", lines.run):
        yield lines


# Claims


async def test_a_claimed_private_repo_is_neither_told_nor_opened(fleet):
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator() as node:
        secret, hidden = await fleet.add("secret", private=True)
        public, shown = await fleet.add("public")
        await fleet.until_here(node, hidden, shown)
        async with spying(fleet, hidden, shown, f"{fleet.upstream.host}/no-such") as spy:
            assert await read(spy, await given(spy, shown)) == public.tip()
            before = len(sources(spy, shown))
            await moved(node, hidden, secret)
            await moved(node, shown, public)
            assert await read(spy, await given(spy, shown, before)) == public.tip()
            assert hidden not in repr(spy.heard)
            assert "no-such" not in repr(spy.heard)
            holders = await fleet.lead.lead.coordinator.holders(hidden)
            assert [holder.worker for holder in holders] == ["w1"]
            for stolen in sources(spy, shown):
                with pytest.raises(HolderRefused):
                    await read(spy, replace(stolen, key=RepoKey(hidden)))


async def test_a_new_ticket_is_given_for_what_the_worker_was_given_and_nothing_else(tmp_path):
    relay = {"in_coordinator": True}
    async with (
        house_at(tmp_path / "data", fleet={"replicas": 2}, relay=relay) as house,
        house.worker(1, "trusted") as trusted,
        house.worker(SPY, "spy", trusted=False) as spy,
    ):
        keys = {name: f"example.org/team/{name}" for name in ("public", "private", "no-such")}
        await house.add(keys["public"])
        await house.lead.coordinator.add_url(f"https://{keys['private']}", {"private": True}, actor="test")
        await trusted.until_assigned(keys["public"], keys["private"])
        await spy.until_assigned(keys["public"])
        for key in (keys["public"], keys["private"]):
            await trusted.synced(key, FALSE, first=True)
        await trusted.settle()
        for key in (keys["private"], keys["no-such"], keys["public"]):
            await spy.say(AskSource(RepoKey(key)))

        def answers() -> list[LookAt]:
            looks = [o.command for o in spy.all(Ordered) if isinstance(o.command, LookAt)]
            return [look for look in looks if not look.keys]

        await house.until(lambda: bool(answers()))
        (answer,) = answers()
        assert [source.key for source in answer.sources] == [keys["public"]]
        assert keys["private"] not in repr(spy.heard)


async def test_a_repo_that_becomes_private_is_hidden_though_the_audit_log_fails(tmp_path, monkeypatch):
    async with house_at(tmp_path / "data", fleet={"replicas": 2}) as house:
        coordinator, machine = house.lead.coordinator, house.lead.fleet.machine
        key = RepoKey("example.org/team/a")
        async with house.worker(1, "trusted") as trusted, house.worker(SPY, "spy", trusted=False) as spy:
            await house.add(key)
            await trusted.until_assigned(key)
            await spy.until_assigned(key)
            (spying,) = (w.record.id for w in machine.workers() if w.record.facts.name == "spy")
            assert machine.may_read(key, spying)

            async def no_audit(*args: object) -> None:
                raise FailureError(Failure(FailureKind.UNKNOWN, "the database is away"))

            with monkeypatch.context() as patched:
                patched.setattr(coordinator._store, "audit", no_audit)
                with pytest.raises(FailureError):
                    await coordinator.add_url(f"https://{key}", {"private": True}, actor="test")
            assert not machine.may_read(key, spying)
            assert key in coordinator.unassigned
            for minute in (1, 2):
                await coordinator._assigning.catch_up(time.monotonic() + 100 * minute, coordinator.changing)
            assert key not in coordinator.unassigned, "nobody had to repeat the change"


async def moved(node, key, repo) -> None:
    """A push arrives at the aggregator: whoever follows the repo is told of it, too."""
    tip = await asyncio.to_thread(repo.commit)
    async with asyncio.timeout(40):
        while (row := await node.side.store.row_of(RepoKey(key))) is None or row.here is None:
            await asyncio.sleep(0.01)
        mirror = node.side.mirrors
        while str((await mirror.read_refs(RepoKey(key))).refs.get("refs/heads/main")) != tip:
            await asyncio.sleep(0.02)


# Tickets and passes end with their reason


async def test_a_ticket_opens_nothing_once_its_repo_is_private(fleet):
    async with fleet.coordinator(), fleet.worker("w1") as holder, fleet.aggregator() as node:
        repo, key = await fleet.add("one")
        await fleet.until_here(node, key)
        async with spying(fleet, key) as spy:
            source = await given(spy, key)
            assert await read(spy, source) == repo.tip()
            await fleet.register(repo.url, private=True)
            async with asyncio.timeout(30):
                while holder.is_public(RepoKey(key)):
                    await asyncio.sleep(0.01)
            with pytest.raises(HolderLacks, match="not held here"):
                await read(spy, source)
            before = len(sources(spy, key))
            await moved(node, key, repo)
            with pytest.raises(HolderLacks):
                await read(spy, source)
            assert len(sources(spy, key)) == before


async def test_a_ticket_lasts_a_quarter_of_an_hour_and_says_whether_its_bearer_is_trusted(fleet):
    async with (
        fleet.coordinator(fleet={"replicas": 2}) as lead,
        fleet.worker("w1"),
        fleet.aggregator() as node,
    ):
        _, key = await fleet.add("one")
        await fleet.until_here(node, key)
        for name, trusted in (("spy", False), ("friend", True)):
            joining = house_of(fleet).worker(SPY + trusted, name, holds={key: FALSE}, trusted=trusted)
            async with joining as worker:
                source, access = await given(worker, key), await worker.next(Access)
                unsealer, now = Unsealer(access.seal_key), 0.0
                ticket = unsealer.read_ticket(source.ticket, now)
                assert ticket.trusted is unsealer.read_pass(access.pass_, now).trusted is trusted
                assert ticket.until <= lead.lead.passes._utc() + TICKET_S
    assert TICKET_S <= 15 * 60


async def test_a_worker_in_quarantine_loses_its_lines_and_gets_no_pass_until_it_is_out(fleet):
    async with fleet.coordinator() as lead, fleet.worker("w1"), fleet.aggregator() as node:
        repo, key = await fleet.add("one")
        await fleet.until_here(node, key)
        async with spying(fleet, key) as spy:
            source, access = await given(spy, key), await spy.next(Access)
            relay = node.side.reaching.reach
            async with serving(access):
                await fleet.until(lambda: true(relay.reachable(access.node)))
                await lead.lead.admin.quarantine("spy", "it lies", actor="test")
                await fleet.until(lambda: true(not relay.reachable(access.node)))
                with pytest.raises(HolderRefused, match="not let in"):
                    await read(spy, source)
                had = len(spy.all(Access))
                await lead.lead.feeds._renew()
                await lead.lead.fleet.settled()
                assert lead.lead.passes.of_worker(spy.number) is None
                assert not relay.reachable(access.node)
                assert len(spy.all(Access)) == had
                await lead.lead.admin.resume("spy", actor="test")
                await spy.next(Access, had)
                await fleet.until(lambda: true(relay.reachable(access.node)))
                assert await read(spy, source) == repo.tip()


async def true(holds: bool) -> bool:
    return holds


async def test_a_worker_whose_token_is_revoked_loses_its_lines_and_its_pass(fleet):
    short = {"grace": "2s"}  # revoked tokens are looked for ten times as often
    async with fleet.coordinator(fleet=short) as lead, fleet.worker("w1"), fleet.aggregator() as node:
        repo, key = await fleet.add("one")
        await fleet.until_here(node, key)
        async with spying(fleet, key) as spy:
            source, access = await given(spy, key), await spy.next(Access)
            assert await read(spy, source) == repo.tip()
            relay = node.side.reaching.reach
            async with serving(access):
                await fleet.until(lambda: true(relay.reachable(access.node)))
                await lead.lead.store.revoke_token("spy")
                await fleet.until(lambda: true(not relay.reachable(access.node)))
                with pytest.raises((HolderRefused, HolderAway)):
                    await read(spy, source)
                assert lead.lead.passes.of_worker(spy.number) is None
                await lead.lead.admin.quarantine("spy", "gone", actor="test")
                await lead.lead.admin.resume("spy", actor="test")
                assert lead.lead.passes.of_worker(spy.number) is None, "it never comes back"


async def test_who_was_revoked_in_an_outage_of_the_database_is_shut_out_until_its_last_pass_ends(
    tmp_path, monkeypatch
):
    async with house_at(tmp_path / "data") as house, house.worker(SPY, "spy", trusted=False) as spy:
        feeds, passes, now = house.lead.feeds, house.lead.passes, time.time()
        node = (await spy.next(Access)).node
        record = house.lead.fleet.machine.record(house.lead.fleet.worker_of(SPY))
        assert worker_node_id(record) == node
        revoked = TokenRecord(SPY, "spy", Role.WORKER, False, now, revoked_at=now + 60.0)
        later, away = now + 2 * PASS_S, True

        async def since(at: float) -> list[TokenRecord]:
            if away:
                raise FailureError(Failure(FailureKind.UNKNOWN, "the database is away"))
            return [revoked] if revoked.revoked_at >= at else []

        monkeypatch.setattr(feeds._store, "tokens_revoked_since", since)
        for clocked in (feeds, passes):
            monkeypatch.setattr(clocked, "_utc", lambda: later)
        await feeds._shut_out_revoked()
        assert passes.denials() == ()
        away = False
        await feeds._shut_out_revoked()
        assert passes.denials() == (Denial(node, later + PASS_S),)
        await feeds._shut_out_revoked()
        assert passes.denials() == (Denial(node, later + PASS_S),), "it is no news, and ends when it did"


async def test_a_relay_in_the_coordinator_drops_who_is_quarantined(tmp_path):
    async with (
        house_at(tmp_path / "data", relay={"in_coordinator": True}) as house,
        house.worker(SPY, "spy", trusted=False) as spy,
        serving(await spy.next(Access)) as lines,
    ):
        await house.until(lambda: bool(lines.connected))
        await house.lead.admin.quarantine("spy", "it lies", actor="test")
        await house.until(lambda: not lines.connected)
        await house.lead.admin.resume("spy", actor="test")
        await house.until(lambda: bool(lines.connected))


async def test_who_was_shut_out_is_so_after_a_restart_and_relays_hear_of_it_when_they_come(tmp_path):
    async with house_at(tmp_path / "data") as house:
        nodes = {}
        for number, name in enumerate(("spy", "leaver"), 1):
            async with house.worker(number, name, trusted=False) as worker:
                nodes[name] = (await worker.next(Access)).node
        await house.lead.admin.quarantine("spy", "it lies", actor="test")
        await house.lead.admin.retire("leaver", actor="test")
    async with house_at(tmp_path / "data") as house, house.aggregator() as front:
        denied = (await front.next(Access)).denied
        assert {one.node for one in denied} == set(nodes.values())
        async with house.worker(1, "spy", trusted=False) as spy:
            await spy.settle()
            assert spy.all(Access) == []
        await house.lead.admin.resume("spy", actor="test")
        await house.until(lambda: {d.node for d in front.all(Access)[-1].denied} == {nodes["leaver"]})


async def test_who_is_shut_out_is_told_to_aggregators_and_to_no_worker(tmp_path):
    async with (
        house_at(tmp_path / "data") as house,
        house.aggregator() as front,
        house.worker(1, "spy") as spy,
        house.worker(2, "other") as other,
    ):
        node = (await spy.next(Access)).node
        await other.next(Access)
        await house.lead.admin.quarantine("spy", "it lies", actor="test")
        await house.until(lambda: any(a.denied for a in front.all(Access)))
        assert [d.node for d in front.all(Access)[-1].denied] == [node]
        await house.lead.feeds._renew()
        await other.next(Access, 1)
        assert not any(access.denied for access in other.all(Access))
