"""The resolver: every address is checked, the answer is pinned, and many askers cost one lookup."""

import asyncio
import socket

import pytest

from evermirror.edge.net.resolver import Resolver, SystemLookup
from evermirror.model.address import AllowList
from evermirror.model.failure import FailureError, FailureKind


class Names:
    """A name system that answers from a table, counts, and can be held up."""

    def __init__(self, **table):
        self.table = {name.replace("_", "."): answer for name, answer in table.items()}
        self.asked = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, host, port):
        self.asked.append(host)
        await self.gate.wait()
        answer = self.table.get(host, socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
        if isinstance(answer, Exception):
            raise answer
        return answer


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def resolver(names, *allow, **options):
    return Resolver(AllowList.parse(allow), lookup=names, **options)


async def failure_of(awaitable):
    with pytest.raises(FailureError) as raised:
        await awaitable
    return raised.value.failure


async def test_public_addresses_are_returned_in_their_order():
    names = Names(h_example=["2606:4700::1", "8.8.8.8"])
    assert await resolver(names).resolve("h.example", 443) == ("2606:4700::1", "8.8.8.8")


@pytest.mark.parametrize(
    "bad", ["10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "64:ff9b::a00:1", "fe80::1%2"]
)
async def test_one_internal_address_among_public_ones_refuses_the_host(bad):
    names = Names(h_example=["8.8.8.8", bad])
    failure = await failure_of(resolver(names).resolve("h.example", 443))
    assert failure.kind is FailureKind.UNKNOWN
    assert "an address of h.example is internal" in failure.message
    assert bad not in failure.message + failure.hint  # whoever reads failures would learn our network
    assert failure.context["address"] == bad
    assert "upstreams.allow" in failure.hint


@pytest.mark.parametrize(
    "allow", ["h.example", "*.example", "10.0.0.0/8", "10.0.0.1", "h.example:443", "10.0.0.1:443"]
)
async def test_the_operator_allows_a_host_or_its_network(allow):
    names = Names(h_example=["10.0.0.1", "8.8.8.8"])
    assert await resolver(names, allow).resolve("h.example", 443) == ("10.0.0.1", "8.8.8.8")


async def test_what_is_allowed_on_one_port_is_refused_on_another():
    names = Names(h_example=["10.0.0.1"])
    subject = resolver(names, "h.example:8443")
    assert await subject.resolve("h.example", 8443) == ("10.0.0.1",)
    assert (await failure_of(subject.resolve("h.example", 443))).kind is FailureKind.UNKNOWN


async def test_an_allowed_network_does_not_excuse_another_address():
    names = Names(h_example=["10.0.0.1", "192.168.0.1"])
    failure = await failure_of(resolver(names, "10.0.0.0/8").resolve("h.example", 443))
    assert failure.context["address"] == "192.168.0.1"


async def test_an_address_is_judged_without_a_lookup():
    names = Names()
    assert await resolver(names).resolve("8.8.8.8", 443) == ("8.8.8.8",)
    assert (await failure_of(resolver(names).resolve("127.0.0.1", 80))).kind is FailureKind.UNKNOWN
    assert await resolver(names, "127.0.0.1").resolve("127.0.0.1", 80) == ("127.0.0.1",)
    assert names.asked == []


async def test_the_answer_is_pinned_until_it_expires(clock):
    names = Names(h_example=["8.8.8.8"])
    subject = resolver(names, clock=clock, ttl_s=60)
    await subject.resolve("h.example", 443)
    names.table["h.example"] = ["127.0.0.1"]
    clock.now += 59.9
    assert await subject.resolve("h.example", 443) == ("8.8.8.8",)
    clock.now += 0.1
    assert (await failure_of(subject.resolve("h.example", 443))).kind is FailureKind.UNKNOWN
    assert len(names.asked) == 2


async def test_a_name_that_fails_is_weather_and_asked_again_soon(clock):
    names = Names()
    subject = resolver(names, clock=clock)
    for _ in range(3):
        failure = await failure_of(subject.resolve("gone.example", 443))
    assert failure.kind is FailureKind.NETWORK_TIMEOUT
    assert failure.message == "cannot resolve gone.example: Name or service not known"
    assert len(names.asked) == 1
    names.table["gone.example"] = ["8.8.8.8"]
    clock.now += 5
    assert await subject.resolve("gone.example", 443) == ("8.8.8.8",)


@pytest.mark.parametrize(
    "answer", [[], OSError(5, "I/O error"), UnicodeError("label too long"), TimeoutError()]
)
async def test_whatever_goes_wrong_is_a_network_failure(answer):
    failure = await failure_of(resolver(Names(h_example=answer)).resolve("h.example", 443))
    assert failure.kind is FailureKind.NETWORK_TIMEOUT


async def test_a_name_server_that_never_answers_is_given_up_on():
    names = Names(h_example=["8.8.8.8"])
    names.gate.clear()
    failure = await failure_of(resolver(names, timeout_s=0.01).resolve("h.example", 443))
    assert failure.message == "cannot resolve h.example: no answer in 0.01 s"


async def test_many_askers_share_one_lookup_and_one_giving_up_harms_no_other():
    names = Names(h_example=["8.8.8.8"])
    names.gate.clear()
    subject = resolver(names)
    first = asyncio.create_task(subject.resolve("h.example", 443))
    others = [asyncio.create_task(subject.resolve("h.example", 443)) for _ in range(50)]
    while not names.asked:
        await asyncio.sleep(0)
    first.cancel()
    names.gate.set()
    assert await asyncio.gather(*others) == [("8.8.8.8",)] * 50
    assert first.cancelled()
    assert names.asked == ["h.example"]


async def test_the_cache_is_bounded_and_forgets_the_oldest():
    names = Names(**{f"h{i}_example": ["8.8.8.8"] for i in range(5)})
    subject = resolver(names, cache_max=3)
    for i in range(5):
        await subject.resolve(f"h{i}.example", 443)
    names.asked.clear()
    await subject.resolve("h4.example", 443)
    await subject.resolve("h0.example", 443)
    assert names.asked == ["h0.example"]


async def test_closing_ends_lookups_under_way():
    names = Names(h_example=["8.8.8.8"])
    names.gate.clear()
    subject = resolver(names)
    waiting = asyncio.create_task(subject.resolve("h.example", 443))
    while not names.asked:
        await asyncio.sleep(0)
    subject.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_the_real_resolver_refuses_localhost_unless_allowed():
    strict = Resolver(AllowList())
    open_ = Resolver(AllowList.parse(["localhost"]))
    try:
        failure = await failure_of(strict.resolve("localhost", 443))
        assert failure.kind is FailureKind.UNKNOWN
        assert "an address of localhost is internal" in failure.message
        found = await open_.resolve("localhost", 443)
        assert set(found) & {"127.0.0.1", "::1"}
        assert len(set(found)) == len(found)
    finally:
        strict.close()
        open_.close()


@pytest.mark.parametrize("name", ["127.1", "0x7f.1", "2130706433", "0177.1"])
async def test_odd_spellings_of_loopback_do_not_pass_the_real_resolver(name):
    subject = Resolver(AllowList())
    try:
        await failure_of(subject.resolve(name, 80))
    finally:
        subject.close()


async def test_the_real_resolver_tells_a_name_that_cannot_exist():
    subject = Resolver(AllowList(), lookup=SystemLookup(threads=1))
    try:
        for name in ("no-such-host.invalid", "x" * 64 + ".invalid"):
            failure = await failure_of(subject.resolve(name, 443))
            assert failure.kind is FailureKind.NETWORK_TIMEOUT
    finally:
        subject.close()
