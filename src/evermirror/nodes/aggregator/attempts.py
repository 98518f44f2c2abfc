"""One attempt of the aggregator: refs from who is believed, objects from a holder, through the relay.

    belief upstream   upstream's refs by our own poll ─┐
    belief holder     the holder's refs ───────────────┴─▶ Mirrors.sync(refs, remote = gateway to the holder)
    look              upstream's refs, no more

Whatever happens becomes one ``Attempt``: nothing is raised. What it means is decided in core/collect.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from evermirror.core.collect.decisions import Belief, Fetch, Look
from evermirror.core.collect.events import Attempt, End
from evermirror.core.collect.rows import agree
from evermirror.core.keep.names import KEPT
from evermirror.edge.git.classify import BROKEN_PACK, CAUSE, INCOMPLETE_PACK, MALFORMED, UPSTREAM_MOVED
from evermirror.edge.git.command import Git
from evermirror.edge.git.environment import Asker, Remote
from evermirror.edge.git.fsck import is_refusal, may_be_allowed
from evermirror.edge.git.keep import HeldBack
from evermirror.edge.git.kept_travel import bring_kept
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.git.outcome import SyncOutcome
from evermirror.edge.git.probe import Prober, Unchanged
from evermirror.edge.git.refs import with_real_head
from evermirror.edge.relay.ask import (
    AnswerBroken,
    AnswerTooLarge,
    Ask,
    HolderAway,
    HolderRefused,
    Reach,
    ReaderRefused,
    once,
)
from evermirror.edge.relay.gateway import Gateway
from evermirror.edge.relay.holder_refs import (
    REFS_BYTES_MAX,
    UNTRUSTED_REFS_BYTES_MAX,
    HolderRefsInvalid,
    holder_refs,
)
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.refs import Oid, RefsDigest, RefSnapshot
from evermirror.model.relay import Source
from evermirror.model.repo import Mode, RepoSpec
from evermirror.nodes.worker.round import digest_of

log = structlog.get_logger(__name__)

ATTEMPT_S_MAX = 12 * 3600.0  # a holder that sends a little now and then does not hold a place for ever
# git's own evidence against what was sent, whole: see edge/git/classify.py. Where files here are damaged
# ("corrupt") no holder is to blame.
_BROKEN_OBJECTS = frozenset({MALFORMED, INCOMPLETE_PACK, BROKEN_PACK})


class _UpstreamAway(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _Differs(Exception):
    """The holder serves other refs than it should."""


@dataclass(slots=True)
class _Course:
    """What is known of an attempt under way."""

    number: int
    fetch: Fetch | Look
    looked_at: float
    upstream: RefsDigest | None = None
    served: RefsDigest | None = None
    kept: Mapping[str, Oid] | None = None  # the holder's old tips, where its refs were asked for
    heard: list[Exception] = field(default_factory=list)  # why the holder did not answer, from the gateway

    def ended(self, end: End, failure: Failure | None = None, retry_after_s: float | None = None) -> Attempt:
        return Attempt(
            self.number,
            self.fetch.key,
            end,
            self.looked_at,
            upstream=self.upstream,
            served=self.served,
            failure=failure,
            retry_after_s=retry_after_s,
        )


class Attempts:
    """Any number at once; the caller bounds them."""

    def __init__(
        self,
        git: Git,
        mirrors: Mirrors,
        prober: Prober,
        reach: Reach,
        gateway: Gateway,
        *,
        reader_pass: Callable[[], str],
        clock: Callable[[], float],
    ) -> None:
        self._git = git
        self._mirrors = mirrors
        self._prober = prober
        self._reach = reach
        self._gateway = gateway
        self._reader_pass = reader_pass
        self._clock = clock

    async def look(self, look: Look) -> Attempt:
        """Upstream's refs now."""
        course = _Course(look.number, look, self._clock())
        try:
            await self._ask_upstream(course, look.spec)
        except _UpstreamAway as away:
            return course.ended(End.UPSTREAM_AWAY, away.failure, away.failure.retry_after_s)
        except Exception as error:
            return _broken(course, error)
        return course.ended(End.LOOKED)

    async def fetch(self, fetch: Fetch) -> Attempt:
        """The repo, verified and published; or why not."""
        course = _Course(fetch.number, fetch, self._clock())
        try:
            async with asyncio.timeout(ATTEMPT_S_MAX):
                return await self._fetch(course, fetch)
        except TimeoutError:
            return course.ended(End.HOLDER_AWAY, _failure(f"not done within {ATTEMPT_S_MAX:g} s"))
        except _UpstreamAway as away:
            return course.ended(End.UPSTREAM_AWAY, away.failure, away.failure.retry_after_s)
        except _Differs:
            return course.ended(End.DIFFERS)
        except (HolderAway, HolderRefused, AnswerBroken) as error:
            return _of_holder(course, error)
        except HeldBack as held:
            ended = course.ended(End.GUARDED, held.failure)
            return replace(ended, guard=held.memory)
        except FailureError as error:
            if isinstance(error.__cause__, OSError) and error.failure.kind is not FailureKind.DISK_FULL:
                return course.ended(End.FAILED, error.failure)  # our own disk, and no holder's doing
            return await self._of_git(course, fetch, error.failure)
        except Exception as error:
            return _broken(course, error)

    async def _fetch(self, course: _Course, fetch: Fetch) -> Attempt:
        by_upstream = fetch.belief is Belief.UPSTREAM
        seen = await (
            self._ask_upstream(course, fetch.spec) if by_upstream else self._ask_holder(course, fetch)
        )

        said = course.upstream if by_upstream else course.served
        accept = fetch.accept and agree(said, fetch.expected)

        async def look_again() -> RefSnapshot:
            """The holder lacks something of ``seen``: has that changed meanwhile?"""
            before = course.upstream
            again = await (
                self._ask_upstream(course, fetch.spec) if by_upstream else self._ask_holder(course, fetch)
            )
            # What is accepted was these refs, and no others.
            if not by_upstream or course.upstream == before or accept:
                raise FailureError(_failure("the holder lacks objects of these refs", UPSTREAM_MOVED))
            return again

        source = Source(fetch.key, fetch.holder.node)
        async with self._gateway.open(source, self._reader_pass(), heard=course.heard.append) as url:
            remote = Remote.gateway(url, self._asker(source))
            outcome = await self._mirrors.sync(
                fetch.spec, (), seen, look_again, guard=fetch.guard, accept=accept, remote=remote
            )
            if fetch.kept:
                await self._bring_kept(course, fetch, source, remote)
        published = await self._published(fetch.spec, outcome)
        return replace(course.ended(End.DONE), published=published, size_bytes=outcome.size_bytes)

    def _asker(self, source: Source) -> Asker:
        """For a small change, git's own client and the gateway would cost more than the change."""

        def ask(body: bytes) -> AsyncGenerator[bytes, None]:
            question = Ask(source.key, source.holder, "pack", "version=2", self._reader_pass(), source.ticket)
            return self._reach.ask(question, once(body))

        return ask

    async def _published(self, spec: RepoSpec, outcome: SyncOutcome) -> RefsDigest:
        if spec.mode is Mode.APPEND_ONLY:  # what upstream threw away stays, and counts
            return await digest_of(await self._mirrors.read_refs(spec.key))
        return await digest_of(outcome.after)

    async def _ask_upstream(self, course: _Course, spec: RepoSpec) -> RefSnapshot:
        asked_at = self._clock()
        try:
            seen = await self._prober.probe(spec, None)
        except FailureError as error:
            raise _UpstreamAway(error.failure) from None
        if isinstance(seen, Unchanged):
            raise RuntimeError("upstream is unchanged, though it was compared with nothing")
        snapshot = with_real_head(seen.snapshot)
        course.looked_at, course.upstream = asked_at, await digest_of(snapshot)
        return snapshot

    async def _ask_holder(self, course: _Course, fetch: Fetch) -> RefSnapshot:
        course.looked_at = self._clock()
        if fetch.kept:
            refs, course.kept = await self._all_holder_refs(fetch)
        else:
            refs = await self._holder_refs(fetch)
        course.served = await digest_of(refs)
        if not agree(course.served, fetch.expected):
            raise _Differs
        return refs

    async def _holder_refs(self, fetch: Fetch, *, kept: bool = False) -> RefSnapshot:
        source = Source(fetch.key, fetch.holder.node)
        extra = self._git.settings.refs_extra
        most = REFS_BYTES_MAX if fetch.holder.trusted else UNTRUSTED_REFS_BYTES_MAX
        refs = await holder_refs(
            self._reach, source, self._reader_pass(), kept=kept, extra=extra, bytes_max=most
        )
        return with_real_head(refs)

    async def _all_holder_refs(self, fetch: Fetch) -> tuple[RefSnapshot, Mapping[str, Oid] | None]:
        """With what it keeps, in one question; None where only its public refs can be had in one."""
        try:
            refs = await self._holder_refs(fetch, kept=True)
        except (AnswerTooLarge, HolderRefsInvalid):
            return await self._holder_refs(fetch), None
        kept = {name: oid for name, oid in refs.refs.items() if name.startswith(KEPT)}
        if not kept:
            return refs, kept
        public = {name: oid for name, oid in refs.refs.items() if name not in kept}
        return RefSnapshot(public, refs.head), kept

    async def _bring_kept(self, course: _Course, fetch: Fetch, source: Source, remote: Remote) -> None:
        """What is lacking is tried again with the next change: a fetch does not fail by it."""
        try:
            theirs = course.kept
            if theirs is None:
                theirs = (await holder_refs(self._reach, source, self._reader_pass(), kept=True)).refs
            if not any(name.startswith(KEPT) for name in theirs):
                return
            allowed = fetch.spec.fsck_allow
            came = await bring_kept(self._git, self._mirrors, fetch.key, remote, theirs, allowed)
            if came:
                log.info("kept tips brought", repo=fetch.key, count=came, holder=fetch.holder.name)
        except (HolderAway, HolderRefused, AnswerBroken, FailureError) as error:
            log.warning("kept tips not brought", repo=fetch.key, holder=fetch.holder.name, reason=str(error))

    async def _of_git(self, course: _Course, fetch: Fetch, failure: Failure) -> Attempt:
        cause = failure.context.get(CAUSE)
        if failure.kind is FailureKind.DISK_FULL:
            return course.ended(End.NO_ROOM, failure)
        if course.heard:
            return _of_holder(course, course.heard[-1])
        if cause == UPSTREAM_MOVED:
            return await self._missing(course, fetch, failure)
        if is_refusal(failure) and may_be_allowed(failure):  # another git, or version, takes it honestly
            return course.ended(End.HOLDER_AWAY, failure)
        if cause in _BROKEN_OBJECTS:
            return course.ended(End.CORRUPT, failure)
        if failure.kind is FailureKind.NETWORK_TIMEOUT:
            return course.ended(End.HOLDER_AWAY, failure)
        if failure.corrupt:  # the mirror here
            return course.ended(End.FAILED, failure)
        return course.ended(End.HOLDER_AWAY, failure)  # it said what git does not understand

    async def _missing(self, course: _Course, fetch: Fetch, failure: Failure) -> Attempt:
        """What does it have instead?"""
        try:
            course.served = await digest_of(await self._holder_refs(fetch))
        except (HolderAway, HolderRefused, AnswerBroken) as error:
            log.debug("a holder that lacks objects no longer answers", repo=fetch.key, reason=str(error))
        return course.ended(End.MISSING, failure)


def _of_holder(course: _Course, error: Exception) -> Attempt:
    failure = _failure(str(error))
    match error:
        case ReaderRefused():  # our own pass has ended or was taken back: no fault of the holder
            return course.ended(End.FAILED, failure)
        case HolderRefused():
            return course.ended(End.HOLDER_REFUSED, failure)
        case HolderAway():
            return course.ended(End.HOLDER_AWAY, failure, error.retry_after_s)
        case _:
            return course.ended(End.HOLDER_AWAY, failure)


def _broken(course: _Course, error: Exception) -> Attempt:
    """A bug, or a machine in trouble: the attempt is over, the process goes on."""
    log.exception("an attempt broke", repo=course.fetch.key)
    return course.ended(End.FAILED, _failure(f"{type(error).__name__}: see the log"))


def _failure(message: str, cause: str = "holder") -> Failure:
    return Failure(FailureKind.UNKNOWN, message, context={CAUSE: cause})
