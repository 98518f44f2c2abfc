"""Holders that are nearer than upstream: a repo that comes to this worker, or that another one saw move, is
copied from there through the relay, and upstream gives only the difference."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable

import structlog

from evermirror.core.keep.names import KEPT
from evermirror.edge.git.command import Git
from evermirror.edge.git.environment import Remote
from evermirror.edge.git.kept_travel import bring_kept
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.git.transfer import Seed
from evermirror.edge.relay.ask import Reach
from evermirror.edge.relay.gateway import Gateway
from evermirror.edge.relay.holder_refs import UNTRUSTED_REFS_BYTES_MAX, holder_refs
from evermirror.edge.relay.seal import SealInvalid, Unsealer
from evermirror.errors import EvermirrorError
from evermirror.model.failure import FailureError
from evermirror.model.refs import RefSnapshot
from evermirror.model.relay import NodeId, Source
from evermirror.model.repo import RepoKey, RepoSpec
from evermirror.model.wire import Access

RENEWED_S = 30.0  # a new ticket is waited for so long
SPARE_S = 60.0  # a ticket that ends sooner is renewed before it is used
SOURCES_MAX = 100_000  # noted and not used yet; the oldest are forgotten: upstream has it all

log = structlog.get_logger(__name__)


class Nearby:
    """``note`` what the coordinator says; ``seed`` a sync with it, once."""

    def __init__(
        self,
        git: Git,
        mirrors: Mirrors,
        reach: Reach,
        gateway: Gateway,
        access: Callable[[], Access | None],
        ask_source: Callable[[RepoKey], None] = lambda key: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``ask_source`` has the coordinator name the holders again, with new tickets."""
        self._git = git
        self._mirrors = mirrors
        self._reach = reach
        self._gateway = gateway
        self._access = access
        self._ask_source = ask_source
        self._clock = clock
        self._sources: dict[RepoKey, Source] = {}
        self._asked: dict[RepoKey, tuple[NodeId, asyncio.Future[Source]]] = {}  # and of whom

    def note(self, sources: Iterable[Source]) -> None:
        for source in sources:
            if source.key in self._asked:
                self._answered(source)
                continue
            self._sources.pop(source.key, None)
            self._sources[source.key] = source
        while len(self._sources) > SOURCES_MAX:
            del self._sources[next(iter(self._sources))]

    @contextlib.asynccontextmanager
    async def seed(self, spec: RepoSpec) -> AsyncIterator[Seed | None]:
        """For one sync of the repo. Once that is done, old tips that a trusted holder keeps come too."""
        source, access = self._sources.pop(spec.key, None), self._access()
        refs = None
        if source is not None and access is not None and self._reach.reachable(source.holder):
            refs = await self._refs(source, access.pass_)
        if source is None or access is None or refs is None:
            yield None
            return
        async with self._gateway.open(source, access.pass_) as url:
            yield Seed(Remote.gateway(url), refs.refs)
        if source.trusted and any(name.startswith(KEPT) for name in refs.refs):
            await self._bring_kept(source, refs, spec.fsck_allow)

    async def _refs(self, source: Source, pass_: str) -> RefSnapshot | None:
        try:
            if source.trusted:
                return await holder_refs(self._reach, source, pass_, kept=True)
            return await holder_refs(self._reach, source, pass_, bytes_max=UNTRUSTED_REFS_BYTES_MAX)
        except EvermirrorError as error:
            log.info("its holder does not answer: upstream is asked", repo=source.key, reason=error.message)
            return None

    async def _bring_kept(self, source: Source, refs: RefSnapshot, allowed: tuple[str, ...]) -> None:
        """A sync does not fail by it: the old holder deletes its copy only when this one has the same refs,
        and its trash keeps what it kept."""
        key = source.key
        try:
            fresh, pass_ = await self._renewed(source)
            async with self._gateway.open(fresh, pass_) as url:
                remote = Remote.gateway(url)
                came = await bring_kept(self._git, self._mirrors, key, remote, refs.refs, allowed)
        except (EvermirrorError, FailureError) as error:
            log.warning("kept tips not brought", repo=key, reason=str(error))
            return
        if came:
            log.info("kept tips brought", repo=key, count=came)

    async def _renewed(self, source: Source) -> tuple[Source, str]:
        """The source with a ticket that is good, and the newest pass: a clone may take longer than either
        lasts. Raises SealInvalid where no new ticket comes."""
        access = self._access()
        if access is None:
            raise SealInvalid("this worker has no pass")
        try:
            Unsealer(access.seal_key).read_ticket(source.ticket, self._clock() + SPARE_S)
            return source, access.pass_
        except SealInvalid as ended:
            asked: asyncio.Future[Source] = asyncio.get_running_loop().create_future()
            self._asked[source.key] = source.holder, asked
            self._ask_source(source.key)
            try:
                async with asyncio.timeout(RENEWED_S):
                    return await asked, access.pass_
            except TimeoutError:
                raise ended from None
            finally:
                del self._asked[source.key]

    def _answered(self, source: Source) -> None:
        holder, asked = self._asked[source.key]
        if source.holder == holder and not asked.done():
            asked.set_result(source)
