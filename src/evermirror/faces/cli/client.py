"""Talks to the HTTP API; whatever goes wrong becomes an error with a hint and the right exit code."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlsplit

import httpx2

from evermirror.errors import Conflict, EvermirrorError, ExitCode, NotFound, UsageError
from evermirror.model.printable import one_line

DEFAULT_SERVER = "http://127.0.0.1:8420"
CONNECT_TIMEOUT_S = 5.0  # a server that is there accepts at once
ANSWER_TIMEOUT_S = 30.0  # our answers take milliseconds; a busy database may take seconds
ANSWER_BYTES_MAX = 64_000_000  # 1,000 repos with everything are about 1 MB
PAGE_ITEMS = 1000  # the API's largest page
TOKEN_BYTES_MAX = 4096
MESSAGE_CHARS_MAX = 2000

Fields = dict[str, object]  # one JSON object of the API


class Unreachable(EvermirrorError):
    """No server answers there, or it is not ours."""

    exit_code = ExitCode.UNREACHABLE


class Denied(EvermirrorError):
    """The token is missing, wrong or too weak."""

    exit_code = ExitCode.DENIED


class Client:
    """One connection to a server's API."""

    def __init__(self, server: str, token: str | None = None) -> None:
        self.server = _checked(server)
        headers = {"Accept": "application/json", "User-Agent": "evermirror-cli"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx2.Client(
            base_url=self.server,
            headers=headers,
            timeout=httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            trust_env=not _is_local(self.server),  # a proxy does not know our loopback
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def get(
        self, path: str, query: Mapping[str, str | int] | None = None, *, wait_s: float | None = None
    ) -> Fields:
        return self._ask("GET", path, query=query, wait_s=wait_s)

    def post(self, path: str, body: Mapping[str, object]) -> Fields:
        return self._ask("POST", path, body=body)

    def put(self, path: str, body: Mapping[str, object]) -> Fields:
        return self._ask("PUT", path, body=body)

    def delete(self, path: str, query: Mapping[str, str | int] | None = None) -> Fields:
        return self._ask("DELETE", path, query=query)

    def pages(
        self, path: str, query: Mapping[str, str | int], limit: int | None
    ) -> Iterator[tuple[list[Fields], object]]:
        """Pages of ``items`` with their ``next_cursor``, up to ``limit`` items (None: all)."""
        left = limit
        cursor: object = None
        while left is None or left > 0:
            size = PAGE_ITEMS if left is None else min(left, PAGE_ITEMS)
            asked = {**query, "limit": size, **({"cursor": str(cursor)} if cursor else {})}
            page = self.get(path, asked)
            items = [i for i in _list(page.get("items")) if isinstance(i, dict)]
            cursor = page.get("next_cursor")
            yield items, cursor
            left = None if left is None else left - len(items)
            if not cursor or not items:
                return

    @contextmanager
    def lines(
        self, path: str, query: Mapping[str, str | int], headers: Mapping[str, str], *, silence_s: float
    ) -> Iterator[Iterator[str]]:
        """The lines of an answer that goes on; one that says nothing for so long is ``Unreachable``."""
        timeout = httpx2.Timeout(silence_s, connect=CONNECT_TIMEOUT_S)
        asked = {"Accept": "text/event-stream", **headers}
        try:
            with self._http.stream("GET", path, params=dict(query), headers=asked, timeout=timeout) as answer:
                if not answer.is_success:
                    raise _problem(answer.status_code, _fields(_read(answer)) or {}, path)
                yield answer.iter_lines()
        except httpx2.HTTPError as error:
            raise Unreachable(
                f"the connection to {self.server} was lost: {one_line(str(error)) or type(error).__name__}",
                hint="Start a server with `evermirror up`, or name it with --server or EVERMIRROR_SERVER",
            ) from error

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, object] | None = None,
        wait_s: float | None = None,
    ) -> Fields:
        timeout = self._http.timeout if wait_s is None else httpx2.Timeout(wait_s)
        params = dict(query or {})
        try:
            with self._http.stream(method, path, params=params, json=body, timeout=timeout) as answer:
                content = _read(answer)
        except httpx2.TimeoutException as error:
            raise Unreachable(
                f"{self.server} does not answer in time", hint="Is it busy or behind a firewall? Try again"
            ) from error
        except httpx2.HTTPError as error:
            raise Unreachable(
                f"no server answers at {self.server}: {one_line(str(error)) or type(error).__name__}",
                hint="Start one with `evermirror up`, or name it with --server or EVERMIRROR_SERVER",
            ) from error
        fields = _fields(content)
        if answer.is_success and (fields is not None or not content):
            return fields or {}
        if fields is None or answer.is_redirect:
            raise Unreachable(
                f"{self.server} answered {answer.status_code}, but not as an evermirror server",
                hint="Check --server or EVERMIRROR_SERVER",
            )
        raise _problem(answer.status_code, fields, path)


def repo_path(prefix: str, key: str) -> str:
    """``/api/repos/<key>``; a URL given for a key stays whole."""
    return f"{prefix}/{quote(key, safe='')}"


def read_token_file(file: Path) -> str:
    """The token in a file; raises UsageError."""
    try:
        with file.open("rb") as opened:
            token = opened.read(TOKEN_BYTES_MAX + 1).decode("ascii").strip()
    except OSError as error:
        raise UsageError(f"token file {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UsageError(f"token file {file} holds no token") from None
    if not token or len(token) > TOKEN_BYTES_MAX or not token.isprintable():
        raise UsageError(f"token file {file} holds no token")
    return token


def connect(server: str | None, token_file: Path | None, config_file: Path | None) -> Client:
    """The server and token of flags, else of the environment, else of the settings.

    A token in the settings belongs to the server named there and is sent to no other."""
    env_token = os.environ.get("EVERMIRROR_TOKEN", "").strip()
    token = read_token_file(token_file) if token_file is not None else env_token or None
    if token is not None and not (token.isascii() and token.isprintable()):
        raise UsageError("EVERMIRROR_TOKEN holds no token")
    server = server or os.environ.get("EVERMIRROR_SERVER")
    if server and token:
        return Client(server, token)
    from evermirror.config import load_config

    config = load_config(config_file)
    own = config.client.server or listen_url(config.server.listen, tls=config.server.tls_cert is not None)
    server = server or own
    if token is None and config.client.token is not None and server.rstrip("/") == own.rstrip("/"):
        token = config.client.token.get_secret_value()
    return Client(server, token)


def listen_url(listen: str, *, tls: bool) -> str:
    """Where our own server is reached from this machine."""
    from evermirror.config import split_host_port

    host, port = split_host_port(listen)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (read, not listened on)
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _checked(server: str) -> str:
    try:
        parts = urlsplit(server)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
        _ = parts.port
    except ValueError:
        fine = False
    if not fine or not server.isascii() or not server.isprintable():
        raise UsageError(f"server {one_line(server)!r} is not a URL such as {DEFAULT_SERVER}")
    return server.rstrip("/")


def _is_local(server: str) -> bool:
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read(answer: httpx2.Response) -> bytes:
    content = bytearray()
    for chunk in answer.iter_bytes():
        content += chunk
        if len(content) > ANSWER_BYTES_MAX:
            raise EvermirrorError(
                f"the answer is larger than {ANSWER_BYTES_MAX} bytes", hint="Ask for less: --limit"
            )
    return bytes(content)


def _fields(content: bytes) -> Fields | None:
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _problem(status: int, fields: Fields, path: str) -> EvermirrorError:
    message = one_line(str(fields.get("detail") or fields.get("title") or f"the server answered {status}"))
    message = message[:MESSAGE_CHARS_MAX].removesuffix(".")
    hint = _hint(fields, path)[:MESSAGE_CHARS_MAX]
    match status:
        case 401 | 403:
            return Denied(message, hint=hint or _HINTS["token-needed"])
        case 404:
            return NotFound(message, hint=hint)
        case 409:
            return Conflict(message, hint=hint)
        case _ if 400 <= status < 500 and status not in (408, 429):
            return UsageError(message, hint=hint)
        case _:
            return EvermirrorError(message, hint=hint)


# By problem type: what to do at a command line, where the server speaks to a program.
_HINTS = {
    "not-found": "Add it with `evermirror add URL`, or look for it with `evermirror repos --search TEXT`",
    "token-needed": "Give a token with --token-file or EVERMIRROR_TOKEN; `evermirror token create` makes one",
}
# Of what is not found, by the beginning of its address.
_PROJECT_HINT = (
    "Add it with `evermirror pull add KEY URL`, or look for it with `evermirror pull list --search TEXT`"
)
_NOT_FOUND_HINTS = {
    "/api/tasks/": "It may have been long ago: ask again with `evermirror sync KEY`",
    "/api/fleet/": "`evermirror workers` lists them",
    "/api/alerts/test": "`evermirror alerts channels` lists them",
    "/api/alerts/silences/": "`evermirror alerts silences` lists them",
    "/api/alerts/": "`evermirror alerts list --all` lists them",
    "/api/event_hooks/letters": "`evermirror events hooks` lists them",
    "/api/event_hooks/": "`evermirror events hooks` lists them, `evermirror events letters` their letters",
    "/api/bulk/": "`evermirror bulk list` lists the last ones",
    "/api/hooks/registrations/": "`evermirror webhook status` lists those since the server's start",
    "/api/pull/tasks/": "It may have been long ago: `evermirror pull tasks KEY` lists those of a project",
    "/api/pull/discoveries/previews/": "Dry runs are kept for an hour: try another one",
    "/api/pull/discoveries/": "`evermirror pull discover list` lists them",
    "/api/pull/projects/": _PROJECT_HINT,
    "/api/pull/trigger/": _PROJECT_HINT,
}
_OWN_HINTS = ("/-/restore", "/targets/adopt")  # of a repo that is not there, or of a ref or target of it
_HTTP = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE) /")


def _hint(fields: Fields, path: str) -> str:
    kind = str(fields.get("type") or "").removeprefix("/problems/")
    own = one_line(str(fields.get("hint") or ""))
    own = "" if _HTTP.search(own) else own
    if own and path.endswith(_OWN_HINTS):
        return own
    if kind == "not-found":
        for prefix, hint in _NOT_FOUND_HINTS.items():
            if path.startswith(prefix):
                return hint
    return _HINTS.get(kind) or own
