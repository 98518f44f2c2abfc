"""An HTTP server that takes what bots and webhooks are sent, and answers what a test wants."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True)
class Taken:
    """One request, as it came."""

    method: str
    target: str
    headers: dict[str, str]  # names in lower case
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0


class HttpSink:
    """``answer`` is asked for every request; ``taken`` has them all."""

    def __init__(self, answer: Callable[[Taken], Reply], tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.taken: list[Taken] = []
        self.stop = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.base = f"{'https' if tls else 'http'}://{'localhost' if tls else '127.0.0.1'}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.stop.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True  # the client left

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                headers = {k.lower(): v for k, v in self.headers.items()}
                request = Taken(self.command, self.path, headers, body)
                sink.taken.append(request)
                reply = sink.answer(request)
                end = time.monotonic() + reply.delay_s
                while time.monotonic() < end and not sink.stop.wait(0.02):
                    pass
                self.send_response(reply.status)
                for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.body)

            do_GET = do_POST

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


@contextmanager
def http_sink(
    answer: Callable[[Taken], Reply] | Reply | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[HttpSink]:
    reply = answer if isinstance(answer, Reply) else Reply()
    sink = HttpSink(answer if callable(answer) else lambda _: reply, tls)
    try:
        yield sink
    finally:
        sink.close()
