"""Holders that are nearer than upstream: a repo that comes to this worker, or that another one saw move, is
copied from there through the relay, and upstream gives only the difference."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

import structlog

from evermirror.edge.git.command import Git
from evermirror.edge.git.environment import Remote
from evermirror.edge.git.kept_travel import bring_kept
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.git.transfer import Seed
from evermirror.edge.relay.ask import Reach
from evermirror.edge.relay.gateway import Gateway
from evermirror.edge.relay.holder_refs import UNTRUSTED_REFS_BYTES_MAX, holder_refs
from evermirror.errors import EvermirrorError
from evermirror.model.failure import FailureError
from evermirror.model.refs import RefSnapshot
from evermirror.model.relay import Source
from evermirror.model.repo import RepoKey, RepoSpec
from evermirror.model.wire import Access

SOURCES_MAX = 100_000  # noted and not used yet; the oldest are forgotten: upstream has it all

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Open:
    source: Source
    refs: RefSnapshot
    remote: Remote


class Nearby:
    """``note`` what the coordinator says; ``seed`` a sync with it, once."""

    def __init__(
        self,
        git: Git,
        mirrors: Mirrors,
        reach: Reach,
        gateway: Gateway,
        access: Callable[[], Access | None],
    ) -> None:
        self._git = git
        self._mirrors = mirrors
        self._reach = reach
        self._gateway = gateway
        self._access = access
        self._sources: dict[RepoKey, Source] = {}

    def note(self, sources: Iterable[Source]) -> None:
        for source in sources:
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
            remote = Remote.gateway(url)
            yield Seed(remote, refs.refs)
            if source.trusted:
                await self._bring_kept(_Open(source, refs, remote), spec.fsck_allow)

    async def _refs(self, source: Source, pass_: str) -> RefSnapshot | None:
        try:
            if source.trusted:
                return await holder_refs(self._reach, source, pass_, kept=True)
            return await holder_refs(self._reach, source, pass_, bytes_max=UNTRUSTED_REFS_BYTES_MAX)
        except EvermirrorError as error:
            log.info("its holder does not answer: upstream is asked", repo=source.key, reason=error.message)
            return None

    async def _bring_kept(self, near: _Open, allowed: tuple[str, ...]) -> None:
        """A sync does not fail by it: the old holder deletes its copy only when this one has the same refs,
        and its trash keeps what it kept."""
        key = near.source.key
        try:
            came = await bring_kept(self._git, self._mirrors, key, near.remote, near.refs.refs, allowed)
        except (EvermirrorError, FailureError) as error:
            log.warning("kept tips not brought", repo=key, reason=str(error))
            return
        if came:
            log.info("kept tips brought", repo=key, count=came)
