"""Peers that lie, stall, flood, break off or never stop: a line ends, everybody else goes on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from dataclasses import replace

import pytest

from evermirror.edge.relay.ask import AnswerBroken, HolderAway, HolderRefused, ReaderRefused, no_body
from evermirror.edge.relay.certificate import dialling_context, own_certificate
from evermirror.edge.relay.frames import (
    ASKING,
    PAYLOAD_BYTES_MAX,
    SERVING,
    Admitted,
    Answer,
    Body,
    End,
    Hello,
    Kind,
    Ping,
    Pong,
    Refused,
    Request,
    encode,
    head,
)
from evermirror.edge.relay.limits import RelayLimits, ServingLimits
from evermirror.edge.relay.seal import Sealer, new_private_key
from evermirror.edge.relay.serving import ServingLines
from evermirror.model.access import Role
from evermirror.model.relay import Denial, NodeId, Pass, RelayAddress
from evermirror.model.repo import RepoKey
from tests.edge.relay.raw_peer import RawPeer
from tests.edge.relay.relay_world import (
    HOLDER,
    KEY,
    OTHER,
    QUICK,
    READER,
    Fleet,
    Scripted,
    body_of,
    gather,
    until,
)

WORKER_REQUEST = Request(KEY, "refs", "version=2", HOLDER, NodeId(""), Role.WORKER, "")


async def echo(request, body):
    yield b"heard:"
    async for piece in body:
        yield piece


async def works(fleet) -> bool:
    """The relay and the holder answer others."""
    return await gather(fleet.relay.ask(fleet.ask("pack"), body_of(b"still here"))) == b"heard:still here"


# Who may


def _bad_passes(fleet):
    return {
        "none": "",
        "garbage": "x.y",
        "ended": fleet.pass_(lives_s=-1),
        "another coordinator's": Sealer(new_private_key()).seal(
            Pass(READER, Role.AGGREGATOR, time.time() + 99)
        ),
        "a ticket": fleet.ticket(),
        "a person's": fleet.pass_(READER, Role.ADMIN),
    }


async def test_no_line_and_no_answer_without_a_good_pass(quick):
    async with quick.serving(service := Scripted(echo)):
        for what, pass_ in _bad_passes(quick).items():
            for way in (SERVING, ASKING):
                async with RawPeer.dial(quick.port) as peer:
                    peer.say(Hello(1, way, pass_))
                    assert isinstance(await peer.hear(), Refused), (what, way)
                    assert await peer.hear() is None
            async with quick.asking() as far:
                for reach in (quick.relay, far):
                    with pytest.raises(ReaderRefused):
                        await gather(reach.ask(quick.ask(pass_=pass_), no_body()))
        assert service.requests == []
        assert await works(quick)


async def test_only_workers_serve(quick):
    async with RawPeer.dial(quick.port) as peer:
        peer.say(Hello(1, SERVING, quick.pass_()))
        assert "only workers" in (await peer.hear()).reason


async def test_another_version_is_told_so(quick):
    async with RawPeer.dial(quick.port) as peer:
        peer.say(Hello(2, SERVING, quick.pass_(HOLDER, Role.WORKER)))
        assert "version 1" in (await peer.hear()).reason


@pytest.mark.parametrize(
    "wrong",
    [
        {"bearer": NodeId("worker/3")},
        {"holder": NodeId("worker/3")},
        {"key": RepoKey("example.com/a/y")},
        {"lives_s": -1.0},
        None,
    ],
)
async def test_a_worker_reads_only_with_its_own_ticket_for_that(quick, wrong):
    ticket = "" if wrong is None else quick.ticket(**wrong)
    async with quick.serving(service := Scripted(echo)), quick.asking() as far:
        worker_pass = quick.pass_(OTHER, Role.WORKER)
        for reach in (far, quick.relay):
            with pytest.raises(HolderRefused, match="ticket"):
                await gather(reach.ask(quick.ask(pass_=worker_pass, ticket=ticket), no_body()))
            good = quick.ask(pass_=worker_pass, ticket=quick.ticket())
            assert await gather(reach.ask(good, no_body())) == b"heard:"
    assert len(service.requests) == 2


async def test_a_reader_cannot_call_itself_an_aggregator(quick):
    async with (
        quick.serving(service := Scripted(echo)),
        RawPeer.admitted(quick.port, ASKING, quick.pass_(OTHER, Role.WORKER)) as peer,
    ):
        peer.say(replace(WORKER_REQUEST, role=Role.AGGREGATOR, reader=READER), End())
        assert (await peer.hear()).status == "not_let_in"
        assert service.requests == []


async def test_the_holder_looks_at_the_ticket_itself(quick):
    """A relay that passes on what it should not is not obeyed."""
    service = Scripted(echo)
    async with _relay_in_between(quick) as (address, peers):
        lines = ServingLines(service, ServingLimits(line=QUICK))
        lines.set_access(replace(quick.access(), relays=(address,)))
        async with _running(lines):
            peer = await asyncio.wait_for(peers.get(), 5)
            assert isinstance(await peer.hear(), Hello)
            peer.say(Admitted())
            tickets = [quick.ticket(bearer=NodeId("worker/3")), quick.ticket(holder=OTHER), "", "x.y"]
            for ticket in tickets:
                peer.say(replace(WORKER_REQUEST, reader=OTHER, ticket=ticket), End())
                assert (await peer.hear()).status == "refused"
            peer.say(replace(WORKER_REQUEST, reader=OTHER, ticket=quick.ticket()), End())
            assert (await peer.hear()).status == "ok"
    assert len(service.requests) == 1


async def test_holders_are_never_shown_a_readers_pass(quick):
    pass_ = quick.pass_()
    async with RawPeer.admitted(quick.port, SERVING, quick.pass_(HOLDER, Role.WORKER)) as peer:
        asking = asyncio.create_task(gather(quick.relay.ask(quick.ask(pass_=pass_), no_body())))
        request = await peer.hear()
        assert (request.reader, request.role) == (READER, Role.AGGREGATOR)
        assert pass_ not in repr(request)
        peer.say(Answer("ok"), End())
        assert await asking == b""


@contextlib.asynccontextmanager
async def _relay_in_between(fleet, certificate=None):
    """A TLS server with the relay's certificate, or another; its peers are in the queue."""
    certificate = certificate or fleet.certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file)
    peers = asyncio.Queue()
    writers = []

    async def met(reader, writer):
        writers.append(writer)
        await peers.put(RawPeer(reader, writer))

    server = await asyncio.start_server(met, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    try:
        yield RelayAddress(f"127.0.0.1:{port}", fleet.certificate.fingerprint), peers
    finally:
        for writer in writers:
            writer.transport.abort()
        server.close()


@contextlib.asynccontextmanager
async def _running(lines):
    work = asyncio.create_task(lines.run())
    try:
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def test_nothing_is_said_to_a_relay_with_another_certificate(quick, tmp_path):
    foreign = own_certificate(tmp_path / "foreign")
    async with _relay_in_between(quick, foreign) as (address, peers):
        async with quick.asking(address) as reach:
            with pytest.raises(HolderAway, match="another certificate"):
                await gather(reach.ask(quick.ask(), no_body()))
        peer = await peers.get()
        assert await peer.hear() is None


@pytest.mark.parametrize("address", ["a..b:1", f"{'x' * 70}.org:1", "a\0b:1", "\ud800:1", "nobody", ":1"])
async def test_a_relay_whose_name_is_none_is_passed_over(quick, address):
    nowhere = RelayAddress(address, quick.certificate.fingerprint)
    async with quick.serving(Scripted(echo)), quick.asking(nowhere, quick.address) as reach:
        for _ in range(2):
            assert await gather(reach.ask(quick.ask(), no_body())) == b"heard:"
    async with quick.asking(nowhere) as reach:
        with pytest.raises(HolderAway):
            await gather(reach.ask(quick.ask(), no_body()))


async def test_passes_and_tickets_are_in_no_text_that_may_be_logged(quick):
    ask = quick.ask_of_worker()
    hello = Hello(1, SERVING, ask.reader_pass)
    request = replace(WORKER_REQUEST, ticket=ask.ticket)
    for secret in (ask.reader_pass, ask.ticket):
        assert secret
        assert not any(secret in text for text in (repr(ask), repr(hello), repr(request)))


# What may be said


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        head(Kind.BODY, PAYLOAD_BYTES_MAX + 1) + b"x" * 1000,
        head(Kind.HELLO, 2) + b"{}",
        b"\x63" * 50,
        head(Kind.PONG, 0) * 5 + head(Kind.END, 0),
    ],
)
async def test_a_stranger_that_speaks_otherwise_is_cut_off(quick, raw):
    async with quick.serving(Scripted(echo)):
        async with RawPeer.dial(quick.port) as peer:
            peer.raw(raw)
            assert await peer.hear() is None
        assert await works(quick)


async def test_a_stranger_without_tls_or_without_a_word_is_cut_off(quick):
    async with quick.serving(Scripted(echo)):
        for said in (b"hello, anybody?\r\n", b""):
            reader, writer = await asyncio.open_connection("127.0.0.1", quick.port)
            writer.write(said)
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 5)  # at most an alert
            writer.close()
        async with RawPeer.dial(quick.port) as peer:
            assert await peer.hear() is None
        assert await works(quick)


@pytest.mark.parametrize("admitted", [False, True])
async def test_a_peer_that_says_goodbye_as_tls_does_is_gone(quick, admitted):
    async with quick.serving(Scripted(echo)):
        await asyncio.to_thread(_goodbye, quick.port, quick.pass_(OTHER, Role.WORKER) if admitted else None)
        await until(lambda: not quick.relay.reachable(OTHER))
        assert await works(quick)


def _goodbye(port: int, pass_: str | None) -> None:
    """In a thread, blocking: asyncio's TLS waits for the other side's end, and says its own only then."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=2) as raw,
        dialling_context().wrap_socket(raw) as tls,
    ):
        if pass_ is not None:
            tls.sendall(encode(Hello(1, SERVING, pass_)))
            assert tls.recv(100) == encode(Admitted())
        with contextlib.suppress(OSError):
            tls.unwrap()


async def test_frames_that_nobody_asked_for_do_not_pile_up(quick):
    """Of any kind: an idle line is read by nobody, and a frame of JSON may hold as much as a body."""
    long = "x" * 60_000
    for flood in (Hello(1, SERVING, long), replace(WORKER_REQUEST, ticket=long), Body(b"x" * 60_000)):
        async with RawPeer.admitted(quick.port, SERVING, quick.pass_(OTHER, Role.WORKER)) as peer:
            line = next(iter(quick.relay._holders.of(OTHER)))
            peer.say(*[flood] * 500)
            await until(lambda line=line: line.received_bytes > 1_000_000)
            await asyncio.sleep(0.2)
            assert line.received_bytes < 3_000_000, flood
        await until(lambda: not quick.relay.reachable(OTHER))


@pytest.mark.parametrize(
    "said",
    [
        [Body(b"x")],
        [End()],
        [Answer("ok")],
        [Hello(1, ASKING, "")],
        [WORKER_REQUEST, Answer("ok")],
        [WORKER_REQUEST, End(), End()],
        [WORKER_REQUEST, End(), Body(b"x")],
    ],
    ids=repr,
)
async def test_a_reader_that_speaks_out_of_order_is_cut_off(quick, said):
    async with quick.serving(Scripted(echo)):
        async with RawPeer.admitted(quick.port, ASKING, quick.pass_()) as peer:
            peer.say(*said)
            heard = []
            while (message := await peer.hear()) is not None:
                heard.append(message)
            assert len(heard) <= 3
        assert await works(quick)


@pytest.mark.parametrize(
    "said",
    [
        [Body(b"x")],
        [End()],
        [Hello(1, SERVING, "")],
        [Admitted()],
        [Answer("ok"), Answer("ok")],
        [Answer("ok"), Body(b"x"), WORKER_REQUEST],
        [Answer("ok"), Refused("no", 1.0)],
    ],
    ids=repr,
)
async def test_a_holder_that_speaks_out_of_order_gives_no_answer(quick, said):
    async with RawPeer.admitted(quick.port, SERVING, quick.pass_(HOLDER, Role.WORKER)) as peer:
        asking = asyncio.create_task(gather(quick.relay.ask(quick.ask(), no_body())))
        assert isinstance(await peer.hear(), Request)
        peer.say(*said)
        with pytest.raises((HolderAway, AnswerBroken)):
            await asking
        while await peer.hear() is not None:
            pass
    await until(lambda: not quick.relay.reachable(HOLDER))


async def test_a_holder_that_speaks_unasked_is_not_asked(quick):
    async with RawPeer.admitted(quick.port, SERVING, quick.pass_(HOLDER, Role.WORKER)) as peer:
        peer.say(Answer("ok"), Body(b"forged"), End())
        await asyncio.sleep(0.1)
        with pytest.raises(HolderAway):
            await gather(quick.relay.ask(quick.ask(), no_body()))


async def test_a_flood_of_pings_is_answered_only_as_far_as_it_is_read(quick):
    async with (
        quick.serving(Scripted(echo)),
        RawPeer.admitted(quick.port, SERVING, quick.pass_(OTHER, Role.WORKER)) as peer,
    ):
        for _ in range(50):
            peer.say(*[Ping()] * 2_000)
            await asyncio.sleep(0)
        assert isinstance(await peer.hear(pings=True), Pong | Ping)
        assert await works(quick)


# Stalling, breaking, never ending


async def test_a_holder_that_falls_silent_is_given_up(quick):
    hanging = asyncio.Event()

    async def stalls(request, body):
        yield b"a beginning"
        await hanging.wait()

    async with quick.serving(service := Scripted(stalls)):
        pieces = quick.relay.ask(quick.ask(), no_body())
        assert await anext(pieces) == b"a beginning"
        began = time.monotonic()
        with pytest.raises(AnswerBroken, match="silent"):
            await anext(pieces)
        assert 0.5 < time.monotonic() - began < 5
        await until(lambda: service.closed == 1)


async def test_a_holder_that_never_begins_is_away(quick):
    async with RawPeer.admitted(quick.port, SERVING, quick.pass_(HOLDER, Role.WORKER)):
        with pytest.raises(HolderAway, match="silent"):
            await gather(quick.relay.ask(quick.ask(), no_body()))


async def test_a_line_that_breaks_in_an_answer_is_no_complete_answer(quick):
    for far in (False, True):
        async with (
            RawPeer.admitted(quick.port, SERVING, quick.pass_(HOLDER, Role.WORKER)) as peer,
            quick.asking() as asking,
        ):
            reach = asking if far else quick.relay
            pieces = reach.ask(quick.ask(), no_body())
            first = asyncio.create_task(anext(pieces))
            assert isinstance(await peer.hear(), Request)
            peer.say(Answer("ok"), Body(b"half"))
            assert await first == b"half"
            peer._writer.transport.abort()
            with pytest.raises(AnswerBroken):
                await anext(pieces)
        await until(lambda: not quick.relay.reachable(HOLDER))


async def test_a_half_open_line_is_found_and_closed(quick):
    """Its machine is gone: nothing comes, not even an end."""
    async with RawPeer.admitted(quick.port, SERVING, quick.pass_(HOLDER, Role.WORKER)):
        assert quick.relay.reachable(HOLDER)
        await until(lambda: not quick.relay.reachable(HOLDER), 5)


async def test_an_idle_line_stays_while_both_live(quick):
    async with quick.serving(Scripted(echo)) as lines:
        await asyncio.sleep(1.5)  # three times what is half open
        assert quick.relay.figures().serving_lines == 1
        assert lines.connected == (quick.address,)
        assert await works(quick)


async def test_a_reader_of_one_byte_a_second_holds_nobody_up(tmp_path):
    fleet = Fleet(tmp_path, RelayLimits(line=replace(QUICK, silence_s=30.0)))

    produced = 0

    async def endless(request, body):
        nonlocal produced
        if request.service == "pack":
            async for piece in echo(request, body):
                yield piece
            return
        while True:
            produced += 100_000
            yield b"x" * 100_000

    async with fleet.relaying(), fleet.serving(Scripted(endless)):
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(3):
                peer = RawPeer.admitted(fleet.port, ASKING, fleet.pass_())
                slow = await stack.enter_async_context(peer)
                slow.say(WORKER_REQUEST, End())
                assert await slow.read_slowly()
            began = time.monotonic()
            for _ in range(20):
                assert await works(fleet)
            assert time.monotonic() - began < 15  # who is held up, is so for half a minute
            assert fleet.relay.figures().running == 3
            before = -1
            while before != (before := produced):
                assert before < 90_000_000  # nothing piles up: sockets are full some time
                await asyncio.sleep(0.3)
        await until(lambda: fleet.relay.figures().running == 0)


async def test_a_reader_that_takes_nothing_is_given_up(quick):
    async def endless(request, body):
        while True:
            yield b"x" * 100_000

    async with (
        quick.serving(service := Scripted(endless)),
        RawPeer.admitted(quick.port, ASKING, quick.pass_()) as peer,
    ):
        peer.say(WORKER_REQUEST, End())
        await until(lambda: quick.relay.figures().running == 1)
        await until(lambda: quick.relay.figures().running == 0, 10)
        await until(lambda: service.closed == 1)


async def test_a_request_without_end_is_bounded(quick):
    async with quick.serving(Scripted(echo)), quick.asking() as reach:

        async def endless():
            while True:
                yield b"x" * 100_000

        for ask in (quick.relay.ask, reach.ask):
            with pytest.raises((HolderAway, AnswerBroken)):
                await gather(ask(quick.ask("pack"), endless()))
        assert await works(quick)


async def test_what_is_wrong_with_the_readers_own_request_is_raised(quick):
    async def broken():
        yield b"x"
        raise ValueError("gzip")

    async with quick.serving(service := Scripted(echo)):
        with pytest.raises(ValueError, match="gzip"):
            await gather(quick.relay.ask(quick.ask("pack"), broken()))
        await until(lambda: service.closed == 1)
        assert await works(quick)


# Too many


async def test_a_thousand_questions_some_wait_and_the_rest_hear_that_it_is_busy(tmp_path):
    limits = RelayLimits(line=QUICK, asks_max=6, asks_per_reader=4, queue=20, queue_wait_s=1.0)
    fleet = Fleet(tmp_path, limits)
    running, most = 0, 0

    async def counted(request, body):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        yield b"done"

    async with fleet.relaying(), fleet.serving(Scripted(counted)), fleet.asking() as far:
        one, other = fleet.pass_(), fleet.pass_(NodeId("aggregator/8"))
        asks = [gather(fleet.relay.ask(fleet.ask(pass_=one), no_body())) for _ in range(900)]
        asks += [gather(far.ask(fleet.ask(pass_=other), no_body())) for _ in range(30)]
        answers = await asyncio.gather(*asks, return_exceptions=True)
        done = [a for a in answers if a == b"done"]
        assert {type(a) for a in answers if a != b"done"} == {HolderAway}
        assert all(a.retry_after_s > 0 for a in answers if a != b"done")
        assert 10 <= len(done) < 930
        assert b"done" in answers[900:]  # one reader does not take all
        assert most <= 6
        assert await gather(fleet.relay.ask(fleet.ask(), no_body())) == b"done"


async def test_lines_of_one_node_and_strangers_are_bounded(tmp_path):
    few = RelayLimits(line=QUICK, lines_per_worker=2, asking_per_node=2, known_strangers_max=3)
    fleet = Fleet(tmp_path, few)
    async with fleet.relaying():
        for way, pass_ in ((SERVING, fleet.pass_(OTHER, Role.WORKER)), (ASKING, fleet.pass_())):
            async with (
                RawPeer.admitted(fleet.port, way, pass_),
                RawPeer.admitted(fleet.port, way, pass_),
                RawPeer.dial(fleet.port) as third,
            ):
                third.say(Hello(1, way, pass_))
                assert "no room" in (await third.hear()).reason
        idle = [socket.create_connection(("127.0.0.1", fleet.port)) for _ in range(5)]
        try:
            await until(lambda: cut_off(idle) >= 2)
            await asyncio.sleep(0.1)
            assert cut_off(idle) == 2
        finally:
            for stranger in idle:
                stranger.close()


def cut_off(strangers) -> int:
    cut = 0
    for stranger in strangers:
        stranger.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            try:
                cut += stranger.recv(1) == b""
            except ConnectionError:
                cut += 1
    return cut


async def test_silent_strangers_of_one_address_do_not_keep_others_out(tmp_path):
    fleet = Fleet(tmp_path, RelayLimits(line=QUICK, strangers_max=20, strangers_per_network=3))
    async with fleet.relaying():
        idle = [
            socket.create_connection(("127.0.0.1", fleet.port), source_address=("127.0.0.2", 0))
            for _ in range(30)
        ]
        try:
            pass_ = fleet.pass_(OTHER, Role.WORKER)
            async with RawPeer.admitted(fleet.port, SERVING, pass_):
                await until(lambda: fleet.relay.reachable(OTHER))
        finally:
            for stranger in idle:
                stranger.close()


@contextlib.contextmanager
def silent(port, count, addresses):
    """Connections from each of ``addresses`` that never say a word."""
    opened = []
    try:
        for address in addresses * count:
            opened += [socket.create_connection(("127.0.0.1", port), source_address=(address, 0))]
        yield opened
    finally:
        for stranger in opened:
            stranger.close()


async def test_silent_strangers_of_many_addresses_do_not_keep_others_out(tmp_path):
    patient = replace(QUICK, first_byte_s=60.0, hello_s=60.0)  # they stay, unless somebody needs the place
    fleet = Fleet(tmp_path, RelayLimits(line=patient))
    addresses = [f"127.0.0.{n}" for n in range(2, 6)]
    async with fleet.relaying():
        with silent(fleet.port, 50, addresses):
            pass_ = fleet.pass_(OTHER, Role.WORKER)
            async with RawPeer.admitted(fleet.port, SERVING, pass_):
                await until(lambda: fleet.relay.reachable(OTHER))


async def test_a_stranger_that_says_nothing_at_first_is_not_waited_for(tmp_path):
    fleet = Fleet(tmp_path, RelayLimits(line=replace(QUICK, first_byte_s=0.5, hello_s=60.0)))
    async with fleet.relaying():
        with silent(fleet.port, 3, ["127.0.0.1"]) as strangers:
            strangers[0].send(b"\x16")  # the first byte of TLS
            await until(lambda: cut_off(strangers[1:]) == 2)
            assert cut_off(strangers[:1]) == 0, "who has spoken is given time"


async def test_the_worker_opens_lines_as_needed_and_no_more(fleet):
    go = asyncio.Event()

    async def waits(request, body):
        await go.wait()
        yield b"done"

    limits = ServingLimits(lines_max=3, pause_first_s=0.05)
    async with fleet.serving(Scripted(waits), limits=limits):
        assert fleet.relay.figures().serving_lines == 1
        asks = [asyncio.create_task(gather(fleet.relay.ask(fleet.ask(), no_body()))) for _ in range(5)]
        await until(lambda: fleet.relay.figures().serving_lines == 3)
        await asyncio.sleep(0.2)
        assert fleet.relay.figures().serving_lines == 3
        go.set()
        assert await asyncio.gather(*asks) == [b"done"] * 5
        await until(lambda: fleet.relay.figures().serving_lines <= 2)
        assert fleet.relay.figures().free_lines >= 1


# Coming back


async def test_relay_killed_and_back(quick):
    """The fixture's relay ends; another one listens on the same port."""
    async with quick.serving(Scripted(echo)) as lines, quick.asking() as far:
        assert await gather(far.ask(quick.ask("pack"), body_of(b"1"))) == b"heard:1"
        await quick.relay.__aexit__(None, None, None)
        await until(lambda: not lines.connected)
        with pytest.raises(HolderAway):
            await gather(far.ask(quick.ask("pack"), body_of(b"2")))
        async with quick.relaying() as back:
            await until(lambda: back.reachable(HOLDER))
            assert await gather(far.ask(quick.ask("pack"), body_of(b"3"))) == b"heard:3"
            assert await works(quick)


async def test_who_rests_between_dials_comes_at_once_when_the_relay_is_named_again(quick):
    long = ServingLimits(pause_first_s=600.0, pause_last_s=600.0, line=quick.limits.line)
    async with quick.serving(Scripted(echo), limits=long) as lines:
        await quick.relay.__aexit__(None, None, None)
        await until(lambda: not lines.connected)
        await asyncio.sleep(0.2)  # it dials, in vain, and rests
        async with quick.relaying() as back:
            await asyncio.sleep(0.2)
            assert not back.reachable(HOLDER)
            lines.set_access(quick.access())
            await until(lambda: back.reachable(HOLDER), 5)
            assert await works(quick)


async def test_who_comes_before_the_coordinators_word_comes_again_soon(tmp_path):
    fleet = Fleet(tmp_path)
    heard, fleet.unsealer = fleet.unsealer, None
    async with fleet.relaying() as relay:
        lines = ServingLines(Scripted(echo), ServingLimits(pause_first_s=0.01))
        lines.set_access(fleet.access())
        work = asyncio.create_task(lines.run())
        try:
            await asyncio.sleep(0.3)
            assert not relay.reachable(HOLDER)
            fleet.unsealer = heard
            await until(lambda: relay.reachable(HOLDER), 10)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


async def test_who_asks_is_told_when_a_holder_arrives_and_not_of_each_line(fleet):
    go, arrivals = asyncio.Event(), []
    fleet.relay.on_arrival = lambda: arrivals.append(fleet.relay.reachable(HOLDER))

    async def waits(request, body):
        await go.wait()
        yield b"done"

    async with fleet.serving(Scripted(waits)):
        asks = [asyncio.create_task(gather(fleet.relay.ask(fleet.ask(), no_body()))) for _ in range(2)]
        await until(lambda: fleet.relay.figures().serving_lines >= 2)
        go.set()
        assert await asyncio.gather(*asks) == [b"done"] * 2
        assert arrivals == [True]


async def test_a_line_ends_with_its_pass_and_the_next_comes_with_a_new_one(quick):
    async with quick.serving(Scripted(echo), access=quick.access(lives_s=2.0)) as lines:
        lines.set_access(quick.access())
        first = next(quick.relay._holders.of(HOLDER))
        await until(lambda: first.why, 10)
        await until(lambda: quick.relay.reachable(HOLDER), 10)
        assert await works(quick)


async def test_a_node_that_is_shut_out_comes_back_only_when_it_may(quick):
    async with quick.serving(Scripted(echo)):
        quick.relay.deny([Denial(HOLDER, time.time() + 1.0)])
        await until(lambda: not quick.relay.reachable(HOLDER))
        await asyncio.sleep(0.4)
        assert not quick.relay.reachable(HOLDER)
        await until(lambda: quick.relay.reachable(HOLDER))
        assert await works(quick)


@pytest.mark.parametrize("way", [SERVING, ASKING])
async def test_a_node_that_is_shut_out_while_it_is_let_in_gets_no_line(quick, monkeypatch, way):
    admit = quick.relay._admit

    async def shut_out(line):
        admitted = await admit(line)
        quick.relay.deny([Denial(OTHER, time.time() + 60.0)])
        return admitted

    monkeypatch.setattr(quick.relay, "_admit", shut_out)
    async with RawPeer.dial(quick.port) as peer:
        peer.say(Hello(1, way, quick.pass_(OTHER, Role.WORKER)))
        assert isinstance(await peer.hear(), Admitted)
        assert "not let in" in (await peer.hear()).reason
        assert await peer.hear() is None
        assert not quick.relay.reachable(OTHER)
        assert quick.relay.figures().asking_lines == 0


async def test_a_reader_that_is_shut_out_is_not_answered_on_the_line_that_it_has(quick):
    async with quick.serving(Scripted(echo)), quick.asking() as far:
        good = quick.ask_of_worker("pack")
        assert await gather(far.ask(good, body_of(b"1"))) == b"heard:1"
        quick.relay.deny([Denial(OTHER, time.time() + 60.0)])
        await until(lambda: quick.relay.figures().asking_lines == 0)
        with pytest.raises((HolderAway, HolderRefused)):  # its end of the line may not have heard of it yet
            await gather(far.ask(good, body_of(b"2")))
        with pytest.raises(HolderRefused, match="not let in"):
            await gather(far.ask(good, body_of(b"2")))
        assert await works(quick)


async def test_a_reader_and_a_holder_that_are_shut_out_lose_what_is_under_way(quick):
    begun = asyncio.Event()

    async def endless(request, body):
        yield b"some"
        begun.set()
        await asyncio.Event().wait()

    for node in (OTHER, HOLDER):
        begun.clear()
        quick.relay.deny([])
        async with quick.serving(Scripted(endless)), quick.asking() as far:
            reading = asyncio.create_task(gather(far.ask(quick.ask_of_worker(), no_body())))
            await begun.wait()
            quick.relay.deny([Denial(node, time.time() + 60.0)])
            with pytest.raises((AnswerBroken, HolderAway)):
                await reading


async def test_the_ticket_of_a_trusted_reader_opens_nothing_to_one_whose_pass_is_not(quick):
    async with quick.serving(service := Scripted(echo)), quick.asking() as far:
        for trusted in (True, False):
            pass_ = quick.pass_(OTHER, Role.WORKER, trusted=trusted)
            ask = quick.ask("pack", pass_=pass_, ticket=quick.ticket(trusted=True))
            if trusted:
                assert await gather(far.ask(ask, body_of(b"1"))) == b"heard:1"
            else:
                with pytest.raises(HolderRefused, match="trusted"):
                    await gather(far.ask(ask, body_of(b"2")))
        assert [request.ticket.trusted for request in service.requests] == [True]


async def test_a_reader_whose_pass_ends_is_not_answered_on_the_line_that_it_has(fleet):
    async with fleet.serving(Scripted(echo)), fleet.asking() as far:
        lives_s = 2.0  # an idle line would live longer
        ask = fleet.ask("pack", pass_=fleet.pass_(lives_s=lives_s))
        assert await gather(far.ask(ask, body_of(b"1"))) == b"heard:1"
        await asyncio.sleep(lives_s)
        with pytest.raises(ReaderRefused, match="ended"):
            await gather(far.ask(ask, body_of(b"2")))


async def test_a_holder_cannot_say_that_the_relay_refused_the_reader(quick):
    async def refuses(request, body):
        raise ReaderRefused("go away")
        yield b""

    async with quick.serving(Scripted(refuses)), quick.asking() as far:
        for reach in (quick.relay, far):
            with pytest.raises(HolderRefused, match="go away") as refused:
                await gather(reach.ask(quick.ask(), no_body()))
            assert refused.type is HolderRefused


async def test_a_holder_that_is_just_away_is_waited_for(quick):
    async with quick.serving(Scripted(echo)):
        for line in quick.relay._holders.of(HOLDER):
            line.abort("cut")
        assert await works(quick)
    await until(lambda: not quick.relay.reachable(HOLDER))
    began = time.monotonic()
    with pytest.raises(HolderAway):
        await gather(quick.relay.ask(quick.ask(), no_body()))
    assert time.monotonic() - began < 10
    await until(lambda: not quick.relay._holders._holders, 5)  # and is forgotten
    with pytest.raises(HolderAway, match="not connected"):
        await gather(quick.relay.ask(quick.ask(), no_body()))


async def test_a_worker_that_leaves_closes_its_lines(quick):
    async with quick.serving(Scripted(echo)) as lines:
        lines.set_access(None)
        await until(lambda: not quick.relay.reachable(HOLDER))
        assert lines.connected == ()
        lines.set_access(quick.access())
        await until(lambda: quick.relay.reachable(HOLDER))


async def test_another_relay_is_asked_where_one_is_down(quick):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        dead = RelayAddress(f"127.0.0.1:{taken.getsockname()[1]}", "0" * 64)
        async with quick.serving(Scripted(echo)), quick.asking(dead, quick.address) as reach:
            for _ in range(4):
                assert await gather(reach.ask(quick.ask("pack"), body_of(b"!"))) == b"heard:!"
