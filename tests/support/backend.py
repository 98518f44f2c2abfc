"""One request to ``git http-backend``, by the rules of CGI."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from tests.support.answers import ANSWERS, Said
from tests.support.gitrepo import clean_git_env

CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What kind of server this is; see ``UpstreamServer``."""

    root: Path
    protocol_v2: bool
    dumb: bool
    server_env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sent. ``path`` has its query; header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int  # which accepted connection, from 1

    @property
    def service(self) -> str:
        """What was asked for: "advertise", "upload-pack" (a POST) or "other"."""
        if self.method == "GET" and "/info/refs" in self.path:
            return "advertise"
        return "upload-pack" if self.method == "POST" and self.path.endswith("/git-upload-pack") else "other"


@dataclass(slots=True)
class Reply:
    """An answer's head, and its body as it comes."""

    status: int
    headers: list[tuple[str, str]]
    body: Iterator[bytes]


def run_backend(server: Behaviour, request: Request, body: bytes) -> Reply:
    split = urlsplit(request.path)
    env = {
        **clean_git_env(server.root),
        "GIT_PROJECT_ROOT": str(server.root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "REQUEST_METHOD": request.method,
        "PATH_INFO": unquote(split.path),
        "QUERY_STRING": "" if server.dumb else split.query,
        "CONTENT_TYPE": request.headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "REMOTE_ADDR": "127.0.0.1",
        "SERVER_PROTOCOL": "HTTP/1.1",
    }
    if "content-encoding" in request.headers:
        env["HTTP_CONTENT_ENCODING"] = request.headers["content-encoding"]
    if server.protocol_v2 and "git-protocol" in request.headers:
        env["GIT_PROTOCOL"] = env["HTTP_GIT_PROTOCOL"] = request.headers["git-protocol"]
    if server.dumb:
        if request.method == "POST":
            return Reply(405, [], iter([b"files only\n"]))
        env["GIT_CONFIG_PARAMETERS"] = "'http.uploadpack=false'"
    env.update(server.server_env)
    question = ANSWERS.question(env, body)
    said = ANSWERS.recall(question)
    if said is not None:
        return Reply(said.status, list(said.headers), iter(said.pieces))
    child = subprocess.Popen(
        ["git", "http-backend"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    status, headers, pieces = _read_cgi(child, body)
    if question is None:
        return Reply(status, headers, pieces)

    def keep(said: tuple[bytes, ...]) -> None:
        if ANSWERS.question(env, body) == question:  # nothing changed meanwhile
            ANSWERS.keep(question, Said(status, tuple(headers), said))

    return Reply(status, headers, _noted(pieces, keep))


def _noted(
    pieces: Generator[bytes, None, None], keep: Callable[[tuple[bytes, ...]], None]
) -> Iterator[bytes]:
    came: list[bytes] = []
    with closing(pieces):
        for piece in pieces:
            came.append(piece)
            yield piece
    keep(tuple(came))


def _read_cgi(
    child: subprocess.Popen[bytes], body: bytes
) -> tuple[int, list[tuple[str, str]], Generator[bytes, None, None]]:
    assert child.stdin is not None
    assert child.stdout is not None
    writer = threading.Thread(target=_feed, args=(child.stdin, body))
    writer.start()
    status, headers = 200, list[tuple[str, str]]()
    for raw in iter(child.stdout.readline, b""):
        line = raw.rstrip(b"\r\n").decode("latin-1")
        if not line:
            break
        name, _, value = line.partition(":")
        if name.lower() == "status":
            status = int(value.split()[0])
        else:
            headers.append((name, value.strip()))
    pieces = _stream(child, writer)
    next(pieces)  # begun: so git is ended also where the client left before the first piece
    return status, headers, pieces


def _feed(pipe: IO[bytes], body: bytes) -> None:
    try:
        with pipe:
            pipe.write(body)
    except OSError:
        return  # git answered without reading everything, and left


def _stream(child: subprocess.Popen[bytes], writer: threading.Thread) -> Generator[bytes, None, None]:
    assert child.stdout is not None
    try:
        yield b""
        while data := child.stdout.read1(CHUNK):
            yield data
    finally:
        child.kill()  # ended already, unless the client went away
        child.stdout.close()
        writer.join()
        child.wait()
