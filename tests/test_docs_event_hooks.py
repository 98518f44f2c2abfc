"""The pages about events say what the program does for other servers: settings, messages, signatures."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import tomllib
from pathlib import Path

import pytest

from evermirror.config import load_config
from evermirror.config.schema import all_settings
from evermirror.core.deliver import courier
from evermirror.core.deliver.decisions import Item, Post
from evermirror.core.deliver.message import message_body
from evermirror.core.events.schema import event_json
from evermirror.edge.notify.receiver import DELIVERY_HEADER, EVENT_HEADER, Receiver
from evermirror.edge.notify.signing import SIGNATURE_HEADER, signature
from evermirror.model.event import Event, EventId
from evermirror.model.repo import RepoKey
from tests.support.event_receiver import SECRET, event_receiver

DOCS = Path(__file__).parent.parent / "docs"
PAGES = {"events.md": "## Told to other servers", "events.zh-CN.md": "## 推送给其他服务器"}
BODY = '{"version":1,"hook":"ci","events":[{"data":"主分支\\u0000"}]}\n'.encode()


def part(name: str) -> str:
    """What is about other servers."""
    text = (DOCS / name).read_text("utf-8")
    assert PAGES[name] in text
    after = text.partition(PAGES[name])[2]
    return re.split(r"^## ", after, maxsplit=1, flags=re.MULTILINE)[0]


def block(name: str, language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", part(name), re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.mark.parametrize("name", PAGES)
def test_the_settings_that_are_shown_can_be_used_and_none_is_left_out(name, tmp_path):
    shown = tomllib.loads(block(name, "toml"))["event_hooks"]["ci"]
    keys = {setting.path[-1] for setting in all_settings() if setting.path[0] == "event_hooks"}
    assert {key.removesuffix("_file") if key == "secret_file" else key for key in shown} == keys
    (tmp_path / "secret").write_text(SECRET)
    text = block(name, "toml").replace("/run/secrets/ci-hook-secret", str(tmp_path / "secret"))
    (tmp_path / "evermirror.toml").write_text(text)
    assert load_config(tmp_path / "evermirror.toml", {}, {}).event_hooks["ci"].batch == 50


@pytest.mark.parametrize("name", PAGES)
async def test_messages_look_as_shown_and_have_the_headers(name):
    shown = json.loads(block(name, "json"))
    event = Event(
        EventId(1794787200000001), "refs.changed", 1794787200.0, RepoKey("github.com/acme/x"), "w1", {}, True
    )
    item = Item(event.id, event.type, event.at, event_json(event))
    assert json.loads(message_body("ci", [item])) == shown
    with event_receiver() as there:
        await Receiver("ci", there.url, SECRET).post(Post("d", (item,)))
    (sent,) = there.sink.taken
    for header in (SIGNATURE_HEADER, DELIVERY_HEADER, EVENT_HEADER):
        assert header.lower() in sent.headers
        assert f"| `{header}` |" in part(name)


def headers() -> list[tuple[str, bool]]:
    now = int(time.time())
    return [
        (signature(SECRET, now, BODY), True),
        (signature(SECRET, now - 250, BODY), True),
        (signature(SECRET, now + 250, BODY), True),
        (signature(SECRET, now - 400, BODY), False),
        (signature(SECRET, now + 400, BODY), False),
        (signature(SECRET, now, BODY + b"x"), False),
        (signature("another", now, BODY), False),
        (signature(SECRET, now, BODY).replace(f"t={now}", f"t={now + 1}"), False),
    ]


@pytest.mark.parametrize("name", PAGES)
def test_the_check_in_python_works(name):
    known: dict[str, object] = {}
    exec(block(name, "python"), known)  # noqa: S102
    check = known["is_genuine"]
    assert callable(check)
    for header, genuine in headers():
        assert check(SECRET, header, BODY) is genuine, header


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_check_in_shell_works(name, shell, tmp_path):
    openssl = shutil.which("openssl")
    assert openssl, "the tests need openssl"
    (tmp_path / "body").write_bytes(BODY)
    for header, genuine in headers():
        env = {
            "PATH": f"{Path(openssl).parent}:/usr/bin:/bin",
            "header": header,
            "secret": SECRET,
            "body": str(tmp_path / "body"),
        }
        done = subprocess.run(
            [shell, "-euc", block(name, "sh")], env=env, capture_output=True, text=True, check=False
        )
        assert done.stdout == ("genuine\n" if genuine else "forged or old\n"), (header, done.stderr)


@pytest.mark.parametrize("name", PAGES)
def test_bounds_are_the_ones_that_hold(name):
    text = part(name)
    assert (courier.PAUSE_MIN_S, courier.PAUSE_MAX_S, courier.RETRY_AFTER_MAX_S) == (5.0, 900.0, 3600.0)
    assert (courier.ALONE_TRIES, courier.GIVE_UP_S, courier.FAILING_S) == (3, 86_400.0, 300.0)
    assert (courier.BATCH_MAX, courier.MESSAGE_CHARS_MAX) == (500, 1_000_000)
    assert "10,000" in text
    assert "1 MB" in text
