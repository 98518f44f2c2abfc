"""A client of hooks for each stand-in, and a receiver that hooks are really sent to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from evermirror.edge.forge.hooks_api import ForgeHooks
from evermirror.edge.forge.hooks_make import make_forge_hooks
from evermirror.edge.forge.http import Pace, Patience
from evermirror.edge.git.credentials import Credential, Redactor
from evermirror.model.forge import Forge
from evermirror.model.hook import WantedHook
from tests.edge.forge.forge_world import QUICK, TOKEN
from tests.support.forges.api_server import ApiServer

SECRET = "canary-secret+8e3a/5c"
URL = "http://127.0.0.1:9/api/webhooks/any?repo=git.example.org%2Fteam%2Fx"


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Answers ``status`` to every hook, and keeps them."""

    status: int = 202
    got: list[Received] = field(default_factory=list)
    url: str = ""


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.got.append(Received(self.path, headers, body))
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/api/webhooks/any?repo=a%2Fb"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def hooks_client(
    forge: Forge,
    server: ApiServer,
    token: str = TOKEN,
    *,
    patience: Patience = QUICK,
    pace: Pace | None = None,
) -> ForgeHooks:
    async def resolve(url: str) -> tuple[str, ...]:
        assert url.startswith(server.base_url)
        return (server.address,)

    credential = Credential("c", token=token, forge=forge.value) if token else None
    known = Redactor([credential] if credential else [])
    return make_forge_hooks(
        forge, server.base_url, credential, resolve=resolve, redactor=known, pace=pace, patience=patience
    )


def wanted(api: ForgeHooks, url: str = URL, secret: str = SECRET) -> WantedHook:
    return WantedHook(url, secret, api.events)
