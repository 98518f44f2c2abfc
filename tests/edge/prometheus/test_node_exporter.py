"""Node exporters are read: the real one, and what others may answer."""

from __future__ import annotations

import asyncio
import os
import time
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.pull.node_load import node_load
from evermirror.edge.prometheus import node_exporter
from evermirror.edge.prometheus.node_exporter import NodeExporter, NotTold, sample_of
from evermirror.model.pull import LoadLevel
from tests.support.exporter import real_exporter, served_exporter
from tests.support.raw_server import raw_server


async def test_the_real_exporter_is_understood():
    with real_exporter() as url:
        exporter = NodeExporter(url)
        before = await exporter.look(time.monotonic())
        await asyncio.sleep(1.2)
        after = await exporter.look(time.monotonic())
    assert len(before.cpus) == os.cpu_count()
    assert all({"idle", "iowait", "user", "system"} <= set(modes) for modes in before.cpus.values())
    assert before.memory_available is not None
    assert 0 < before.memory_available < 1
    assert "device=lo" not in before.network_bytes
    assert before.running_processes is not None
    load = node_load(before, after)
    assert load is not None
    assert load.reason.startswith("cpu ")
    assert "% of memory available" in load.reason


async def test_a_served_text_is_high_or_low_as_its_cpus_are():
    async with served_exporter(percent=93.0) as served:
        exporter = NodeExporter(served.url)
        before, after = await exporter.look(0.0), await exporter.look(10.0)
        busy = node_load(before, after)
        served.percent = 7.0
        calm = node_load(after, await exporter.look(20.0))
    assert busy is not None
    assert calm is not None
    assert (busy.level, calm.level) == (LoadLevel.HIGH, LoadLevel.LOW)
    assert busy.reason == "cpu 93 %, 50 % of memory available, network 100.0 kB/s"


def answering(*parts: bytes):
    async def talk(conversation):
        await conversation.request()
        for part in parts:
            await conversation.say(part)
        await asyncio.sleep(30)

    return talk


OK = b"HTTP/1.1 200 OK\r\n"
CPU = b'node_cpu_seconds_total{cpu="0",mode="idle"} 5\n'


async def told_by(talk) -> str:
    async with raw_server(talk) as server:
        with pytest.raises(NotTold) as told:
            await NodeExporter(f"http://127.0.0.1:{server.port}/metrics").look(0.0)
    assert server.connections == 1
    return str(told.value)


async def test_a_redirect_is_not_followed():
    async def talk(conversation):
        head = await conversation.request()
        host = head.split(b"Host: ")[1].split(b"\r\n")[0] if b"Host: " in head else b"127.0.0.1"
        await conversation.say(
            b"HTTP/1.1 302 Found\r\nLocation: http://" + host + b"/x\r\nContent-Length: 0\r\n\r\n"
        )

    assert await told_by(talk) == "it answers HTTP 302"


async def test_an_answer_without_end_is_cut_off(monkeypatch):
    monkeypatch.setattr(node_exporter, "TEXT_BYTES_MAX", 10_000)
    endless = OK + b"Content-Length: 999999999\r\n\r\n"
    assert "longer than 10000 bytes" in await told_by(answering(endless, CPU * 1000))


async def test_a_silent_one_is_given_up(monkeypatch):
    monkeypatch.setattr(node_exporter, "TIMEOUT_S", 1.0)
    assert "within 1 s" in await told_by(answering(OK))


async def test_a_slow_trickle_is_given_up(monkeypatch):
    monkeypatch.setattr(node_exporter, "TIMEOUT_S", 1.0)

    async def talk(conversation):
        await conversation.request()
        await conversation.say(OK + b"Content-Length: 9999\r\n\r\n")
        for _ in range(100):
            await conversation.say(b"#")
            await asyncio.sleep(0.05)

    assert "within 1 s" in await told_by(talk)


async def test_what_tells_nothing_of_cpus_is_no_node_exporter():
    assert "is it a node exporter" in await told_by(answering(OK + b"Content-Length: 5\r\n\r\nhello"))


async def test_where_nothing_listens_it_says_so():
    with pytest.raises(NotTold):
        await NodeExporter("http://127.0.0.1:1/metrics").look(0.0)


def test_its_name_holds_no_secret():
    assert NodeExporter("http://me:hunter2@gitlab.example.org:9100/metrics?key=1").name == (
        "gitlab.example.org:9100"
    )


def test_git_processes_are_those_of_a_process_exporter():
    text = (
        'namedprocess_namegroup_num_procs{groupname="git"} 12\n'
        'namedprocess_namegroup_num_procs{groupname="git-http-backend"} 3\n'
        'namedprocess_namegroup_num_procs{groupname="sshd"} 40\n'
    )
    assert sample_of(text, 0.0).git_processes == 15


def test_labels_may_hold_anything_in_quotes():
    text = 'node_cpu_seconds_total{cpu="0",note="a } \\" mode=\\"x\\" {",mode="idle"} 7 1700000000000\n'
    (modes,) = sample_of(text, 0.0).cpus.values()
    assert modes == {"idle": 7.0}


def test_nodes_that_one_server_passes_on_are_told_apart():
    lines = [f'node_cpu_seconds_total{{cpu="0",instance="{n}",mode="idle"}} {n}' for n in "12"]
    assert len(sample_of("\n".join(lines), 0.0).cpus) == 2


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e400", "0x10", "", "1_000x", "{}"])
def test_values_that_cannot_be_are_passed_over(value):
    assert sample_of(f'node_cpu_seconds_total{{cpu="0",mode="idle"}} {value}\n', 0.0).cpus == {}


@pytest.mark.parametrize("bad", ['{ ="x"} 1', " " + "9" * 400, " 1 " + "9" * 400, "{", "{a=1} 1", "} 1"])
def test_a_bad_line_costs_no_other(bad):
    good = 'node_cpu_seconds_total{cpu="0",mode="idle"} 7'
    text = f"{good}\nnode_cpu_seconds_total{bad}\n{good.replace('idle', 'user')}\n"
    assert list(sample_of(text, 0.0).cpus.values()) == [{"idle": 7.0, "user": 7.0}]


pieces = st.sampled_from(
    [
        "node_cpu_seconds_total", "node_memory_MemAvailable_bytes", "node_memory_MemTotal_bytes",
        "node_procs_running", "namedprocess_namegroup_num_procs", '{cpu="0",mode="idle"}', '{cpu="1"',
        'mode="user"}', "{", "}", '"', "\\", " ", "\n", "1", "1e308", "NaN", "-5", "0", '{groupname="git"}',
        "=", ",", "\t", "#", "9" * 400,
    ]
)  # fmt: skip


@given(st.lists(pieces | st.text(), max_size=60).map("".join))
def test_any_text_is_a_sample(text):
    sample = sample_of(text, 1.0)
    assert sample.memory_available is None or 0 <= sample.memory_available <= 1
    assert all(isfinite(s) and s >= 0 for modes in sample.cpus.values() for s in modes.values())
    node_load(sample, sample_of(text + "\n" + text, 2.0))


@pytest.mark.parametrize("piece", ['a="', "a", " ", "{}", 'a="\\"', "\\", '"', "}", "1 "])
@pytest.mark.parametrize("size", [3_900, 1_900_000])
def test_a_hostile_text_takes_no_time(piece, size):
    line = "node_cpu_seconds_total{" + piece * (size // len(piece)) + "} 1"
    hostile = "\n".join([line] * (1_900_000 // len(line) or 1))
    began = time.process_time()
    sample_of(hostile, 0.0)
    assert time.process_time() - began < 2.0
