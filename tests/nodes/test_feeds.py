"""Aggregators at a running coordinator: told what changes, believed about what they hold, bounded in harm."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace

import httpx2
import pytest

from evermirror.core.fleet import aggregators
from evermirror.core.fleet.decisions import AlertKind
from evermirror.core.fleet.events import UnreachedTold
from evermirror.edge.relay.certificate import own_certificate
from evermirror.edge.relay.limits import ServingLimits
from evermirror.edge.relay.seal import Unsealer
from evermirror.edge.relay.server import RelayServer
from evermirror.edge.relay.serving import ServingLines
from evermirror.edge.rpc.transport import Identity, PeerGone
from evermirror.edge.store.store import Store
from evermirror.model.access import Role
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.messages import Failed, HeldRepo, LookAt
from evermirror.model.refs import short_digest
from evermirror.model.relay import Denial, RelayAddress
from evermirror.model.repo import Host, RepoRecord, RepoSpec
from evermirror.model.wire import (
    PROTOCOL,
    Access,
    Accused,
    AskHolders,
    Changes,
    Doubted,
    Follow,
    Followed,
    Have,
    Hello,
    Holders,
    Holding,
    Lack,
    Ordered,
    Rejected,
)
from evermirror.model.worker import Duty, Liveness
from evermirror.nodes import clock
from evermirror.nodes.clock import STEP_S
from evermirror.nodes.coordinator.aggregators import accusing, feed, feeds
from evermirror.nodes.supervisor import Supervisor
from tests.support.followers import house_at

A, B = "example.org/team/a", "example.org/team/b"
OLD, NEW, OTHER = "ab" * 32, "cd" * 32, "ef" * 32
RELAY = RelayAddress("relay.example.org:9473", "12" * 32)


@pytest.fixture
async def house(tmp_path):
    async with house_at(tmp_path / "data") as house:
        yield house


@pytest.fixture
async def two_copies(tmp_path):
    async with house_at(tmp_path / "data", fleet={"replicas": 2}) as house:
        yield house


@pytest.fixture(params=[False, True], ids=["in-process", "grpc"])
def grpc(request):
    return request.param


def node_named(house, name):
    return next(w.node for w in house.lead.admin.look().workers if w.name == name)


def record(key):
    return RepoRecord(RepoSpec(key, f"https://{key}.git", Host("example.org")))


# Changes


async def test_a_push_is_told_with_who_holds_it(house, grpc):
    async with (
        house.worker(1, "attic", operator="alice", grpc=grpc) as worker,
        house.aggregator(grpc=grpc) as front,
    ):
        await house.add(A)
        await worker.until_assigned(A)
        await worker.synced(A, OLD, at=1000.0, first=True)
        await house.until(lambda: any(c.digest for f in front.all(Changes) for c in f.items))
        change = front.all(Changes)[-1].items[-1]
        assert (change.key, change.digest, change.size_bytes) == (A, OLD, 77)
        (holder,) = change.holders
        assert holder.node == node_named(house, "attic")
        assert (holder.name, holder.trusted, holder.operator) == ("attic", True, "alice")
        assert (holder.primary, holder.digest, holder.verified_at) == (True, OLD, 1000.0)


async def test_a_change_is_told_at_once(house, grpc, monkeypatch):
    # Only what is woken is in time: of itself neither the feed looks nor the recorder writes.
    monkeypatch.setattr(feed, "LOOK_S", 600.0)
    monkeypatch.setattr(house.lead.recorder, "_flush_s", 600.0)
    async with house.worker(1, "attic", grpc=grpc) as worker, house.aggregator(grpc=grpc) as front:
        await house.add(A)
        await worker.until_assigned(A)
        for n in range(15):
            digest = f"{n + 16:02x}" * 32
            await worker.synced(A, digest, at=1000.0 + n)
            async with asyncio.timeout(30):
                while not any(c.digest == digest for f in front.all(Changes) for c in f.items):
                    await front.next(Changes, seen=len(front.all(Changes)))


async def test_everything_is_told_to_who_begins_in_parts_that_it_acknowledges(house):
    keys = [f"example.org/{n:04}" for n in range(450)]
    await house.lead.store.upsert_repos([record(key) for key in keys])
    async with house.aggregator(since=None) as front:
        front.acknowledges = False
        await front.say(Follow(0))
        first = await front.next(Changes)
        assert len(first.items) == feed.CHANGES_AT_ONCE
        assert first.upto == first.items[-1].seq
        await asyncio.sleep(0.2)
        assert len(front.all(Changes)) == 1
        front.acknowledges = True
        await front.say(Followed(first.upto))
        await front.until_told(450)
        assert front.told() == keys
    async with house.aggregator(since=front.all(Changes)[1].upto) as again:
        await again.until_told(50)
        assert again.told() == keys[400:]


async def test_a_number_of_another_database_begins_anew(house):
    await house.lead.store.upsert_repos([record(A)])
    async with house.aggregator(since=2**62) as front:
        await front.until_told(1)


async def test_large_changes_go_in_several_frames(house, monkeypatch):
    monkeypatch.setattr(feed, "FRAME_CHARS_MAX", 200)
    await house.lead.store.upsert_repos([record(f"example.org/{n}{'x' * 30}") for n in range(7)])
    async with house.aggregator() as front:
        await front.until_told(7)
        assert len(front.all(Changes)) > 2


async def test_what_was_not_told_cannot_be_acknowledged(house):
    async with house.aggregator() as front:
        await front.say(Followed(17))
        assert "17" in await front.ends()


async def test_guards_and_removals_are_told(house):
    async with house.worker(1, "attic") as worker, house.aggregator() as front:
        await house.add(A)
        await worker.until_assigned(A)
        await worker.synced(A, OLD, first=True)
        held = Failure(FailureKind.CONFLICT, "upstream was emptied")
        await worker.report(Failed(A, (), held, False, 0, 1.0, 1.0, None))
        await house.until(lambda: any(c.held_back for f in front.all(Changes) for c in f.items))
        await house.lead.coordinator.remove_repo(A, actor="test")
        await house.until(lambda: any(c.removed for f in front.all(Changes) for c in f.items))
        assert front.all(Changes)[-1].items[-1].holders == ()


async def test_a_database_in_trouble_is_asked_again(house, monkeypatch):
    monkeypatch.setattr(feed, "PAUSE_S", 0.01)
    failing = True
    since = Store.changes_since

    async def changes_since(self, seq, limit):
        if failing:
            raise FailureError(Failure(FailureKind.UNKNOWN, "the disk is full"))
        return await since(self, seq, limit)

    monkeypatch.setattr(Store, "changes_since", changes_since)
    await house.lead.store.upsert_repos([record(A)])
    async with house.aggregator() as front:
        await asyncio.sleep(0.1)
        assert front.told() == []
        failing = False
        await front.until_told(1)


# Holders


async def test_holders_are_those_that_are_there_with_what_each_reported(two_copies):
    house = two_copies
    async with house.aggregator() as front, house.worker(1, "attic", operator="alice") as one:
        async with house.worker(2, "cellar", trusted=False, operator="bob") as two:
            await house.add(A)
            await one.until_assigned(A)
            await two.until_assigned(A)
            await one.synced(A, OLD, first=True)
            await two.synced(A, OTHER, first=True)
            await one.settle()
            await two.settle()
            await front.say(AskHolders(5, (A, B)))
            answer = await front.next(Holders)
            assert answer.number == 5
            assert [item.key for item in answer.items] == [A, B]
            assert answer.items[1].holders == ()
            found = answer.items[0].holders
            assert {h.name: h.digest for h in found} == {"attic": OLD, "cellar": OTHER}
            assert {h.name: h.trusted for h in found} == {"attic": True, "cellar": False}
            assert {h.name: h.operator for h in found} == {"attic": "alice", "cellar": "bob"}
            assert [h.primary for h in found] == [True, False]
            await house.lead.admin.quarantine("cellar", "it lies", actor="test")
            await front.say(AskHolders(6, (A,)))
            answer = await front.next(Holders, 1)
            assert [h.name for h in answer.items[0].holders] == ["attic"]
        await house.lead.admin.resume("cellar", actor="test")
        await front.say(AskHolders(7, (A,)))
        answer = await front.next(Holders, 2)
        assert [h.name for h in answer.items[0].holders] == ["attic"]


# What it holds


def witness(house, key):
    table = house.lead.fleet.machine._table
    return table.one.witness[table.row_of(key)]


async def test_what_any_of_them_holds_is_witnessed_until_it_is_gone_for_long(house):
    await house.add(A, B)
    async with house.aggregator(90, "front") as front:
        async with house.aggregator(91, "back") as back:
            await front.say(Have((HeldRepo(A, OLD, 1.0), HeldRepo(B, OLD, 1.0))))
            await house.until(lambda: witness(house, B) == short_digest(OLD))
            await back.say(Have((HeldRepo(A, NEW, 1.0), HeldRepo(B, None, 1.0))))
            await house.until(lambda: witness(house, A) == short_digest(NEW))
            await front.say(Lack((A, B)))
            await house.until(lambda: witness(house, B) == 0)
            assert witness(house, A) == short_digest(NEW)
            await front.say(Have((HeldRepo(A, OLD, 1.0), HeldRepo(B, OLD, 1.0))))
            await house.until(lambda: witness(house, B) == short_digest(OLD))
        await asyncio.sleep(0.2)
        assert witness(house, A), "it is away, and not yet for long"
        await house.until(lambda: witness(house, A) == short_digest(OLD))
    await house.until(lambda: witness(house, A) == witness(house, B) == 0)


async def test_who_begins_anew_tells_all_again(house):
    await house.add(A, B)
    async with house.aggregator() as front:
        await front.say(Have((HeldRepo(A, OLD, 1.0), HeldRepo(B, OLD, 1.0))))
        await house.until(lambda: witness(house, B) == short_digest(OLD))
    async with house.aggregator() as front:
        await house.until(lambda: witness(house, A) == witness(house, B) == 0)
        await front.say(Have((HeldRepo(A, OLD, 1.0),)))
        await house.until(lambda: witness(house, A) == short_digest(OLD))
        assert [a.serves for a in house.lead.feeds.view()] == [1]


# Doubts and accusations


def looked_at(worker):
    looks = [o.command for o in worker.all(Ordered) if isinstance(o.command, LookAt)]
    return [key for look in looks for key in look.keys]


async def test_what_is_doubted_is_looked_at_once_a_minute_by_those_who_hold_it(house, monkeypatch):
    async with house.worker(1, "attic") as worker, house.aggregator() as front:
        await house.add(A, B)
        await worker.until_assigned(A, B)
        await worker.synced(A, OLD, first=True)
        await worker.settle()
        await front.say(Doubted((A, B, A)), Doubted((A,)))
        await house.until(lambda: looked_at(worker) == [A])
        await asyncio.sleep(0.1)
        assert looked_at(worker) == [A]
        monkeypatch.setattr(accusing, "LOOK_GAP_S", 0.0)
        await front.say(Doubted((A,)))
        await house.until(lambda: looked_at(worker) == [A, A])


def duty(house, name):
    return next(w.duty for w in house.lead.admin.look().workers if w.name == name)


async def test_a_worker_that_lies_is_quarantined_with_the_reason_on_record(house, grpc):
    async with house.worker(1, "attic") as worker, house.aggregator(grpc=grpc) as front:
        await house.add(A)
        await worker.until_assigned(A)
        await front.say(Accused(node_named(house, "attic"), A, "serves other refs than it reports", "x != y"))
        await house.until(lambda: duty(house, "attic") is Duty.QUARANTINED)
        (noted,) = [r for r in await house.lead.store.list_audit(20) if r.action == "worker.quarantined"]
        assert (noted.actor, noted.subject) == ("aggregator front", "attic")
        assert noted.detail["reason"] == f"serves other refs than it reports ({A})"
        assert (noted.detail["repo"], noted.detail["evidence"]) == (A, "x != y")
        await house.until(lambda: any("other refs" in a.text for a in house.lead.admin.look().alerts))


async def test_a_worker_that_no_relay_reaches_for_the_grace_is_no_holder(house, grpc):
    def unreachable():
        return {w.name for w in house.lead.admin.look().workers if w.seen.unreachable}

    async with house.worker(1, "attic"), house.worker(2, "cellar"), house.aggregator(grpc=grpc) as front:
        await house.until(lambda: len(house.lead.admin.look().workers) == 2)
        front.unreached = (
            node_named(house, "attic"),
            "worker/77-1",
            "aggregator/3",
            f"worker/{'9' * 900}-1",
        )
        await house.until(lambda: unreachable() == {"attic"})
        assert ("unreachable", "attic") in {(a.kind.value, a.about) for a in house.lead.admin.look().alerts}
        front.unreached = ()
        await house.until(lambda: unreachable() == set())


async def test_a_worker_stays_unreachable_while_aggregators_go_and_come(house, monkeypatch):
    def unreachable():
        return {w.name for w in house.lead.admin.look().workers if w.seen.unreachable}

    told, tell = [], house.lead.fleet.tell

    async def noted(event):
        told.append(event)
        await tell(event)

    async with house.worker(1, "attic"), house.worker(2, "cellar"):
        await house.until(lambda: len(house.lead.admin.look().workers) == 2)
        lost = (node_named(house, "attic"),)
        async with house.aggregator(unreached=lost):
            await house.until(lambda: unreachable() == {"attic"})
        monkeypatch.setattr(house.lead.fleet, "tell", noted)
        await house.lead.feeds._tell_unreached()
        async with house.aggregator(unreached=lost):
            await house.lead.feeds._tell_unreached()  # before its first heartbeat
        await house.until(lambda: not any(one.counts for one in house.lead.feeds._known.values()))
        await house.lead.feeds._tell_unreached()
        assert unreachable() == {"attic"}
        assert not [event for event in told if isinstance(event, UnreachedTold)]


async def test_a_broken_aggregator_does_not_empty_the_fleet(house):
    async with (
        house.worker(1, "attic"),
        house.worker(2, "cellar"),
        house.aggregator() as front,
    ):
        for name in ("attic", "cellar", "cellar"):
            await front.say(Accused(node_named(house, name), A, "lies", ""))
        await house.until(lambda: duty(house, "attic") is Duty.QUARANTINED)
        await house.until(lambda: "accusation" in {a.kind.value for a in house.lead.admin.view().alerts})
        assert duty(house, "cellar") is Duty.ACTIVE


async def test_only_workers_can_be_accused(house):
    async with house.worker(1, "attic") as worker, house.aggregator() as front:
        own, number = node_named(house, "attic"), f"worker/{worker.number}"
        for node in ("aggregator/90", "worker/77", "attic", number, f"{own}x", f"{number}-1"):
            await front.say(Accused(node, A, "lies", ""))
        await front.say(AskHolders(1, (A,)))
        await front.next(Holders)
        assert duty(house, "attic") is Duty.ACTIVE


# Passes and relays


def node_of(access, now=None):
    return Unsealer(access.seal_key).read_pass(access.pass_, time.time() if now is None else now)


async def test_every_node_gets_a_pass_that_says_who_it_is(house, grpc):
    async with house.worker(1, "attic", grpc=grpc) as worker, house.aggregator(grpc=grpc) as front:
        told = await worker.next(Access)
        read = node_of(told)
        assert (read.node, read.role, read.until) == (told.node, Role.WORKER, told.until)
        assert told.node == node_named(house, "attic")
        assert told.node.startswith(f"worker/{worker.number}-")
        read = node_of(await front.next(Access))
        assert read.role is Role.AGGREGATOR
        assert read.node.startswith("aggregator/")
        assert front.all(Access)[0].seal_key == told.seal_key


async def test_a_worker_that_knows_no_passes_gets_none(house):
    async with (
        house.worker(1, "attic", protocol=1) as worker,
        house.worker(2, "new") as new,
        house.aggregator(relay=RELAY),
    ):
        await new.next(Access, 1)
        await house.add(A)
        await house.until(lambda: A in worker.assigned() | new.assigned())
        assert worker.all(Access) == []


async def test_everybody_hears_of_a_relay_that_comes_and_of_one_that_is_gone_for_long(house):
    async with house.worker(1, "attic") as worker, house.aggregator(91, "other") as other:
        assert (await worker.next(Access)).relays == (await other.next(Access)).relays == ()
        async with house.aggregator(relay=RELAY) as front:
            assert (await front.next(Access)).relays == (RELAY,)
            assert (await worker.next(Access, 1)).relays == (RELAY,)
            assert (await other.next(Access, 1)).relays == (RELAY,)
        async with house.aggregator(relay=RELAY):
            await asyncio.sleep(0.7)
            assert len(worker.all(Access)) == 2, "a short absence is nobody's matter"
        assert (await worker.next(Access, 2)).relays == ()


async def test_who_rests_between_dials_hears_that_a_relay_is_back_where_it_was(house, monkeypatch):
    async with house.worker(1, "attic") as worker:
        async with house.aggregator(relay=RELAY):
            assert (await worker.next(Access, 1)).relays == (RELAY,)
        monkeypatch.setattr(feeds, "MISSED_S", 0.0)
        async with house.aggregator(relay=RELAY):
            assert (await worker.next(Access, 2)).relays == (RELAY,)


async def test_passes_are_renewed_in_time(house, monkeypatch):
    async with house.worker(1, "attic") as worker, house.aggregator() as front:
        monkeypatch.setattr(feeds, "RENEW_S", 0.1)
        await worker.next(Access, 2)
        await front.next(Access, 2)
        first, *_, last = worker.all(Access)
        assert last.until > first.until
        assert last.pass_ != first.pass_


async def test_passes_and_denials_are_told_in_time_though_the_rest_fails_again_and_again(house, monkeypatch):
    fed, here, rests = house.lead.feeds, asyncio.current_task(), asyncio.Event()
    tell, failing = fed._tell_aggregators, []

    async def wait(tick_s):
        if asyncio.current_task() is not here:  # the coordinator's own part rests from now on
            rests.set()
            await asyncio.Event().wait()

    async def fails():
        raise RuntimeError("a bug")

    async def may_fail():
        if failing:
            raise failing.pop()
        await tell()

    async def restart():
        with pytest.raises(RuntimeError):
            await fed.run()

    async with house.worker(1, "attic") as worker, house.worker(2, "cellar"), house.aggregator() as front:
        await house.until(lambda: len(house.lead.admin.look().workers) == 2)
        monkeypatch.setattr(fed, "_wait", wait)
        fed._due.set()
        await rests.wait()
        monkeypatch.setattr(fed._registry, "tick", fails)
        monkeypatch.setattr(fed, "_tell_aggregators", may_fail)
        before, mono, utc = len(worker.all(Access)), fed._mono(), fed._utc()
        for step_s in (0.4 * feeds.RENEW_S, 0.8 * feeds.RENEW_S, 1.2 * feeds.RENEW_S):
            monkeypatch.setattr(fed, "_mono", lambda at=mono + step_s: at)
            monkeypatch.setattr(fed, "_utc", lambda at=utc + step_s: at)
            await restart()
        await worker.next(Access, before, within_s=5)

        await house.lead.admin.quarantine("cellar", "it lies", actor="test")
        cellar = node_named(house, "cellar")
        failing.append(RuntimeError("another bug"))
        await restart()
        await restart()
        await house.until(lambda: any(d.node == cellar for a in front.all(Access) for d in a.denied))


class HourBack:
    """The machine's clock, set back by an hour."""

    CLOCK_BOOTTIME = time.CLOCK_BOOTTIME
    clock_gettime = staticmethod(time.clock_gettime)

    @staticmethod
    def time():
        return time.time() - 3600.0


async def test_a_coordinator_whose_clock_was_set_gives_new_passes_and_its_new_time(house, monkeypatch):
    async with house.worker(1, "attic") as worker, house.aggregator() as front:
        for node in (worker, front):
            assert abs((await node.next(Access)).told_at - time.time()) < STEP_S
        seen = [len(node.all(Access)) for node in (worker, front)]
        monkeypatch.setattr(clock, "time", HourBack)
        for node, before in zip((worker, front), seen, strict=True):
            after = await node.next(Access, before)
            assert abs(after.told_at - (time.time() - 3600.0)) < STEP_S
            assert after.until < time.time()


async def test_an_aggregator_hears_whether_there_is_a_token_of_a_person(house, grpc):
    async with house.aggregator(grpc=grpc) as front:
        assert not (await front.next(Access)).user_tokens
        _, token = await house.lead.store.create_token("ann", Role.READER)
        assert (await front.next(Access, 1)).user_tokens
        async with house.aggregator(91, "late", grpc=grpc) as late:
            assert (await late.next(Access)).user_tokens
        await house.lead.store.revoke_token(token.id)
        assert not (await front.next(Access, 2)).user_tokens


async def test_who_takes_over_gets_a_ticket_for_what_it_reads(house):
    async with house.worker(1, "attic") as old, house.aggregator(relay=RELAY):
        await house.add(A)
        await old.until_assigned(A)
        await old.synced(A, OLD, first=True)
        await old.settle()
        access = await old.next(Access, 1)
        async with house.worker(2, "cellar") as new:
            await house.lead.admin.drain("attic", actor="test")
            await new.until_assigned(A)
            (source,) = [s for o in new.all(Ordered) for s in getattr(o.command, "sources", ())]
            holder, bearer = node_named(house, "attic"), node_named(house, "cellar")
            assert (source.key, source.holder) == (A, holder)
            ticket = Unsealer(access.seal_key).read_ticket(source.ticket, time.time())
            assert (ticket.bearer, ticket.holder) == (bearer, holder)
            assert ticket.key == A


async def test_who_gets_a_retired_workers_number_is_another_node(house, tmp_path):
    async with house.worker(1, "attic") as worker:
        before = await worker.next(Access)
        number = worker.number
    await house.lead.admin.retire("attic", actor="test")
    async with house.worker(2, "cellar") as heir, house.aggregator() as front:
        assert heir.number == number
        after = await heir.next(Access)
        assert before.node != after.node == node_of(after).node
        await house.add(A)
        await heir.until_assigned(A)
        await heir.synced(A, OLD, first=True)
        await house.until(lambda: any(c.digest for f in front.all(Changes) for c in f.items))
        (holder,) = front.all(Changes)[-1].items[-1].holders
        assert holder.node == after.node
        await front.say(Accused(before.node, A, "lies", ""))
        await front.say(AskHolders(1, (A,)))
        await front.next(Holders)
        assert duty(house, "cellar") is Duty.ACTIVE
        await front.say(Accused(after.node, A, "lies", ""))
        await house.until(lambda: duty(house, "cellar") is Duty.QUARANTINED)
    certificate = own_certificate(tmp_path / "relay")
    async with RelayServer(("127.0.0.1", 0), certificate, lambda: Unsealer(after.seal_key)) as relay:
        relays = (RelayAddress(f"127.0.0.1:{relay.port}", certificate.fingerprint),)
        async with lines_with(replace(before, relays=relays)):
            await house.until(lambda: relay.reachable(before.node))
            assert not relay.reachable(after.node), "the old pass speaks for the one that it was given to"
            relay.deny([Denial(before.node, time.time() + 60.0)])
            async with lines_with(replace(after, relays=relays)):
                await house.until(lambda: relay.reachable(after.node))


@contextlib.asynccontextmanager
async def lines_with(access):
    """Somebody who waits at the relays to be read from, with this pass."""
    lines = ServingLines(None, ServingLimits(pause_first_s=0.05, pause_last_s=0.2))
    lines.set_access(access)
    async with Supervisor().running("lines", lines.run):
        yield


async def test_a_worker_is_the_same_node_after_it_was_away_and_after_the_coordinator_was(tmp_path):
    nodes = []
    for _ in range(2):
        async with house_at(tmp_path / "data") as house:
            for _ in range(2):
                async with house.worker(1, "attic") as worker:
                    nodes.append((await worker.next(Access)).node)
    assert len(nodes) == 4
    assert len(set(nodes)) == 1


async def test_without_a_relay_nobody_is_told_to_read_from_others(house):
    async with house.worker(1, "attic") as old:
        await house.add(A)
        await old.until_assigned(A)
        await old.synced(A, OLD, first=True)
        await old.settle()
        async with house.worker(2, "cellar") as new:
            await house.lead.admin.drain("attic", actor="test")
            await new.until_assigned(A)
            assert not any(getattr(o.command, "sources", ()) for o in new.all(Ordered))


# Wrong use


@pytest.mark.parametrize(
    ("token", "takes_itself_for", "words"),
    [
        (Role.AGGREGATOR, Role.WORKER, ["is for an aggregator, not for a worker", "--role worker"]),
        (Role.WORKER, Role.AGGREGATOR, ["is for a worker, not for an aggregator", "--role aggregator"]),
    ],
)
async def test_a_token_of_the_other_kind_is_refused_in_words(house, grpc, token, takes_itself_for, words):
    identity = Identity(5, "x", token, trusted=False)
    rejected = await house.refusal(identity, house.hello("x", takes_itself_for), grpc=grpc)
    assert rejected.final
    assert all(word in rejected.reason for word in words), rejected.reason
    assert not house.lead.admin.view().workers
    assert not house.lead.feeds.view()


@pytest.mark.parametrize("role", [Role.WORKER, Role.AGGREGATOR])
async def test_a_node_that_mirrors_other_refs_than_the_fleet_is_refused_with_what_to_set(house, role):
    identity = Identity(5, "x", role, trusted=False)
    hello = replace(house.hello("x", role), refs_extra=("refs/notes/",))
    rejected = await house.refusal(identity, hello)
    assert rejected.final
    assert "set upstreams.refs_extra to []" in rejected.reason


async def test_an_old_worker_with_an_aggregators_token_is_refused(house):
    identity = Identity(5, "x", Role.AGGREGATOR, trusted=False)
    rejected = await house.refusal(identity, house.hello("x", None, protocol=1))
    assert rejected.final
    assert "not for a worker" in rejected.reason


async def test_an_aggregator_of_an_old_protocol_is_refused(house):
    identity = Identity(5, "x", Role.AGGREGATOR, trusted=False)
    rejected = await house.refusal(identity, house.hello("x", Role.AGGREGATOR, protocol=1))
    assert "upgrade the aggregator" in rejected.reason


@pytest.mark.parametrize("name", ["a/b", "x\n", "n" * 101])
async def test_a_name_that_is_none_is_refused(house, name):
    identity = Identity(5, "x", Role.AGGREGATOR, trusted=False)
    rejected = await house.refusal(identity, house.hello(name, Role.AGGREGATOR))
    assert "no name for an aggregator" in rejected.reason


async def test_who_says_what_only_workers_say_is_refused(house):
    async with house.aggregator() as front:
        await front.say(Holding((), last=True))
        assert "not for an aggregator to say" in (await front.next(Rejected)).reason
        await front.ends()


async def test_a_worker_that_says_what_only_aggregators_say_is_cut(house):
    async with house.worker(1, "attic") as worker:
        await worker.say(Follow(0))
        assert "not for a worker to say" in await worker.ends()


async def test_a_second_process_with_the_same_token_waits_and_the_same_one_takes_over(house):
    identity = Identity(90, "front", Role.AGGREGATOR, trusted=False)
    async with house.aggregator() as front:
        rejected = await house.refusal(identity, house.hello("front", Role.AGGREGATOR))
        assert not rejected.final
        assert "token of its own" in rejected.reason
        assert front.over is None
        boot = house._boots - 1
        again = await house.connection(identity)
        await again.send(house.hello("front", Role.AGGREGATOR, boot=boot))
        await front.ends()
        await again.close()
    assert len(house.lead.feeds.view()) == 1


# What people see


async def test_people_see_the_aggregators(house):
    async with house.aggregator(relay=RELAY) as front, httpx2.AsyncClient(base_url=house.node.url) as client:
        await house.add(A)
        await front.say(Have((HeldRepo(A, OLD, 1.0),)))
        await house.until(lambda: witness(house, A) != 0)
        await front.until_told(1)
        await house.until(lambda: house.lead.feeds.view()[0].followed == front.all(Changes)[-1].upto)
        await asyncio.sleep(0.6)  # what is shown is half a second old at most
        (shown,) = (await client.get("/api/fleet")).json()["aggregators"]
        assert (shown["name"], shown["connected"], shown["serves"]) == ("front", True, 1)
        assert (shown["relay"], shown["version"]) == (RELAY.address, "1.2")
        assert shown["followed"] == front.all(Changes)[-1].upto
        assert shown["changes_told"] >= 1
        metrics = (await client.get("/metrics")).text
        assert 'evermirror_fleet_aggregators{state="connected"} 1.0' in metrics
        assert "evermirror_fleet_repos_served 1.0" in metrics
    await house.until(lambda: not house.lead.feeds.view()[0].connected)


async def test_they_are_shown_bounded(house, monkeypatch):
    monkeypatch.setattr(feeds, "KNOWN_MAX", 3)
    for token in range(90, 96):
        async with house.aggregator(token, f"n{token}"):
            pass
        await house.until(lambda: not any(one.counts for one in house.lead.feeds._known.values()))
    assert len(house.lead.feeds.view()) <= 3


async def test_those_that_are_there_or_came_last_are_shown_and_all_that_are_down_are_told(house, monkeypatch):
    monkeypatch.setattr(feeds, "KNOWN_MAX", 2)
    registry = house.lead.feeds._registry
    for token in (90, 91, 92):
        async with house.aggregator(token, f"n{token}"):
            pass
        await house.until(lambda token=token: registry.get(token).liveness is Liveness.DOWN)
    await registry._put(aggregators.retired(registry.get(92), time.time()))
    async with house.aggregator(93, "n93"):
        await house.until(lambda: house.lead.feeds.view()[-1].connected)
        assert [one.record.name for one in house.lead.feeds.view()] == ["n91", "n93"]
        down = [a.about for a in house.lead.admin.look().alerts if a.kind is AlertKind.AGGREGATOR_DOWN]
        assert down == ["n90", "n91"]


async def test_it_goes_on_after_a_restart_of_the_coordinator(tmp_path):
    async with house_at(tmp_path / "data") as house, house.aggregator() as front:
        await house.add(A)
        await front.until_told(1)
        upto = front.all(Changes)[-1].upto
        key = (await front.next(Access)).seal_key
    async with house_at(tmp_path / "data") as house, house.aggregator(since=upto) as front:
        await house.add(B)
        await front.until_told(1)
        assert front.told() == [B]
        assert (await front.next(Access)).seal_key == key


async def test_a_record_can_be_replaced_while_it_is_told(house):
    async with house.aggregator(since=None) as front:
        await house.lead.store.upsert_repos([record(A)])
        front.acknowledges = False
        await front.say(Follow(0))
        first = await front.next(Changes)
        await house.lead.store.upsert_repos([replace(record(A), alias="other")])
        front.acknowledges = True
        await front.say(Followed(first.upto))
        second = await front.next(Changes, 1)
        assert [c.alias for c in second.items] == ["other"]


class SlowPeer:
    """One whose welcome takes a while."""

    address = "somewhere"

    def __init__(self, boot):
        self.identity = Identity(77, "front", Role.AGGREGATOR, trusted=True)
        self.takes = asyncio.Event()
        self._hello = Hello(PROTOCOL, "1.2", "front", boot, 0, role=Role.AGGREGATOR)
        self._gone = asyncio.Event()
        self.closed = ""

    async def receive(self):
        if self._hello is not None:
            hello, self._hello = self._hello, None
            return hello
        await self._gone.wait()
        raise PeerGone("gone")

    async def send(self, frame):
        await self.takes.wait()

    async def close(self, reason):
        self.closed = self.closed or reason
        self._gone.set()


async def test_of_two_that_come_at_once_the_later_stays(house):
    first, second = SlowPeer(1), SlowPeer(2)
    one = asyncio.create_task(house.lead.feeds.serve(first))
    await asyncio.sleep(0.05)
    two = asyncio.create_task(house.lead.feeds.serve(second))
    await asyncio.sleep(0.05)
    second.takes.set()
    first.takes.set()
    await asyncio.wait_for(one, 5)
    assert first.closed == "it connected anew"
    assert not two.done()
    (shown,) = house.lead.feeds.view()
    assert shown.connected
    await second.close("over")
    await two


# What clients of an aggregator get


async def test_it_is_known_when_an_aggregator_has_what_a_sync_brought(house, monkeypatch):
    monkeypatch.setattr(feeds, "FIRST_S", 0.2)
    collected = house.lead.feeds.collected
    async with house.aggregator() as front, house.aggregator(6, "back") as back:
        nodes = {a.name: a.node for a in house.lead.admin.look().aggregators}
        name = next(n for n in nodes if n != "back")
        began = time.monotonic()
        assert not await collected(nodes[name], A, OLD, 30.0), (
            "it may be one that fetches what it is asked for"
        )
        assert time.monotonic() - began < 5.0
        await front.say(Have((HeldRepo(A, OLD, 1.0),)))
        await house.until(lambda: house.lead.feeds._witnesses.digest(nodes[name], A))
        assert await collected(nodes[name], A, OLD, 0.0)
        assert not await collected(nodes[name], A, NEW, 0.05)
        waiting = asyncio.create_task(house.lead.admin.serves(nodes[name], A, NEW, 20.0))
        await asyncio.sleep(0.05)
        await back.say(Have((HeldRepo(A, NEW, 1.0),)))
        await asyncio.sleep(0.05)
        assert not waiting.done(), "another one has it"
        await front.say(Have((HeldRepo(A, NEW, 1.0),)))
        async with asyncio.timeout(10):
            assert await waiting
        assert not await collected("aggregator/77", A, NEW, 0.0)
