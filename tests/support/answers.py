"""What git said about refs is said again without git, as long as nothing of what it went by has changed.

Workers look at their upstreams again and again, and mostly find nothing new: of all the processes that the
tests start, these answers had more than half. They are git's own, byte by byte, and kept only for the same
question to the same repository with the same refs, HEAD, settings and objects.
"""

from __future__ import annotations

import gzip
import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ANSWERS_MAX = 500  # then all are forgotten
BYTES_MAX = 64 * 1024  # of an answer, and of each file that is read for it
FILES_MAX = 200  # refs in files of their own
WHERE = ("GIT_PROJECT_ROOT", "PATH_INFO", "HOME")

Question = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """An answer of git's, as it came."""

    status: int
    headers: tuple[tuple[str, str], ...]
    pieces: tuple[bytes, ...]


class Answers:
    """``question`` gives what ``recall`` and ``keep`` go by; it is asked before git is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: dict[Question, Said] = {}

    @staticmethod
    def question(env: Mapping[str, str], body: bytes) -> Question | None:
        """None for anything but a look at refs, and where it is quicker to ask git."""
        if not _is_look(env, body):
            return None
        repo = Path(env["GIT_PROJECT_ROOT"], env["PATH_INFO"].rpartition(".git/")[0].strip("/") + ".git")
        try:
            of_all = env["REQUEST_METHOD"] == "GET" and env.get("GIT_PROTOCOL") == "version=2"
            seen = _seen_of_server(repo) if of_all else _seen(repo)
        except (OSError, OverflowError):
            return None
        asked = [(name, value) for name, value in env.items() if not (of_all and name in WHERE)]
        return None if seen is None else (tuple(sorted(asked)), body, seen)

    def recall(self, question: Question | None) -> Said | None:
        with self._lock:
            return None if question is None else self._said.get(question)

    def keep(self, question: Question, said: Said) -> None:
        """Where it is short, and came to its end: the last of such an answer are four zeros."""
        is_whole = said.status == 200 and said.pieces and said.pieces[-1].endswith(b"0000")
        if not is_whole or sum(map(len, said.pieces)) > BYTES_MAX:
            return
        with self._lock:
            if len(self._said) >= ANSWERS_MAX:
                self._said.clear()
            self._said[question] = said


ANSWERS = Answers()


def _is_look(env: Mapping[str, str], body: bytes) -> bool:
    path = env["PATH_INFO"]
    if env["REQUEST_METHOD"] == "GET":
        return path.endswith(".git/info/refs") and env["QUERY_STRING"] == "service=git-upload-pack"
    if not path.endswith(".git/git-upload-pack") or len(body) > BYTES_MAX:
        return False
    try:
        plain = gzip.decompress(body) if "gzip" in env.get("HTTP_CONTENT_ENCODING", "") else body
    except (OSError, EOFError, zlib.error):
        return False
    return plain[4:].startswith(b"command=ls-refs") and b"command=" not in plain[5:]


def _seen(repo: Path) -> tuple[object, ...] | None:
    """All that an answer about refs goes by; None where they are not kept as git does by default."""
    of_server = _seen_of_server(repo)
    if of_server is None or (repo / "reftable").exists():
        return None
    single = tuple(_content(repo / name) for name in ("HEAD", "packed-refs"))
    objects = tuple(_listed(repo / "objects")), tuple(_listed(repo / "objects" / "pack"))
    return of_server, tuple(_files(repo / "refs")), single, objects


def _seen_of_server(repo: Path) -> tuple[object, ...] | None:
    """By version 2 a server says first what it can do: the same for all repositories with such settings."""
    has_head, settings = (repo / "HEAD").exists(), _content(repo / "config")
    says_who_asks = b"advertisesid" in (settings or b"").lower()
    return (settings,) if has_head and not says_who_asks else None


def _files(top: Path) -> Iterator[tuple[str, bytes | None]]:
    files = [os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names]
    if len(files) > FILES_MAX:
        raise OverflowError
    for file in sorted(files):
        yield file, _content(Path(file))


def _content(file: Path) -> bytes | None:
    try:
        with file.open("rb") as opened:
            content = opened.read(BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    if len(content) > BYTES_MAX:
        raise OverflowError
    return content


def _listed(folder: Path) -> Iterator[tuple[str, int]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            yield entry.name, entry.stat().st_mtime_ns
