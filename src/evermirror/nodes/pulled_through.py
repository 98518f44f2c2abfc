"""An all-in-one whose fleet has other workers: what only they hold is pulled through when somebody clones it.

What its own worker holds is served from that worker's folder; so is what moved to others, which that worker
keeps and follows. Only what it never had is pulled through, also while that worker begins to clone it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from evermirror.config import Config, split_host_port
from evermirror.edge.git.command import Git
from evermirror.edge.git.serve import GitServer
from evermirror.edge.rpc.inprocess import InProcessServer
from evermirror.edge.rpc.transport import Identity
from evermirror.errors import InvalidUrl, NotFound
from evermirror.faces.api.git_service import GitService, NotHereYet, ServedRepo
from evermirror.model.access import Role
from evermirror.model.repo import RepoKey, RepoRecord
from evermirror.nodes.aggregator.collector import FOLDER, collecting_side
from evermirror.nodes.aggregator.served_collected import ServedCollected
from evermirror.nodes.clock import SteadyClock
from evermirror.nodes.coordinator.fleet import OWN_TOKEN, Fleet
from evermirror.nodes.supervisor import Supervisor


class PulledThrough:
    """A ``GitService``: the worker's own mirrors, then what others hold, while ``others`` is set. ``find``
    knows the catalog, by key or alias; raises NotFound, InvalidUrl."""

    def __init__(
        self,
        config: Config,
        own: GitService,
        find: Callable[[str], Awaitable[RepoRecord]],
        is_own: Callable[[RepoKey], bool],
    ) -> None:
        self._folder = config.data.dir / FOLDER
        self._own = own
        self._find = find
        self._is_own = is_own
        self.others: ServedCollected | None = None

    async def open(self, key: str, *, begun: bool = False, private: bool = True) -> ServedRepo | None:
        others = self.others
        try:
            repo = await self._own.open(key, begun=begun, private=private)
        except NotHereYet:
            if others is None:
                raise
            record = await self._find(key)
            if not self._is_own(record.key):
                return await others.open(key, begun=begun, private=private)
            if (collected := await others.if_here(record.key)) is not None:
                return collected  # served as it was until this worker has its own copy
            raise
        if repo is not None or others is None or not begun:
            return repo
        # Unknown: a clone of what was just removed may go on. Or not to be known: the others may not have
        # heard yet that it became private. They are asked in either case, so that time does not tell which.
        known = await self._is_known(key)
        leaving = await others.open(key, begun=True, private=private)
        return None if known else leaving

    async def _is_known(self, key: str) -> bool:
        try:
            await self._find(key)
        except (NotFound, InvalidUrl):
            return False
        return True

    def advertise(self, repo: ServedRepo, protocol: str, client: str) -> AsyncIterator[bytes]:
        return self._of(repo).advertise(repo, protocol, client)

    def upload_pack(
        self, repo: ServedRepo, body: AsyncIterator[bytes], protocol: str, client: str
    ) -> AsyncIterator[bytes]:
        return self._of(repo).upload_pack(repo, body, protocol, client)

    def _of(self, repo: ServedRepo) -> GitService:
        others = self.others
        return others if others is not None and repo.path.is_relative_to(self._folder) else self._own


def wanted_here(fleet: Fleet, key: RepoKey) -> bool:
    """Whether the worker in this process is to hold it."""
    repo = fleet.machine.repo(key)
    return repo is not None and any(c.rank is not None and fleet.is_own(c.worker) for c in repo.copies)


@contextlib.asynccontextmanager
async def pulling_through(
    config: Config,
    served: PulledThrough,
    dial: InProcessServer,
    git: Git,
    server: GitServer,
    clock: SteadyClock,
    supervisor: Supervisor,
) -> AsyncIterator[None]:
    """As long as the block lasts; the relay listens where workers join, unless set otherwise."""
    config = _adapted(config)
    name = config.aggregator.name or "all-in-one"
    dialer = dial.dialer(Identity(OWN_TOKEN, name, Role.AGGREGATOR, trusted=True))
    grpc = config.server.grpc_listen
    async with collecting_side(config, dialer, git, server, clock, supervisor, coordinator=grpc) as side:
        served.others = side.served
        try:
            yield
        finally:
            served.others = None


def _adapted(config: Config) -> Config:
    relay, aggregator = config.relay, config.aggregator
    if relay.listen is None:
        host, _ = split_host_port(config.server.grpc_listen)
        relay = relay.model_copy(update={"listen": f"{f'[{host}]' if ':' in host else host}:0"})
    aggregator = aggregator.model_copy(update={"mode": "pull-through"})
    return config.model_copy(update={"relay": relay, "aggregator": aggregator})
