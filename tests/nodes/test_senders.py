"""Channels made from settings reach real receivers; what fails shows no secret, as reason or in the log."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import pytest
import structlog

from evermirror.config import Config, load_config
from evermirror.core.watch.events import AlertSettings, Channel
from evermirror.core.watch.texts import compose_test
from evermirror.edge.notify.sender import NotSent
from evermirror.log import setup_logging
from evermirror.model.alert import Message
from evermirror.nodes.senders import make_senders
from tests.support.http_sink import HttpSink, Reply, Taken, http_sink
from tests.support.raw_server import Conversation, raw_server
from tests.support.smtp_sink import smtp_sink

CANARY = "c4n4ry"
URL_TYPES = ("dingtalk", "wecom", "webhook")


def message(language: str = "en") -> Message:
    return compose_test(Channel("a", "wecom", language=language), AlertSettings(server="mirror-1"), 1.79e9)


def config_of(folder: Path, *, http: HttpSink | int, smtp_port: int, syslog_port: int) -> Config:
    base = http.base if isinstance(http, HttpSink) else f"http://127.0.0.1:{http}"
    file = folder / "evermirror.toml"
    urls = "".join(
        f'[channels.{name}]\ntype = "{name}"\nurl = "{base}/{CANARY}-path/?key={CANARY}-key%2Bx"\n'
        + (f'secret = "{CANARY}-secret-of-it"\n' if name != "wecom" else "")
        for name in URL_TYPES
    )
    file.write_text(
        urls
        + f'[channels.mail]\ntype = "mail"\nhost = "127.0.0.1"\nport = {smtp_port}\ntls = "none"\n'
        + 'sender = "a@example.org"\nto = ["b@example.org"]\n'
        + f'[channels.syslog]\ntype = "syslog"\ntransport = "tcp"\naddress = "127.0.0.1:{syslog_port}"\n'
    )
    return load_config(file, {}, {})


@pytest.fixture
def logged():
    """What a process of ours would log, at its most talkative, and what libraries log without our masks."""
    text, bare = io.StringIO(), logging.StreamHandler(io.StringIO())
    bare.setLevel(logging.DEBUG)
    before = logging.getLogger().handlers[:], logging.getLogger().level
    setup_logging("debug", "json", stream=text)  # no secrets are told to it: they must not come so far
    logging.getLogger().addHandler(bare)
    yield lambda: text.getvalue() + bare.stream.getvalue()
    logging.getLogger().handlers[:], logging.getLogger().level = before
    structlog.reset_defaults()


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_a_test_message_reaches_every_receiver(tmp_path, language):
    heard: list[bytes] = []

    async def listen(c: Conversation) -> None:
        heard.append(await c.reader.read(100_000))

    with http_sink(Reply(body=b'{"errcode": 0}')) as http, smtp_sink() as smtp:
        async with raw_server(listen) as syslog:
            config = config_of(tmp_path, http=http, smtp_port=smtp.port, syslog_port=syslog.port)
            for sender in make_senders(config).values():
                await sender.send(message(language))
    assert len(http.taken) == 3
    assert len(smtp.mails) == 1
    size, _, record = heard[0].partition(b" ")
    assert int(size) == len(record)
    assert record.startswith(b"<30>1 ")


def repeats_everything(request: Taken) -> Reply:
    """The worst of all receivers: it says what it was told."""
    told = f"{request.target} {request.headers}".replace('"', "")
    return Reply(body=f'{{"errcode": 1, "errmsg": "{told}"}}'.encode())


async def failing_reasons(config: Config) -> dict[str, str]:
    reasons = {}
    for name, sender in make_senders(config).items():
        try:
            await sender.send(message())
        except NotSent as error:
            reasons[name] = error.reason + repr(error) + str(error.__cause__)
    return reasons


async def test_no_secret_is_in_reasons_or_logs_whatever_receivers_say(tmp_path, logged):
    with http_sink(repeats_everything) as http, smtp_sink() as smtp:
        config = config_of(tmp_path, http=http, smtp_port=smtp.port, syslog_port=1)
        reasons = await failing_reasons(config)
    assert {"dingtalk", "wecom", "syslog"} <= set(reasons)
    assert "errcode 1" in reasons["dingtalk"]
    assert CANARY not in str(reasons)
    assert "httpx2" in logged()  # the library did speak
    assert CANARY not in logged()


async def test_no_secret_is_in_reasons_or_logs_when_nobody_is_there(tmp_path, logged):
    async with raw_server(_hang_up) as server:
        config = config_of(tmp_path, http=server.port, smtp_port=server.port, syslog_port=server.port)
        reasons = await failing_reasons(config)
    reasons |= {f"{name} gone": reason for name, reason in (await failing_reasons(config)).items()}
    assert {"dingtalk", "wecom", "webhook", "mail"} <= set(reasons)
    assert {f"{name} gone" for name in (*URL_TYPES, "mail", "syslog")} <= set(reasons)
    assert CANARY not in str(reasons)
    assert CANARY not in logged()


async def _hang_up(c: Conversation) -> None:
    await c.reader.read(100)
