"""A coordinator's application and the pass-on before it, each behind a real HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from dataclasses import dataclass, field

import httpx2

from evermirror.edge.relay.seal import Sealer, Unsealer, new_private_key
from evermirror.faces.api.app import create_app
from evermirror.faces.api.auth import Auth, AuthSettings
from evermirror.faces.api.context import ApiSettings
from evermirror.faces.api.metrics import Metrics
from evermirror.faces.pass_on.app import PassOnSettings, create_pass_on
from evermirror.faces.pass_on.upstream import Upstream, http_client
from evermirror.model.access import Role
from evermirror.model.relay import NodeId, Pass
from evermirror.nodes.http_server import serving
from tests.faces.api.fake import FakeCoordinator, FakeTokens
from tests.faces.api.fake_alerts import FakeAlerts
from tests.faces.api.fake_fleet import FakeFleet
from tests.faces.api.fake_pull import FakePull

PROXY = "127.0.0.1"  # stands in front of both
FIRST_BYTE_S = 10.0  # an answer that comes has begun by then, however busy the machine is
RESTS_S = 1.0  # without more of it, it is over


@dataclass
class Seen:
    """A request as it came to the coordinator."""

    method: str
    target: bytes
    headers: list[tuple[bytes, bytes]]

    def __getitem__(self, name: str) -> str | None:
        found = [v.decode("latin-1") for n, v in self.headers if n == name.encode()]
        assert len(found) <= 1, f"{name} is there more than once"
        return found[0] if found else None


@dataclass
class Pair:
    """``app`` is the coordinator's: the API over a fake service, unless a test puts another one there."""

    service: FakeCoordinator = field(default_factory=FakeCoordinator)
    tokens: FakeTokens = field(default_factory=FakeTokens)
    settings: ApiSettings = field(default_factory=ApiSettings)
    pass_on: PassOnSettings = field(default_factory=PassOnSettings)
    pull: FakePull = field(default_factory=FakePull)
    alerts: FakeAlerts = field(default_factory=FakeAlerts)
    names: tuple[str, ...] = ()
    seen: list[Seen] = field(default_factory=list)
    app: object = None
    url: str = ""  # of the pass-on

    def __post_init__(self):
        self.sealer = Sealer(new_private_key())
        self.read = Unsealer(self.sealer.public_key)
        self.passes = self.sealed()
        self.port = 0
        self._serving = None
        self.app = self.app or self.api()

    def sealed(self, role=Role.AGGREGATOR, until_s=3600.0):
        return self.sealer.seal(Pass(NodeId("aggregator/7"), role, time.time() + until_s))

    def api(self):
        return create_app(
            self.service,
            Auth(self.tokens, AuthSettings()),
            self.settings,
            Metrics(),
            None,
            None,
            FakeFleet(),
            lambda sealed: self.read.read_pass(sealed, time.time()),
            self.pull,
            alert_service=self.alerts,
        )

    async def __call__(self, scope, receive, send):
        query = scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        self.seen.append(Seen(scope["method"], target, list(scope["headers"])))
        await self.app(scope, receive, send)

    @property
    def coordinator(self):
        return f"http://127.0.0.1:{self.port}"

    async def start(self):
        """The coordinator; again on the same port."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", self.port))
        sock.listen()
        self.port = sock.getsockname()[1]
        self._serving = contextlib.AsyncExitStack()
        self._serving.callback(sock.close)
        await self._serving.enter_async_context(serving(self, sock, trusted_proxies=[PROXY]))

    async def stop(self):
        if self._serving is not None:
            await self._serving.aclose()
            self._serving = None

    @contextlib.asynccontextmanager
    async def running(self):
        await self.start()
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.stop)
            client = await stack.enter_async_context(http_client())
            self.upstream = Upstream(client, lambda: self.coordinator, lambda: self.passes)
            auth = Auth(FakeTokens(), AuthSettings(tokens_required=True, hosts=self.names))
            sock = stack.enter_context(socket.socket())
            sock.bind(("127.0.0.1", 0))
            sock.listen()
            self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
            app = create_pass_on(self.upstream, auth, self.pass_on)
            await stack.enter_async_context(serving(app, sock, trusted_proxies=[PROXY]))
            yield self

    def client(self, token=None, address=None, base=None):
        """``address``: told by a proxy on this machine, as deployments have it."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if address:
            headers["X-Forwarded-For"] = address
        return httpx2.AsyncClient(base_url=base or self.url, headers=headers, trust_env=False, timeout=20)

    async def raw(self, data: bytes, port: int | None = None) -> bytes:
        """What comes back to these very bytes, until the connection ends or rests."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port or int(self.url.rpartition(":")[2]))
        writer.write(data)
        got = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_BYTE_S) as bound:
                while part := await reader.read(65536):
                    got += part
                    bound.reschedule(asyncio.get_running_loop().time() + RESTS_S)
        writer.close()
        return got


async def until(holds, within_s=20.0):
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.01)
