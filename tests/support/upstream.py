"""A real git server for tests: ``git http-backend`` behind a threaded HTTP/1.1 server, with faults to order.

Rules: it listens on a free port of 127.0.0.1 (or of ``address``), keeps connections alive, answers as nginx
with fcgiwrap would; every fault is an attribute or method that may be used while it runs; ``close`` leaves no
thread, socket or process behind.
"""

from __future__ import annotations

import base64
import itertools
import shutil
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

import trustme

from tests.support.backend import Behaviour, Reply, Request, run_backend
from tests.support.gitrepo import UpstreamRepo, run_git

RECORDED_BODY_BYTES = 64 * 1024  # enough for any ls-refs or fetch request; a push is cut


@dataclass(slots=True)
class _Fault:
    status: int
    headers: Mapping[str, str]
    body: bytes
    path: str | None
    left: int | None  # None: always


@dataclass
class UpstreamServer:
    """Serves every bare repository below ``root``. Use as a context manager, or call ``close``."""

    root: Path
    tls: bool = False
    protocol_v2: bool = True  # False: an old server, which speaks v0 whatever it is asked
    dumb: bool = False  # no smart protocol at all: files only
    always_chunked: bool = False  # also small answers are sent in chunks
    keep_alive: bool = True  # False: every answer ends its connection
    server_env: dict[str, str] = field(default_factory=dict)  # added to http-backend's environment
    address: str = "127.0.0.1"

    delay_s: float = 0.0  # before each answer
    stall_after_bytes: int | None = None  # of an answer's body; then silence until this grows, or close
    drop_connection: bool = False  # reset instead of an answer
    drop_after_bytes: int | None = None  # reset in the middle of an answer's body

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.requests: list[Request] = []
        self.connections = 0
        self._faults: list[_Fault] = []
        self._redirects: dict[str, tuple[str, int]] = {}
        self._basic: dict[str, str] = {}
        self._lock = threading.Lock()
        self.closing = threading.Event()
        self.ca_file = self.root.with_name(self.root.name + ".ca.pem")
        self.ssl_context = self._make_ssl_context() if self.tls else None
        self._http = _Server(self)
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()

    def _make_ssl_context(self) -> ssl.SSLContext:
        ca = trustme.CA()
        ca.cert_pem.write_to_path(str(self.ca_file))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert("localhost", "127.0.0.1").configure_cert(context)
        return context

    def __enter__(self) -> UpstreamServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stops listening and ends every connection; a second call does nothing."""
        if self.closing.is_set():
            return
        self.closing.set()
        self._http.shutdown()
        self._thread.join()
        self._http.end_connections()
        self._http.server_close()

    # Addresses and repositories

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def host(self) -> str:
        """As in a URL: the certificate also has the name ``localhost``."""
        return f"{self.address}:{self.port}"

    def url(self, name: str, *, host: str | None = None) -> str:
        return f"{'https' if self.tls else 'http'}://{host or self.address}:{self.port}/{name}"

    def create(self, name: str, commits: int = 3, *, object_format: str = "sha1") -> UpstreamRepo:
        """A new repository ``name``.git with ``commits`` commits on main (0: empty)."""
        plain = name.removesuffix(".git")
        repo = UpstreamRepo.init(
            self.root / f"{plain}.git", plain, self.url(f"{plain}.git"), object_format=object_format
        )
        if commits:
            repo.bulk_commits(commits)
        return repo

    def copy(self, repo: UpstreamRepo, name: str) -> UpstreamRepo:
        """A second repository with the same content: much quicker than ``create``."""
        plain = name.removesuffix(".git")
        target = self.root / f"{plain}.git"
        shutil.copytree(repo.path, target)
        return UpstreamRepo(target, plain, self.url(f"{plain}.git"))

    def delete(self, repo: UpstreamRepo) -> None:
        """Gone: the next request is answered 404."""
        shutil.rmtree(repo.path)

    def make_dumb(self, repo: UpstreamRepo) -> None:
        """Writes what a dumb server needs, and serves it so from now on."""
        run_git(repo.path, "update-server-info")
        self.dumb = True

    # Faults

    def fail_with(
        self,
        status: int,
        headers: Mapping[str, str] | None = None,
        body: bytes | str = b"",
        path: str | None = None,
        times: int | None = None,
    ) -> None:
        """Answers so every request (whose path contains ``path``), ``times`` times or until ``heal``."""
        data = body.encode() if isinstance(body, str) else body
        with self._lock:
            self._faults.append(_Fault(status, dict(headers or {}), data, path, times))

    def redirect(self, path: str, location: str, status: int = 302) -> None:
        """Requests below ``path`` ("/team/x.git") go to the same rest below ``location``."""
        self._redirects["/" + path.strip("/")] = (location.rstrip("/"), status)

    def require_basic(self, user: str, password: str, path: str = "/") -> None:
        """401 to everyone who does not send these, below ``path``."""
        self._basic[path] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def heal(self) -> None:
        """Forgets every fault, redirect and password."""
        with self._lock:
            self._faults.clear()
        self._redirects.clear()
        self._basic.clear()
        self.delay_s = 0.0
        self.stall_after_bytes = self.drop_after_bytes = None
        self.drop_connection = False

    def end_connections(self) -> None:
        """Closes every open connection, as a server does that restarts."""
        self._http.end_connections()

    # Answering: used by the handler

    def record(self, request: Request) -> None:
        with self._lock:
            self.requests.append(request)

    def answer(self, request: Request, body: bytes) -> Reply:
        fault = self._take_fault(request.path)
        if fault is not None:
            return Reply(fault.status, list(fault.headers.items()), iter([fault.body]))
        split = urlsplit(request.path)
        for below, (location, status) in self._redirects.items():
            if split.path == below or split.path.startswith(below + "/"):
                target = location + request.path[len(below) :]
                return Reply(status, [("Location", target)], iter([b""]))
        for below, wanted in self._basic.items():
            if split.path.startswith(below) and request.headers.get("authorization") != wanted:
                return Reply(401, [("WWW-Authenticate", 'Basic realm="git"')], iter([b"who are you?\n"]))
        return run_backend(self._behaviour(), request, body)

    def _behaviour(self) -> Behaviour:
        return Behaviour(self.root, self.protocol_v2, self.dumb, self.server_env)

    def _take_fault(self, path: str) -> _Fault | None:
        with self._lock:
            for fault in self._faults:
                if (fault.path is None or fault.path in path) and fault.left != 0:
                    if fault.left is not None:
                        fault.left -= 1
                    return fault
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    request_queue_size = 512

    def __init__(self, owner: UpstreamServer) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        super().__init__((owner.address, 0), _Handler)

    def register(self, connection: socket.socket) -> None:
        with self._open_lock:
            self._open.add(connection)
        if self.owner.closing.is_set():
            _shut(connection)

    def forget(self, connection: socket.socket) -> None:
        with self._open_lock:
            self._open.discard(connection)

    def end_connections(self) -> None:
        with self._open_lock:
            for connection in self._open:
                _shut(connection)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news; anything else is a fault of this server and must be seen."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _shut(connection: socket.socket) -> None:
    try:
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # below TLS: no closing handshake
    except OSError:
        return


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def setup(self) -> None:
        owner = self.server.owner
        with owner._lock:
            owner.connections += 1
            self.number = owner.connections
        if owner.ssl_context is not None:
            self.request = owner.ssl_context.wrap_socket(
                self.request, server_side=True, do_handshake_on_connect=False
            )
        self.server.register(self.request)
        try:
            if owner.ssl_context is not None:
                self.request.do_handshake()
        except BaseException:
            self._let_go()
            raise
        super().setup()

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self.server.forget(self.request)
        self.request.close()

    def log_message(self, format: str, *args: object) -> None:
        return

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self._read_body())

    do_PUT = do_PATCH = do_DELETE = do_POST

    def _read_body(self) -> bytes:
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.wfile.flush()
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            continue
        return b"".join(parts)

    def _serve(self, body: bytes) -> None:
        owner = self.server.owner
        headers = {k.lower(): v for k, v in self.headers.items()}
        request = Request(self.command, self.path, headers, body[:RECORDED_BODY_BYTES], self.number)
        owner.record(request)
        if owner.delay_s:
            owner.closing.wait(owner.delay_s)
        if owner.drop_connection:
            self._reset()
            return
        if not owner.keep_alive:
            self.close_connection = True
        reply = owner.answer(request, body)
        try:
            self._send(reply)
        finally:
            close = getattr(reply.body, "close", None)
            if close is not None:
                close()

    def _send(self, reply: Reply) -> None:
        owner = self.server.owner
        first = next(reply.body, b"")
        second = next(reply.body, None) if first else None
        names = {name.lower() for name, _ in reply.headers}
        self.send_response_only(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        chunked = "content-length" not in names and (second is not None or owner.always_chunked)
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif "content-length" not in names:
            self.send_header("Content-Length", str(len(first)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self._pump(first, second, reply.body, chunked) and chunked:
            self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _pump(self, first: bytes, second: bytes | None, rest: Iterator[bytes], chunked: bool) -> bool:
        """Sends the body through the faults; False where one of them ended the connection."""
        sent = 0
        for data in itertools.chain([first], [second] if second is not None else [], rest):
            sent += len(data)
            if not self._write(data, sent, chunked):
                return False
            if data is not first:
                self.wfile.flush()  # git may think for long until it says more; who left is noticed
        return True

    def _write(self, data: bytes, sent: int, chunked: bool) -> bool:
        owner = self.server.owner
        limit = owner.drop_after_bytes
        if limit is not None and sent > limit:
            self._chunk(data[: max(0, len(data) - (sent - limit))], chunked)
            self.wfile.flush()
            self._reset()
            return False
        while (limit := owner.stall_after_bytes) is not None and sent > limit:
            part = max(0, len(data) - (sent - limit))
            self._chunk(data[:part], chunked)
            self.wfile.flush()
            data = data[part:]
            if owner.closing.wait(0.05):
                self.close_connection = True
                return False
        self._chunk(data, chunked)
        return True

    def _chunk(self, data: bytes, chunked: bool) -> None:
        if data:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)

    def _reset(self) -> None:
        """The client sees a connection reset, not an orderly end."""
        self.close_connection = True
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.server.forget(self.request)
        self.request.close()  # takes effect when finish closes the files on it
