"""Passes and tickets are sealed for who may have them now, and commands name what their worker may know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.decisions import Assign, Assignment, Nudge, Other, Release
from evermirror.edge.relay.ask import ReadRequest, no_body
from evermirror.edge.relay.seal import PASS_S, TICKET_S, Sealer, SealInvalid, Unsealer, new_private_key
from evermirror.edge.relay.serving import NotHere
from evermirror.model.access import Role
from evermirror.model.messages import LookAt, ReleaseRepos, RestoreTip, SyncNow
from evermirror.model.relay import RelayAddress, Ticket, aggregator_node_id, worker_node_id
from evermirror.model.repo import Host, RepoKey, RepoSpec
from evermirror.model.worker import Duty, WorkerFacts, WorkerId, WorkerRecord
from evermirror.nodes.coordinator.aggregators import passes as passes_module
from evermirror.nodes.coordinator.aggregators.passes import Passes
from evermirror.nodes.coordinator.followers import Followers
from evermirror.nodes.coordinator.orders import Orders
from evermirror.nodes.worker.line_service import MirrorLines

PUBLIC, PRIVATE = RepoKey("example.org/public"), RepoKey("example.org/private")
TRUSTED, UNTRUSTED = WorkerId(1), WorkerId(2)
FRONT = aggregator_node_id(9)


class World:
    """Two workers and a private repo; ``now`` is turned by hand."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.records = {
            worker: WorkerRecord(worker, WorkerFacts(name, trusted=trusted), joined_at=1.0, last_alive_at=1.0)
            for worker, name, trusted in ((TRUSTED, "a", True), (UNTRUSTED, "b", False))
        }
        self.passes = Passes(Sealer(new_private_key()), lambda: self.now, self.records.get, self.may_read)
        self.passes.relays = lambda: (RelayAddress("relay:1", "12" * 32),)

    def may_read(self, key: RepoKey, worker: WorkerId) -> bool:
        return key == PUBLIC or self.records[worker].facts.trusted

    def node(self, worker: WorkerId):
        return worker_node_id(self.records[worker])

    def orders(self, **stored: object) -> Orders:
        async def specs_of(keys):
            spec = RepoSpec(PUBLIC, "https://example.org/public", Host("example.org"), **stored)
            return [SimpleNamespace(spec=replace(spec, key=key), activity=None, enabled=True) for key in keys]

        return Orders(
            SimpleNamespace(specs_of=specs_of),
            self.passes.source,
            lambda key: TRUSTED,
            self.may_read,
            lambda key: None,
            lambda worker: self.records[worker].facts.trusted,
        )


@pytest.fixture
def world() -> World:
    return World()


# Tickets


def test_a_ticket_is_sealed_only_where_bearer_and_holder_may_read_the_repo(world):
    source = world.passes.source
    assert source(UNTRUSTED, TRUSTED, PUBLIC) is not None
    assert source(UNTRUSTED, TRUSTED, PRIVATE) is None
    assert source(TRUSTED, UNTRUSTED, PRIVATE) is None
    world.records[WorkerId(3)] = replace(world.records[TRUSTED], id=WorkerId(3))
    assert source(WorkerId(3), TRUSTED, PRIVATE) is not None


@pytest.mark.parametrize("worker", [TRUSTED, UNTRUSTED])
def test_there_is_no_ticket_for_or_to_who_is_quarantined_or_shut_out(world, worker):
    assert world.passes.source(UNTRUSTED, TRUSTED, PUBLIC) is not None
    world.passes.deny(world.node(worker), world.now)
    assert world.passes.source(UNTRUSTED, TRUSTED, PUBLIC) is None
    world.passes.readmit(world.node(worker))
    world.records[worker] = replace(world.records[worker], duty=Duty.QUARANTINED)
    assert world.passes.source(UNTRUSTED, TRUSTED, PUBLIC) is None
    assert world.passes.of_worker(worker) is None


def test_tickets_and_passes_say_how_long_and_whether_their_bearer_is_trusted(world):
    world.records[WorkerId(3)] = replace(world.records[TRUSTED], id=WorkerId(3))
    for bearer, trusted in ((WorkerId(3), True), (UNTRUSTED, False)):
        source, access = world.passes.source(bearer, TRUSTED, PUBLIC), world.passes.of_worker(bearer)
        unsealer = Unsealer(access.seal_key)
        ticket = unsealer.read_ticket(source.ticket, world.now + 15 * 60 - 1)
        assert (ticket.trusted, ticket.until) == (trusted, world.now + TICKET_S)
        assert unsealer.read_pass(access.pass_, world.now).trusted is trusted
        with pytest.raises(SealInvalid, match="ended"):
            unsealer.read_ticket(source.ticket, world.now + 15 * 60)


# Who is shut out


def test_who_is_shut_out_is_named_until_its_last_pass_has_ended_and_gets_none_after_that(world):
    node = world.node(UNTRUSTED)
    assert world.passes.of_worker(UNTRUSTED) is not None
    assert world.passes.deny(node, world.now)
    assert not world.passes.deny(node, world.now), "no news"
    (denial,) = world.passes.denials()
    assert (denial.node, denial.until) == (node, world.now + PASS_S)
    world.now += PASS_S
    assert world.passes.denials() == ()
    assert world.passes.of_worker(UNTRUSTED) is None
    assert world.passes.readmit(node)
    assert world.passes.of_worker(UNTRUSTED) is not None
    assert not world.passes.readmit(node)


def test_who_is_revoked_is_never_let_in_again(world):
    node = world.node(UNTRUSTED)
    world.passes.deny(node, world.now)
    world.passes.deny(node, world.now, revoked=True)
    assert not world.passes.readmit(node)
    assert world.passes.of_worker(UNTRUSTED) is None


def test_the_pass_of_an_aggregator_that_is_revoked_counts_for_nothing(world):
    access = world.passes.of_aggregator(FRONT)
    assert world.passes.read(access.pass_).node == FRONT
    world.passes.deny(FRONT, world.now, revoked=True)
    with pytest.raises(SealInvalid, match="taken back"):
        world.passes.read(access.pass_)
    assert world.passes.of_aggregator(FRONT) is None


def test_only_so_many_are_remembered_and_those_longest_whose_passes_end_last(world, monkeypatch):
    monkeypatch.setattr(passes_module, "DENIED_MAX", 3)
    for n in range(10):
        world.passes.deny(aggregator_node_id(n), world.now + n)
    assert [d.node for d in world.passes.denials()] == [aggregator_node_id(n) for n in (7, 8, 9)]


# Commands


async def test_commands_leave_out_what_their_worker_may_not_know(world):
    orders = world.orders()

    async def command(worker, order):
        return (await orders.ordered(worker, 1, order)).command

    assigns = Assign(tuple(Assignment(key, primary=False, source=TRUSTED) for key in (PUBLIC, PRIVATE)))
    told = await command(UNTRUSTED, assigns)
    assert [spec.key for spec in told.repos] == [source.key for source in told.sources] == [PUBLIC]
    assert told.following == {PUBLIC}
    assert [spec.key for spec in (await command(TRUSTED, assigns)).repos] == [PUBLIC, PRIVATE]
    for look in (Nudge((PRIVATE, PUBLIC)), Other(LookAt((PRIVATE, PUBLIC)))):
        told = await command(UNTRUSTED, look)
        assert told.keys == tuple(source.key for source in told.sources) == (PUBLIC,)
    for order in (SyncNow(PRIVATE, 7), RestoreTip(PRIVATE, 7, "refs/x")):
        assert await command(UNTRUSTED, Other(order)) == LookAt(())
        assert await command(TRUSTED, Other(order)) == order
    gone = Release((PRIVATE,), delete=True, digests=(0,))
    assert await command(UNTRUSTED, gone) == ReleaseRepos((PRIVATE,), True, (0,)), "it takes away"


@pytest.mark.parametrize("stored", [{"private": True}, {"credential": "corp"}])
async def test_the_configuration_of_a_repo_that_just_became_private_is_told_to_no_untrusted_worker(
    world, stored
):
    orders = world.orders(**stored)  # placement has not heard of it yet
    assigns = Assign((Assignment(PUBLIC, primary=True),))
    for worker, told in ((UNTRUSTED, []), (TRUSTED, [PUBLIC])):
        command = (await orders.ordered(worker, 1, assigns)).command
        assert [spec.key for spec in command.repos] == told


async def test_only_who_may_read_a_repo_is_told_that_it_moved():
    """An empty command would tell that something did."""
    copies = [SimpleNamespace(worker=WorkerId(n), state=CopyState.HELD) for n in range(4)]
    machine = SimpleNamespace(
        repo=lambda key: SimpleNamespace(primary=WorkerId(0), copies=copies),
        may_read=lambda key, worker: worker != UNTRUSTED,
    )
    told = []

    async def tell(event):
        told.append((event.worker, event.command.keys))

    followers = Followers(lambda: SimpleNamespace(machine=machine, tell=tell))
    followers.moved(PRIVATE, WorkerId(0))
    await followers.tell()
    assert told == [(WorkerId(1), (PRIVATE,)), (WorkerId(3), (PRIVATE,))]


# The holder


@pytest.mark.parametrize(
    ("role", "trusted", "public", "contact", "served"),
    [
        (Role.WORKER, False, True, True, True),
        (Role.WORKER, False, True, False, True),
        (Role.WORKER, False, False, True, False),
        (Role.WORKER, True, False, True, True),
        (Role.WORKER, True, False, False, False),  # nobody could take it back
        (Role.AGGREGATOR, False, False, False, True),
    ],
)
async def test_the_holder_itself_looks_whether_the_reader_may(role, trusted, public, contact, served):
    async def advertise(path, protocol, **more):
        yield b"refs"

    lines = MirrorLines(
        SimpleNamespace(advertise=advertise),
        lambda key: Path("/here"),
        is_public=lambda key: public,
        in_contact=lambda: contact,
        suspect=lambda key, failure: None,
    )
    ticket = None if role is Role.AGGREGATOR else Ticket(FRONT, FRONT, PRIVATE, 1.0, trusted)
    request = ReadRequest(PRIVATE, "refs", "version=2", FRONT, role, ticket)
    answer = lines.handle(request, no_body())
    if served:
        assert [piece async for piece in answer] == [b"refs"]
    else:
        with pytest.raises(NotHere, match="is not held here"):
            await anext(answer)
