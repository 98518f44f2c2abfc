"""The door for nodes of other machines: gRPC with TLS, by tokens; open once a token for a node exists."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

import structlog

from evermirror.config import Config
from evermirror.edge.rpc.pki import TlsFiles, make_ca
from evermirror.edge.rpc.server import GrpcServer
from evermirror.edge.rpc.transport import Accept, Identity
from evermirror.edge.store.store import Store
from evermirror.errors import EvermirrorError
from evermirror.model.access import TokenRecord
from evermirror.model.failure import FailureError
from evermirror.nodes import lifecycle
from evermirror.nodes.coordinator.own_ca import pki_folder, server_names
from evermirror.nodes.supervisor import Supervisor

log = structlog.get_logger(__name__)

DAY_S = 86_400.0  # between two looks whether the certificate is to be renewed
LOOK_S = 5.0  # between two looks whether a token for a worker was made, or one that is in use revoked


def tls_files(config: Config) -> TlsFiles:
    """Given certificates, or those of our own CA."""
    if config.server.tls_cert is not None and config.server.tls_key is not None:
        return TlsFiles(config.server.tls_cert, config.server.tls_key)
    return make_ca(pki_folder(config), server_names(config)).tls


class Door:
    """``run`` beside the fleet. What it opened is closed when it fails, so ``run`` may be called again.

    A database that does not answer is waited for. Meanwhile nobody new is let in; those who are in stay, and
    lose their connections at the first look after it answers again if their tokens were revoked by then."""

    def __init__(
        self,
        config: Config,
        store: Store,
        accept: Accept,
        supervisor: Supervisor,
        beside: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        self._config = config
        self._store = store
        self._accept = accept
        self._supervisor = supervisor
        self._beside = beside  # what a process needs only once there are others
        self.port: int | None = None  # None while it is closed

    async def authenticate(self, token: str) -> Identity | None:
        """Whose it is; whether its role may come in is the gate's to say, with a reason."""
        record = await self._store.find_token(token)
        if record is None:
            return None
        return Identity(record.id, record.name, record.role, record.trusted, record.operator, record.limits)

    async def check_address(self) -> None:
        """At a start, where workers may join: raises EnvironmentUnfit if the port is another program's."""
        if await self._any_tokens():
            lifecycle.bind(self._config.server.grpc_listen).close()

    async def run(self) -> None:
        """Waits for the first token of a worker, then listens until cancelled."""
        while not await self._any_tokens():  # noqa: ASYNC110 (tokens are made by other processes too)
            await asyncio.sleep(LOOK_S)
        async with self._beside(), self.open():
            await asyncio.Event().wait()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[GrpcServer]:
        """Listens as long as the block lasts; tokens that are revoked meanwhile lose their connections."""
        server = GrpcServer(
            self._config.server.grpc_listen,
            tls=await asyncio.to_thread(tls_files, self._config),
            authenticate=self.authenticate,
            accept=self._accept,
        )
        async with server:
            self.port = server.port
            await server.tell_serving()
            log.info("workers may join", grpc=self._config.server.grpc_listen, port=server.port)
            watch = functools.partial(self._close_revoked, server)
            try:
                async with (
                    self._supervisor.running("revoked tokens", watch),
                    self._supervisor.running("certificate", self._renew),
                ):
                    yield server
            finally:
                self.port = None

    async def _renew(self) -> None:
        """A certificate is good for a year, a coordinator may run longer: new connections show a new one."""
        while True:
            await asyncio.sleep(DAY_S)
            try:
                await asyncio.to_thread(tls_files, self._config)
            except EvermirrorError as error:
                log.error("the certificate was not looked at", reason=str(error))

    async def _close_revoked(self, server: GrpcServer) -> None:
        """All that are revoked, at each look: so nothing is missed while the database does not answer."""
        while True:
            for token in await self._tokens():
                if token.revoked_at is not None:
                    await server.close_token(token.id, "this token was revoked")
            await asyncio.sleep(LOOK_S)

    async def _any_tokens(self) -> bool:
        return any(t.role.of_node and t.revoked_at is None for t in await self._tokens())

    async def _tokens(self) -> Sequence[TokenRecord]:
        """As the database has them, however long it takes to answer."""
        told = False
        while True:
            try:
                return await self._store.list_tokens()
            except FailureError as error:
                if not told:
                    log.warning("tokens wait for the database", reason=error.failure.message)
                told = True
                await asyncio.sleep(LOOK_S)
