"""Runs of discoveries that a command waits for, until they end, fail or are stopped."""

from __future__ import annotations

import time

from evermirror.errors import Conflict, EvermirrorError, ExitCode
from evermirror.faces.cli.client import Client, Fields
from evermirror.faces.cli.output import print_json, say
from evermirror.faces.cli.pull.common import count_of
from evermirror.faces.cli.pull.discover_view import (
    DISCOVERIES,
    error_of,
    held_words,
    show_discovery,
    watched,
)
from evermirror.faces.cli.pull.labels import label, short_clock
from evermirror.model.printable import one_line


class Held(EvermirrorError):
    """The run has ended, and some of what it would do waits for a person."""

    exit_code = ExitCode.WAITS


def previewed(client: Client, body: Fields, *, quiet: bool) -> Fields:
    """What a dry run found; raises as it failed."""
    begun = client.post(DISCOVERIES, {**body, "dry_run": True})
    path = f"{DISCOVERIES}/previews/{begun.get('id')}"
    ended = watched(lambda: client.get(path), lambda a: a.get("state") != "running", quiet=quiet)
    _raise_error(ended)
    return ended


def finish(client: Client, begun: Fields, *, no_wait: bool, as_json: bool) -> None:
    """Waits for the run that was asked for, shows what it did, and fails as it failed."""
    path, number = f"{DISCOVERIES}/{begun.get('id')}", begun.get("id")
    if no_wait:
        word = label("stopped") if begun.get("enabled") is False else label("waiting")
        print_json(begun) if as_json else say(f"{word}  {number}")
        return
    answer = watched(lambda: client.get(path), lambda now: has_ended(begun, now), quiet=as_json)
    if as_json:
        print_json(answer)
    else:
        show_discovery(client, answer, None, None)
    if not _has_run(begun, answer):
        raise Conflict(
            label("discovery {id} was stopped before its run ended", id=number),
            hint=label("`evermirror pull discover start {id}` goes on", id=number),
        )
    last = answer.get("last_run")
    last = last if isinstance(last, dict) else {}
    _raise_error(last, answer.get("next_run_at"))
    if count_of(last.get("held")):
        words, hint = held_words(answer)
        raise Held(words, hint=hint)


def has_ended(begun: Fields, answer: Fields) -> bool:
    """The run of ``begun`` is over, or will not be: it was stopped."""
    return answer.get("run") is None and (_has_run(begun, answer) or answer.get("next_run_at") is None)


def _has_run(begun: Fields, answer: Fields) -> bool:
    """By the count of runs, which begins at 0 with each start of the server; then by the last run."""
    more = count_of(answer.get("runs_ended")) > count_of(begun.get("runs_ended"))
    return more or answer.get("last_run") != begun.get("last_run")


def _raise_error(fields: Fields, next_at: object = None) -> None:
    trouble = error_of(fields)
    if trouble is None:
        return
    words, hint = (one_line(text).removesuffix(".") for text in trouble)
    if next_at is not None:
        soon = label("next look at {at}", at=short_clock(next_at, time.time()))
        hint = f"{hint}; {soon}" if hint else soon
    raise EvermirrorError(words, hint=hint)
