"""Logs: JSON or human, without secrets, and without anything that acts on a terminal."""

from __future__ import annotations

import io
import itertools
import json
import logging
import string
import time

import pytest
import structlog

from evermirror.faces.cli.starting import node_settings
from evermirror.log import (
    ERRORS_PER_MINUTE,
    LINES_PER_MINUTE,
    SAME_PER_MINUTE,
    FloodGuard,
    Scrubber,
    setup_logging,
)

CANARY = "c4n4ry-s3cr3t"
HOSTILE = "evil\x1b]0;owned\x07\r\n{'level': 'forged'}\u202e"


@pytest.fixture
def stream():
    root = logging.getLogger()
    before = (root.handlers[:], root.level, structlog.get_config())
    yield io.StringIO()
    root.handlers[:], level, config = before
    root.setLevel(level)
    structlog.configure(**config)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_what_is_not_a_terminal_gets_json_one_line_each(stream):
    setup_logging("info", "auto", stream=stream)
    structlog.get_logger("x").info("fetched", repo="github.com/a/b", refs=3)
    structlog.get_logger("x").debug("not told")
    logging.getLogger("other.library").warning("told %s", "too")
    first, second = lines(stream)
    assert (first["event"], first["level"], first["refs"]) == ("fetched", "info", 3)
    assert first["timestamp"].endswith("Z")
    assert (second["event"], second["level"], second["logger"]) == ("told too", "warning", "other.library")


@pytest.mark.parametrize("style", ["human", "json"])
def test_no_secret_gets_through(style, stream):
    setup_logging("debug", style, secrets=[CANARY], stream=stream)
    log = structlog.get_logger()
    log.info(f"said {CANARY}", note=CANARY, nested={"a": [{"b": f"x{CANARY}y"}]}, obj=ValueError(CANARY))
    log.info("by key", token="tok-1234", password="hunter22", headers={"Authorization": "Bearer abc"})
    log.info("by shape", url="https://user:hunter22@h/x", line="Authorization: Bearer abcdefgh12345")
    logging.getLogger("lib").error("boom %s", CANARY)
    try:
        raise RuntimeError(f"https://u:hunter22@h {CANARY}")
    except RuntimeError:
        log.exception("failed")
        logging.getLogger("lib").exception("failed")
    told = stream.getvalue()
    for secret in (CANARY, "tok-1234", "hunter22", "abcdefgh12345", "Bearer abc"):
        assert secret not in told
    assert "RuntimeError" in told


@pytest.mark.parametrize("style", ["human", "json"])
def test_hostile_text_stays_on_its_line_and_does_nothing(style, stream):
    setup_logging("info", style, stream=stream)
    structlog.get_logger().info(HOSTILE, **{HOSTILE: HOSTILE})
    logging.getLogger("lib").warning(HOSTILE)
    told = stream.getvalue()
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(told)
    assert len(told.splitlines()) == 2


def test_a_secret_that_is_changed_while_we_run_is_masked_as_the_old_one_is(stream, tmp_path, monkeypatch):
    old, new = f"{CANARY}-old", f"{CANARY}-new"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stderr", stream)
    file = tmp_path / "settings.toml"
    file.write_text(f'[webhooks]\ngithub_secret = "{old}"\n')
    _, read_again = node_settings(file)
    file.write_text(f'[webhooks]\ngithub_secret = "{new}"\n')
    read_again()
    structlog.get_logger().info("a forge said", text=f"{old} and {new}")
    assert lines(stream)[-1]["text"] == "******** and ********"


def test_settings_and_counts_that_only_sound_secret_stay_readable():
    told = Scrubber()(None, "info", {"event": "x", "tokens_required": "auto", "token": None})
    assert told == {"event": "x", "tokens_required": "auto", "token": None}


def test_short_secrets_do_not_blot_out_the_log():
    assert Scrubber(["a"]).text("a cat") == "a cat"


def test_a_long_word_costs_no_more_than_its_length():
    began = time.process_time()
    for _ in range(20):
        Scrubber().text("a" * 20_000)
    assert time.process_time() - began < 1.0  # looked at from each of its letters: over ten seconds


def test_a_flood_of_one_message_is_cut_and_counted_and_others_are_still_written():
    now = 0.0
    guard = FloodGuard(lambda: now)

    def write(message: str) -> dict[str, object] | None:
        try:
            return dict(guard(None, "warning", {"event": message}))
        except structlog.DropEvent:
            return None

    flood = [write(f"worker {n} says something odd") for n in range(SAME_PER_MINUTE + 50)]
    assert sum(line is not None for line in flood) == SAME_PER_MINUTE
    assert write("something else") == {"event": "something else"}
    now = 60.0
    assert write("something else") == {"event": "something else", "lines_dropped": 50}
    assert write("something else") == {"event": "something else"}


def test_many_different_messages_are_bounded_together():
    guard = FloodGuard(lambda: 0.0)
    messages = ("".join(letters) for letters in itertools.product(string.ascii_letters, repeat=3))
    assert sum(map(guard.lets_through, messages)) == LINES_PER_MINUTE


def test_the_lines_of_libraries_are_bounded_too(stream):
    setup_logging("info", "json", stream=stream)
    for _ in range(SAME_PER_MINUTE + 50):
        logging.getLogger("asyncio").error("socket.accept() out of system resource")
    assert len(stream.getvalue().splitlines()) == SAME_PER_MINUTE


def test_a_flood_of_many_messages_does_not_silence_errors_and_these_are_bounded_too(stream):
    setup_logging("info", "json", stream=stream)
    letters = ["".join(letters) for letters in itertools.product(string.ascii_letters, repeat=3)]
    for message in letters[: LINES_PER_MINUTE + 5]:
        structlog.get_logger().warning(message)
    assert len(stream.getvalue().splitlines()) == LINES_PER_MINUTE
    structlog.get_logger().error("the disk is full")
    logging.getLogger("library").critical("it broke")
    structlog.get_logger().exception("it broke again")
    last = [json.loads(line)["event"] for line in stream.getvalue().splitlines()[LINES_PER_MINUTE:]]
    assert last == ["the disk is full", "it broke", "it broke again"]
    for message in letters[: ERRORS_PER_MINUTE + 5]:
        structlog.get_logger().error(message)
    assert len(stream.getvalue().splitlines()) == LINES_PER_MINUTE + ERRORS_PER_MINUTE
