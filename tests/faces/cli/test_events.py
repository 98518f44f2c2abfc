"""`evermirror events`: what the server is asked, what a person sees, and streams that break off."""

from __future__ import annotations

import json
import re
import socket
import threading

import pytest

from evermirror.errors import EvermirrorError
from evermirror.faces.cli import event_follow
from evermirror.faces.cli.client import Client, Denied
from evermirror.faces.cli.event_follow import events_in, follow
from evermirror.faces.cli.event_lines import line_of
from evermirror.model.event import EventType
from tests.faces.cli.pull_answers import HOSTILE
from tests.test_docs_events import examples

UTC = {"TZ": "UTC"}


def event(type_="repo.gone", *, number=7, **data):
    return {
        "version": 1, "id": number, "type": type_, "at": "2026-11-16T12:00:00.123Z", "repo": "example.org/a",
        "worker": None, "data": data,
    }  # fmt: skip


def page(*items, gap=None):
    return 200, {"items": list(items), "next_after": 7, "gap": gap}


# Once


def test_the_last_events_are_a_line_each(api, run):
    moved = event("refs.changed", changes=[], changes_total=2, commits=1, first=False)
    api.on("GET", "/api/events", page({**moved, "worker": "alpha"}, event(error_message="not there")))
    done = run("events", "--server", api.url, env=UTC)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "2026-11-16 12:00:00  refs.changed     example.org/a  2 refs, 1 commit  (alpha)",
        "2026-11-16 12:00:00  repo.gone        example.org/a  not there",
    ]
    assert api.asked[0][2] == {"limit": ["20"]}


def test_what_is_chosen_is_asked_for(api, run):
    api.on("GET", "/api/events", page())
    args = ("--types", "repo.*", "--types", "sync.*", "--repo", "*/a", "--worker", "alpha", "--after", "5")
    done = run("events", *args, "--limit", "7", "--server", api.url)
    assert done.stdout == "no events\n"
    assert api.asked[0][2] == {
        "types": ["repo.*,sync.*"],
        "repos": ["*/a"],
        "worker": ["alpha"],
        "after": ["5"],
        "limit": ["7"],
    }


def test_json_is_the_page_and_a_gap_is_told(api, run):
    answer = page(event(), gap={"after": 1, "until": 5})
    api.on("GET", "/api/events", answer)
    assert json.loads(run("events", "--json", "--server", api.url).stdout) == answer[1]
    assert "no longer kept" in run("events", "--server", api.url).stderr


@pytest.mark.parametrize(
    "args",
    [
        ("--repo", "https://example.org/a"),
        ("--after", "-1"),
        ("--after", "x"),
        ("--limit", "0"),
        ("--limit", "1001"),
        ("--limit", "5", "hooks"),
        ("--follow", "--limit", "5"),
        ("--progress",),
    ],
)
def test_wrong_usage_is_told_before_anything_is_asked(api, run, args):
    done = run("events", "--server", api.url, *args)
    assert done.returncode == 2
    assert done.stderr
    assert api.asked == []


@pytest.mark.parametrize("type_", [t.value for t in EventType])
def test_every_type_has_a_line(type_):
    line = line_of(examples("events.md")[type_])
    assert type_ in line
    assert "None" not in line
    assert "\n" not in line


@pytest.mark.parametrize("type_", [*(t.value for t in EventType), "progress", "later.made"])
def test_no_data_breaks_or_fools_a_terminal(type_):
    for data in ({}, None, {"failure": HOSTILE, "changes": [HOSTILE], "changes_total": 1, HOSTILE: HOSTILE}):
        line = line_of({**event(type_), "repo": HOSTILE, "worker": HOSTILE, "at": HOSTILE, "data": data})
        assert line.isprintable()


# Following


class Streams:
    """A server that answers each connection with the next of these bytes, and ends it."""

    def __init__(self, *answers: bytes) -> None:
        self.asked: list[bytes] = []
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._listener.close()
        self._thread.join()

    def _serve(self):
        for answer in self._answers:
            connection, _ = self._listener.accept()
            with connection:
                self.asked.append(connection.recv(65536))
                connection.sendall(answer)


def stream(*texts: str) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    return head + "".join(texts).encode()


def frame(number: int) -> str:
    return f"id: {number}\nevent: repo.gone\ndata: {json.dumps(event(number=number))}\n\n"


def refusal(status: int) -> bytes:
    body = json.dumps({"type": "/problems/token-needed", "title": "No", "detail": "no", "status": status})
    head = f"HTTP/1.1 {status} No\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"  # as it does
    return (head + body).encode()


class _Enough(Exception):
    pass


def taken(server, count, sleeps):
    def sleep(seconds):
        sleeps.append(seconds)
        if len(sleeps) > 20:
            raise _Enough

    with Client(server.url) as client:
        events = follow(client, {"types": "repo.*"}, sleep=sleep)
        return [next(events)["id"] for _ in range(count)]


def test_a_stream_that_ends_or_breaks_is_taken_up_where_it_was(capsys):
    answers = [
        stream("retry: 2000\n\n", frame(1), frame(2), 'id: 3\ndata: {"cut'),
        stream("retry: 2000\n\n"),
        stream(": nothing\nid: 9\n\n"),
        refusal(503),
        stream(frame(10)),
    ]
    sleeps = []
    with Streams(*answers) as server:
        assert taken(server, 3, sleeps) == [1, 2, 10]
    places = [re.search(rb"last-event-id: (\d+)", asked.lower()) for asked in server.asked]
    assert [place and place[1] for place in places] == [None, b"2", b"2", b"9", b"9"]
    assert all(b"types=repo" in asked for asked in server.asked)
    assert "trying again in 2 s" in capsys.readouterr().err
    assert sleeps[0] == 2.0


def test_pauses_grow_up_to_a_bound():
    sleeps = []
    with Streams(stream(frame(1)), *[refusal(503)] * 6, stream(frame(2)), stream(frame(3))) as server:
        assert taken(server, 3, sleeps) == [1, 2, 3]
    assert sleeps == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 2.0]


@pytest.mark.parametrize("answers", [[refusal(503)], [refusal(401)], [stream(frame(1)), refusal(401)]])
def test_what_is_wrong_at_first_or_will_not_mend_is_an_error(answers):
    with Streams(*answers) as server, pytest.raises(EvermirrorError) as error:
        taken(server, 2, [])
    assert isinstance(error.value, Denied) is (b"401" in answers[-1])


def test_lines_are_read_by_the_letter_of_the_standard():
    text = 'retry: 5\n\n: hi\nid: 4\n\nevent: x\ndata: {\ndata: "a": 1}\nid:5\n\ndata: no\n\n'
    lines = text.split("\n")[:-1]
    assert list(events_in(lines)) == [("", None), ("4", None), ("5", {"a": 1}), ("5", None)]


def test_followed_events_are_lines_or_objects(run, monkeypatch):
    monkeypatch.setattr(event_follow, "PAUSE_S", (0.01, 0.01))
    gap = 'id: 3\nevent: gap\ndata: {"type": "gap", "after": 1, "until": 3}\n\n'
    answers = [stream(gap, frame(4)), refusal(401)]
    with Streams(*answers) as server:
        done = run("events", "--follow", "--server", server.url, env=UTC)
    assert done.returncode == 4
    assert done.stdout.splitlines() == ["2026-11-16 12:00:00  repo.gone        example.org/a"]
    assert "no longer kept" in done.stderr
    with Streams(*answers) as server:
        done = run("events", "-f", "--json", "--progress", "--server", server.url)
    assert [json.loads(line)["type"] for line in done.stdout.splitlines()] == ["gap", "repo.gone"]
    assert b"progress=true" in server.asked[0]
