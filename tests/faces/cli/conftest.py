"""A real HTTP server that answers in the API's shapes, and the program as users start it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import typer
from typer.main import get_command

import evermirror.faces.cli.program as program
from evermirror.__main__ import main
from tests.faces.cli.pull_answers import BY_PRIORITY, OVERVIEW

SRC = Path(__file__).parents[3] / "src"


@dataclass
class StandIn:
    """Remembers what it was asked; ``answers`` are (status, body) taken in turn, of which the last stays."""

    url: str = ""
    answers: dict[tuple[str, str], list[tuple[int, object]]] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, list[str]], object, str | None]] = field(default_factory=list)

    def on(self, method: str, path: str, *answers: tuple[int, object]) -> None:
        self.answers[method, path] = list(answers)

    def answer(self, method: str, path: str) -> tuple[int, object]:
        known = self.answers.get((method, path))
        if known is None:
            return 404, {
                "type": "/problems/not-found",
                "title": "None",
                "status": 404,
                "detail": f"No such {path}",
            }
        return known.pop(0) if len(known) > 1 else known[0]


@pytest.fixture(scope="session", autouse=True)
def _commands_made_once() -> Iterator[None]:
    """Each run makes its command's arguments from annotations: a tenth of a second, and always the same."""
    made: dict[tuple[object, ...], object] = {}

    def once(asked_for: typer.Typer) -> object:
        registered = (*asked_for.registered_commands, *asked_for.registered_groups)
        key = (sys.argv[0], *(one.name for one in registered))  # help has the name it was started by
        if key not in made:
            made[key] = get_command(asked_for)
        return made[key]

    with mock.patch.object(program, "get_command", once):
        yield


@pytest.fixture
def api() -> Iterator[StandIn]:
    stand_in = StandIn()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            parts = urlsplit(self.path)
            path = unquote(parts.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            asked = (self.command, path, parse_qs(parts.query), body, self.headers.get("Authorization"))
            stand_in.asked.append(asked)
            status, answer = stand_in.answer(self.command, path)
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = respond

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stand_in.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield stand_in
    server.shutdown()
    thread.join()
    server.server_close()


Run = Callable[..., subprocess.CompletedProcess[str]]


def clean_env(home: Path) -> dict[str, str]:
    """The tester's environment without anything that the program listens to."""
    ours = ("EVERMIRROR", "_EVERMIRROR", "XDG", "NO_COLOR", "LC_", "LANG")
    return {k: v for k, v in os.environ.items() if not k.startswith(ours)} | {
        "HOME": str(home),
        "PYTHONPATH": str(SRC),
    }


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The empty folder that the program runs in."""
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.fixture
def run(tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The whole program from its first line, in this process: a Python for each would take minutes."""
    monkeypatch.chdir(here)

    def start(
        *args: str, env: dict[str, str] | None = None, name: str = "evermirror"
    ) -> subprocess.CompletedProcess[str]:
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, {**clean_env(tmp_path), **(env or {})}, clear=True),
            mock.patch.object(sys, "argv", [name, *args]),
            mock.patch.object(sys, "stdin", io.StringIO()),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            time.tzset()  # TZ counts as it does for a process of its own
            code = main()
        time.tzset()
        return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())

    return start


@pytest.fixture
def spawn(tmp_path: Path, here: Path) -> Run:
    """The program as a process of its own."""

    def start(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "evermirror", *args],
            cwd=here,
            env={**clean_env(tmp_path), **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return start


@pytest.fixture
def ask(run: Run, api: StandIn) -> Run:
    """The program talking to the stand-in."""

    def start(*args: str, env: dict[str, str] | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        return run(*args, env={"EVERMIRROR_SERVER": api.url, **(env or {})}, **more)

    return start


@pytest.fixture
def progress(api: StandIn) -> None:
    """The stand-in tells how far projects are."""
    api.on("GET", "/api/pull/progress/overview", (200, OVERVIEW))
    api.on("GET", "/api/pull/progress/by-priority", (200, BY_PRIORITY))
