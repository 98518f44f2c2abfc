"""Syslog, read by a real rsyslogd: over UDP, TCP and TLS, of bounded size, with hostile names."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from dataclasses import replace

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.edge.notify.here import host_name
from evermirror.edge.notify.sender import NotSent
from evermirror.edge.notify.syslog import (
    DATAGRAM_BYTES_MAX,
    Syslog,
    SyslogSettings,
    Transport,
    syslog_records,
)
from evermirror.model.alert import Level, Turn
from tests.conftest import _not_installed
from tests.edge.notify.messages import CHINESE, ITEM, MESSAGE, OVER, digest, hostile_message, messages
from tests.support.ports import free_port
from tests.support.raw_server import Conversation, raw_server
from tests.support.rsyslog import Rsyslog, find_rsyslogd, has_tls


@pytest.fixture(scope="module")
def program():
    return find_rsyslogd() or _not_installed("rsyslogd", "rsyslog")


@pytest.fixture
def rsyslog(program, tmp_path):
    server = Rsyslog(tmp_path / "rsyslog", program)
    yield server
    server.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ca")
    ca = trustme.CA()
    cert = ca.issue_cert("localhost")
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    cert.private_key_pem.write_to_path(str(folder / "key.pem"))
    for part in cert.cert_chain_pems:
        part.write_to_path(str(folder / "cert.pem"), append=True)
    return folder / "ca.pem", folder / "cert.pem", folder / "key.pem"


def to(server: Rsyslog, transport: Transport, **more: object) -> Syslog:
    return Syslog(SyslogSettings("localhost", server.port, transport, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("transport", [Transport.UDP, Transport.TCP])
async def test_rsyslog_reads_every_field(rsyslog, transport):
    items = (
        ITEM,
        replace(OVER, level=Level.CRITICAL),
        replace(ITEM, level=Level.CRITICAL, about='q"u]o\\te'),
    )
    message = replace(MESSAGE, items=(*items, replace(ITEM, turn=Turn.TEST, alert=None)), more=9)
    await to(rsyslog, transport, facility="local3").send(message)
    told = sorted(rsyslog.records(5), key=lambda r: (r["msgid"], r["severity"]))
    assert [r["severity"] for r in told] == ["err", "crit", "err", "info", "notice"]
    assert {r["facility"] for r in told} == {"local3"}
    assert {(r["version"], r["host"], r["app"], r["procid"]) for r in told} == {
        ("1", "mirror-1", "evermirror", "-")
    }
    assert {r["time"] for r in told} == {"2026-11-16T00:00:00.000Z"}
    assert [r["msgid"] for r in told] == ["more", *["project-failing"] * 4]
    rest, critical_one, error, _, over_one = told
    assert error["data"] == (
        '[evermirror@32473 kind="project-failing" about="openeuler/kernel" level="error" turn="raised"'
        ' server="mirror-1" alert="12"]'
    )
    assert error["msg"].strip() == f"Error: Project fails (openeuler/kernel): {ITEM.text}"
    assert 'about="q\\"u\\]o\\\\te"' in critical_one["data"]
    assert 'turn="over"' in over_one["data"]
    assert 'more="9"' in rest["data"]


@pytest.mark.parametrize("transport", [Transport.UDP, Transport.TCP])
async def test_chinese_arrives(rsyslog, transport):
    await to(rsyslog, transport).send(CHINESE)
    (told,) = rsyslog.records(1)
    assert told["msg"].strip(" \ufeff") == (
        "错误：项目同步失败 (openeuler/kernel)：连续失败 3 次：无法解析 gitlab.example.org"
    )
    assert 'server="北京镜像"' in told["data"]
    assert told["host"] == host_name()


@pytest.mark.parametrize("transport", [Transport.UDP, Transport.TCP])
async def test_a_long_digest_arrives_whole_and_long_texts_are_cut(rsyslog, transport):
    await to(rsyslog, transport).send(digest(100))
    assert len({r["data"] for r in rsyslog.records(100)}) == 100
    await to(rsyslog, transport).send(replace(MESSAGE, items=(replace(ITEM, text="镜" * 9000),)))
    long = rsyslog.records(101)[-1]
    assert long["msg"].endswith("镜…")
    assert 1000 < len(long["raw"].encode()) <= (2048 if transport is Transport.UDP else 8192)


async def test_a_hostile_name_is_one_record(rsyslog):
    for transport in (Transport.UDP, Transport.TCP):
        await to(rsyslog, transport).send(hostile_message())
        await to(rsyslog, transport).send(hostile_message('x"] <0>1 - - - - - forged\n<0>1 forged'))
    told = rsyslog.records(4)
    assert len(told) == 4
    assert {r["app"] for r in told} == {"evermirror"}
    assert {r["severity"] for r in told} == {"err"}


async def test_tls_with_a_checked_certificate(program, authority, tmp_path):
    if not has_tls():
        _not_installed("rsyslog's TLS driver", "rsyslog-openssl")
    server = Rsyslog(tmp_path / "rsyslog", program, authority)
    try:
        await to(server, Transport.TLS, ca_file=authority[0]).send(digest(30))
        assert len(server.records(30)) == 30
        with pytest.raises(NotSent, match="certificate is not trusted"):
            await to(server, Transport.TLS).send(MESSAGE)
        elsewhere = SyslogSettings("127.0.0.1", server.port, Transport.TLS, ca_file=authority[0])
        with pytest.raises(NotSent, match="certificate is not trusted"):
            await Syslog(elsewhere).send(MESSAGE)
        assert len(server.records(30)) == 30
    finally:
        server.close()


async def test_a_receiver_that_wants_a_certificate_of_us_has_not_taken_the_message(
    program, authority, tmp_path
):
    if not has_tls():
        _not_installed("rsyslog's TLS driver", "rsyslog-openssl")
    server = Rsyslog(tmp_path / "rsyslog", program, authority, clients_checked=True)
    try:
        with pytest.raises(NotSent):
            await to(server, Transport.TLS, ca_file=authority[0]).send(MESSAGE)
    finally:
        server.close()


@pytest.mark.parametrize("transport", list(Transport))
async def test_a_receiver_that_is_not_there_is_told(transport):
    with pytest.raises(NotSent, match="Connection refused"):
        await Syslog(SyslogSettings("127.0.0.1", free_port(), transport)).send(MESSAGE)
    with pytest.raises(NotSent):
        await Syslog(SyslogSettings("nowhere.invalid", 514, transport), timeout_s=5).send(MESSAGE)


async def test_a_datagram_goes_to_the_first_address_of_a_name_that_does_not_refuse_it(monkeypatch):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(5)
        port = receiver.getsockname()[1]

        async def two(host: str, port: int, **_: object) -> list[object]:
            addresses = ("127.0.0.2", "127.0.0.1")  # nobody listens at the first
            return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", (address, port)) for address in addresses]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", two)
        await Syslog(SyslogSettings("log.example.org", port)).send(MESSAGE)
        assert b"openeuler/kernel" in receiver.recv(4096)
    with pytest.raises(NotSent, match="Connection refused"):
        await Syslog(SyslogSettings("log.example.org", port)).send(MESSAGE)


async def test_a_receiver_that_reads_nothing_takes_no_longer_than_the_timeout():
    async def deaf(c: Conversation) -> None:
        c.writer.transport.pause_reading()
        await c.request()

    async with raw_server(deaf) as server:
        begun = time.monotonic()
        deaf_one = SyslogSettings("127.0.0.1", server.port, Transport.TLS)
        with pytest.raises(NotSent, match=r"no answer within 0\.5 s"):
            await Syslog(deaf_one, timeout_s=0.5).send(digest(100))
        assert time.monotonic() - begun < 9  # and not the usual ten


async def test_a_receiver_that_stops_reading_in_the_middle_takes_no_longer_than_the_timeout():
    """More than the buffers of two systems hold: what fits into them has left us, for all that TCP tells."""

    async def deaf(c: Conversation) -> None:
        c.writer.transport.pause_reading()
        await c.request()

    async with raw_server(deaf) as server:
        begun = time.monotonic()
        to_it = SyslogSettings("127.0.0.1", server.port, Transport.TCP)
        long = replace(MESSAGE, items=(replace(ITEM, text="x" * 8000),) * 2000)
        with pytest.raises(NotSent, match=r"no answer within 1\.5 s"):
            await Syslog(to_it, timeout_s=1.5).send(long)
        assert time.monotonic() - begun < 9  # and not the usual ten


async def test_a_reset_is_a_failure():
    async def resets(c: Conversation) -> None:
        await c.reader.read(10)
        c.reset()

    async with raw_server(resets) as server:
        to_it = SyslogSettings("127.0.0.1", server.port, Transport.TCP)
        long = replace(MESSAGE, items=(replace(ITEM, text="x" * 8000),) * 100)
        with pytest.raises(NotSent, match=r"Connection reset|Broken pipe"):
            await Syslog(to_it).send(long)


RECORD = re.compile(
    rb"<(\d{1,3})>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ([!-~]{1,255}) evermirror - ([!-~]{1,32}) "
    rb'\[evermirror@32473(?: [a-z]+="(?:[^"\\\]]|\\["\\\]])*")+\] (?:\xef\xbb\xbf)?(.*)',
    re.DOTALL,
)


@given(message=messages, limit=st.sampled_from([DATAGRAM_BYTES_MAX, 8192]))
@settings(max_examples=60, deadline=None)
def test_every_record_is_of_the_grammar_and_within_its_bound(message, limit):
    records = syslog_records(message, "daemon", limit)
    assert len(records) == len(message.items) + (message.more > 0)
    for record in records:
        found = RECORD.fullmatch(record)
        assert found, record
        assert len(record) <= limit
        assert not re.search(rb"[\x00-\x1f\x7f]", record)
        record.decode("utf-8")
        assert 24 <= int(found[1]) < 32
