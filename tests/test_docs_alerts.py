"""The pages about alerts say what the program does: kinds, settings, the webhook's body and signature."""

from __future__ import annotations

import json
import re
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from evermirror.config import load_config
from evermirror.config.schema import all_settings
from evermirror.core.watch.fleet_kinds import LEVELS
from evermirror.core.watch.kinds import ALL_KINDS
from evermirror.edge.notify.signing import signature
from evermirror.edge.notify.syslog import syslog_records
from evermirror.edge.notify.webhook import webhook_body
from evermirror.model.alert import Level
from tests.edge.notify.messages import ITEM, MESSAGE
from tests.support.house import shown_commands

DOCS = Path(__file__).parent.parent / "docs"
PAGES = ("alerts.md", "alerts.zh-CN.md")
LEVEL_WORDS = {"warning": "警告", "error": "错误", "critical": "严重"}


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page(name), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", PAGES)
def test_every_kind_is_explained_and_no_other(name):
    table = page(name).partition("| `project-failing` |")
    rows = (table[1] + table[2].partition("\n\n")[0]).splitlines()
    told = {kind for row in rows for kind in re.findall(r"`([a-z-]+)`", row.split("|")[1])}
    assert told == set(ALL_KINDS)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("kind", LEVELS)
def test_the_level_of_a_fleets_alert_is_the_one_that_is_told(name, kind):
    told = LEVELS[kind].value if name == "alerts.md" else LEVEL_WORDS[LEVELS[kind].value]
    assert f"| `{kind.value}` | {told} |" in page(name)


@pytest.mark.parametrize("name", PAGES)
def test_every_setting_of_a_channel_is_named(name):
    keys = {setting.path[-1] for setting in all_settings() if setting.path[0] == "channels"}
    assert {
        key for key in keys if not re.search(rf"`{key}`|^{key}(_file)? = ", page(name), re.MULTILINE)
    } == set()


@pytest.mark.parametrize("name", PAGES)
def test_the_settings_that_are_shown_are_accepted(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = "\n".join(blocks(name, "toml"))
    for file in re.findall(r'"(/run/secrets/[^"]+)"', shown):
        (tmp_path / Path(file).name).write_text(
            "https://example.org/x?key=1" if "url" in file else "s3cret" * 6
        )
    Path("evermirror.toml").write_text(shown.replace("/run/secrets", str(tmp_path)), "utf-8")
    config = load_config(Path("evermirror.toml"), {}, {})
    assert {channel.type for channel in config.channels.values()} == {
        "dingtalk",
        "wecom",
        "mail",
        "syslog",
        "webhook",
    }
    assert set(tomllib.loads(shown)["channels"]) == set(config.channels)


def test_both_pages_show_the_same():
    assert shown_commands(page(PAGES[0])) == shown_commands(page(PAGES[1]))
    for language in ("json", "python"):
        assert blocks(PAGES[0], language) == blocks(PAGES[1], language)
    headings = [len(re.findall(r"^#+ ", page(name), re.MULTILINE)) for name in PAGES]
    assert headings[0] == headings[1]


def test_the_check_of_a_signature_that_is_shown_works():
    (code,) = blocks("alerts.md", "python")
    space: dict[str, object] = {}
    exec(code, space)  # noqa: S102 (our own page)
    is_genuine = space["is_genuine"]
    assert callable(is_genuine)
    now, body = int(time.time()), webhook_body(MESSAGE)
    assert is_genuine("secret", signature("secret", now, body), body)
    assert not is_genuine("other", signature("secret", now, body), body)
    assert not is_genuine("secret", signature("secret", now, body), body + b" ")
    assert not is_genuine("secret", signature("secret", now - 3600, body), body)
    late = signature("secret", now - 3600, body).replace(str(now - 3600), str(now))
    assert not is_genuine("secret", late, body)


def test_the_webhooks_fields_are_all_shown_and_explained():
    (shown,) = (json.loads(block) for block in blocks("alerts.md", "json"))
    sent = json.loads(webhook_body(MESSAGE))
    assert shown.keys() == sent.keys()
    assert shown["alerts"][0].keys() == sent["alerts"][0].keys()
    table = page("alerts.md").partition("| `version` |")[2].partition("\n\n")[0]
    assert {
        f for f in (sent.keys() | sent["alerts"][0].keys()) - {"version"} if f"`{f}`" not in table
    } == set()


def test_the_syslog_record_that_is_shown_is_one():
    item = replace(
        ITEM, about="devops/core", text="devops/core failed 3 times in a row", alert=17, level=Level.WARNING
    )
    (record,) = syslog_records(replace(MESSAGE, items=(item,)), "local3", 8192)
    assert f"\n{record.decode()}\n" in page("alerts.md")
