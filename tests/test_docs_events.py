"""The pages about events say what the program tells: types, fields, bounds, who may see what."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import re
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evermirror.config.events_section import Events
from evermirror.core.events.choosing import PUBLIC_TYPES
from evermirror.core.events.of_catalog import catalog_news, repo_added, repo_changed, repo_removed
from evermirror.core.events.of_reports import events_of, refs_changed
from evermirror.core.events.of_turns import (
    RepoBefore,
    TaskEnd,
    WorkerBefore,
    aggregator_turned,
    alert_turned,
    excused,
    pull_ended,
    recovered,
    status_changed,
    task_ended,
    worker_turned,
)
from evermirror.faces.api.event_door import STREAMS, STREAMS_PER_CLIENT
from evermirror.faces.api.event_stream import SLOW_S
from evermirror.model.activity import Activity
from evermirror.model.alert import Alert, AlertRecord
from evermirror.model.event import EVENTS_VERSION, EventType
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.messages import Failed, Synced
from evermirror.model.push import Pushed, PushedRef, RefOutcome
from evermirror.model.refs import RefChange
from evermirror.model.repo import Host, RepoRecord, RepoSpec, RepoStatus
from evermirror.model.task import TaskStatus, Trigger
from evermirror.model.worker import AggregatorRecord, Duty, Liveness, WorkerFacts, WorkerRecord
from evermirror.nodes.coordinator.events.event_feed import IDLE_S

DOCS = Path(__file__).parent.parent / "docs"
PAGES = ("events.md", "events.zh-CN.md")
FIELDS = ["version", "id", "type", "at", "repo", "worker", "data"]
FAILURE = Failure(FailureKind.NOT_FOUND, "gone")
KEY = "github.com/acme/engine"


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def examples(name: str) -> dict[str, dict]:
    sections = re.findall(
        r"^### ([a-z]+\.[a-z]+|pull_sync_[a-z]+)\n(.*?)(?=^##)", f"{page(name)}\n## ", re.M | re.S
    )
    blocks = {title: re.search(r"^```json\n(.*?)^```", text, re.M | re.S) for title, text in sections}
    return {title: json.loads(block[1]) for title, block in blocks.items()}


def really_told():
    """An event of each type that core makes, by type."""
    ref = PushedRef("refs/heads/main", None, "1" * 40, RefOutcome.PUT)
    report = Synced(
        KEY, (), "a" * 64, None, 1, (RefChange("refs/heads/main", None, "1" * 40),), 1, 1, 1, 1, True,
        1.0, 2.0, 3.0, Activity(), pushes=(Pushed(7, None, refs=(ref,), put_total=1),),
    )  # fmt: skip
    record = RepoRecord(RepoSpec(KEY, f"https://{KEY}", Host("github.com")))
    worker = WorkerRecord(3, WorkerFacts("alpha"), joined_at=1.0)
    front = AggregatorRecord(7, "front", "https://mirror.example.org")
    alert = AlertRecord(1, Alert("worker-down", "alpha", "down"), 1.0, 1.0)
    task = TaskEnd(1, KEY, Trigger.API, TaskStatus.SUCCESS, 1.0, 2.0, True, 1, None, None)
    was = [WorkerBefore(live, Duty.ACTIVE, 1.0) for live in (Liveness.ALIVE, Liveness.DOWN)]
    told = [
        refs_changed(report, "alpha"),
        *events_of(report, "alpha"),
        *events_of(Failed(KEY, (), FAILURE, True, 1, 1.0, 2.0, 3.0), "alpha"),
        recovered(KEY, RepoBefore(RepoStatus.FAILING, 1, FailureKind.UNKNOWN), 1.0),
        excused(KEY, RepoBefore(RepoStatus.FAILING, 1, FailureKind.UNKNOWN), 1.0),
        status_changed(KEY, RepoBefore(RepoStatus.ACTIVE, 0, None), RepoStatus.GONE, FAILURE, 1.0),
        status_changed(KEY, RepoBefore(RepoStatus.ACTIVE, 0, None), RepoStatus.HELD, FAILURE, 1.0),
        task_ended(task),
        pull_ended(task),
        pull_ended(replace(task, status=TaskStatus.FAILED)),
        repo_added(record, 1.0),
        repo_changed(KEY, {"priority": "low"}, {"priority": "high"}, 1.0),
        repo_removed(KEY, 1.0),
        *catalog_news([], 1.0, added=501),
        *worker_turned(None, worker, 1.0),
        *worker_turned(was[1], worker, 1.0),
        *worker_turned(was[0], WorkerRecord(3, WorkerFacts("a"), Liveness.SUSPECT, joined_at=1.0), 1.0),
        *worker_turned(was[0], WorkerRecord(3, WorkerFacts("a"), Liveness.DOWN, joined_at=1.0), 1.0),
        *worker_turned(was[0], WorkerRecord(3, WorkerFacts("a"), duty=Duty.DRAINING, joined_at=1.0), 1.0),
        *aggregator_turned(None, front, 1.0),
        *aggregator_turned(replace(front, liveness=Liveness.DOWN), front, 1.0),
        *aggregator_turned(front, replace(front, liveness=Liveness.DOWN), 1.0),
        *aggregator_turned(front, replace(front, retired=True), 1.0),
        alert_turned(alert, stood=False),
        alert_turned(AlertRecord(1, alert.alert, 1.0, 1.0, ended_at=2.0), stood=True),
    ]
    return {event.type: event for event in told if event is not None}


@pytest.mark.parametrize("name", PAGES)
def test_every_type_is_documented_and_no_other(name):
    assert list(examples(name)) == [type_.value for type_ in EventType]


@pytest.mark.parametrize("name", PAGES)
def test_examples_have_the_form_of_an_event(name):
    for title, example in examples(name).items():
        assert list(example) == FIELDS
        assert (example["version"], example["type"]) == (EVENTS_VERSION, title)
        assert isinstance(example["id"], int)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", example["at"])


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("type_", EventType)
def test_examples_have_the_data_that_is_really_told(name, type_):
    elsewhere = {EventType.REPO_RENAMED, EventType.HOOKS_RELIABLE, EventType.HOOKS_SILENT}  # their own tests
    event = really_told().get(type_)
    assert (event is None) is (type_ in elsewhere)
    if event is not None:
        example = examples(name)[type_.value]
        assert list(example["data"]) == list(event.data)
        assert (example["repo"] is None) is (event.repo is None)
        for field, value in event.data.items():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                assert list(example["data"][field][0]) == list(value[0])


@pytest.mark.parametrize("name", PAGES)
def test_bounds_and_settings_are_the_real_ones(name):
    text, events = page(name), Events()
    assert f"{events.keep:,}" in text
    assert events.retention == 7 * 86_400.0
    for number in (f"{STREAMS:,}", f"{STREAMS_PER_CLIENT}", f"{SLOW_S:.0f}", f"{IDLE_S:.0f}"):
        assert re.search(rf"(?<!\d){number}(?!\d)", text)


def test_what_the_public_sees_is_named():
    told = page("events.md").partition("only events about public repos are told")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z.]+)`", told)) == PUBLIC_TYPES


@pytest.mark.parametrize("name", PAGES)
def test_the_documented_follower_misses_nothing_wherever_its_connection_is_cut(name, monkeypatch):
    """Cut after each byte of the first answer; the second goes on after what was asked for."""
    code = re.search(r"```python\n(import http.client\n.*?)```", page(name), re.DOTALL)
    assert code is not None
    records = [f'id: {n}\nevent: repo.gone\ndata: {{"id":{n}}}\n\n'.encode() for n in (1, 2, 3)]
    whole = b": hello\n\n" + b"".join(records)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    for cut in range(len(whole)):
        for cut_short in (http.client.IncompleteRead(b""), ConnectionResetError(), None):
            asked: list[str] = []

            def answer(request, *, timeout, cut=cut, cut_short=cut_short, asked=asked):
                asked.append(request.get_header("Last-event-id", "0"))
                rest = b"".join(records[int(asked[-1]) :])
                return contextlib.nullcontext(
                    _lines(whole[:cut], cut_short) if len(asked) == 1 else _lines(rest)
                )

            monkeypatch.setattr(urllib.request, "urlopen", answer)
            space: dict[str, Any] = {}
            exec(code[1], space)  # noqa: S102 - our own document
            told = itertools.islice(space["events"]("http://127.0.0.1:1", "token"), 3)
            assert [event["id"] for event in told] == [1, 2, 3], (cut, cut_short)


def _lines(data, then=None):
    yield from data.splitlines(keepends=True)
    if then is not None:
        raise then
