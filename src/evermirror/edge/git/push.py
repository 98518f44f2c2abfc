"""Puts a mirror's branches and tags at a target: decided by core/push, done by git, looked at afterwards.

    mirror's refs ─▶ what we last put ─▶ target's refs ─▶ plan ─▶ intents written
        ─▶ room made ─▶ updates ─▶ default branch ─▶ deletions ─▶ target's refs again ─▶ settled, written

One push at a time for a target of a repo; the lock is inherited by git, so that a git that outlives us is
waited for too. The mirror may move on meanwhile: what is pushed are objects of one moment, and these stay (a
tip that upstream throws away is kept). Success means that the target was seen to have what the mirror had.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from evermirror.core.push.plan import LastPut, PushPlan, public_refs
from evermirror.core.push.settle import Settled, intents, settle
from evermirror.core.push.standing import REFS_SHOWN, standing_of
from evermirror.edge.forge.default_branch import DefaultBranches
from evermirror.edge.forge.visibility import Visibilities
from evermirror.edge.git.classify import at_target
from evermirror.edge.git.command import Git
from evermirror.edge.git.damage import judge_damage
from evermirror.edge.git.folder import Locks, folder_id
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.git.probe import Prober, Seen
from evermirror.edge.git.progress import GitProgress
from evermirror.edge.git.push_exposure import Exposure
from evermirror.edge.git.push_planning import Planning
from evermirror.edge.git.push_sending import PushSettings as PushSettings
from evermirror.edge.git.push_sending import Sending, out_of_contact
from evermirror.edge.git.put_file import UNSEEN, PutRecord, read_put, read_puts, write_put
from evermirror.edge.git.ref_files import read_ref_files
from evermirror.edge.git.refless import refless
from evermirror.edge.git.refs import head_target, sort_refs
from evermirror.edge.git.surroundings import surroundings
from evermirror.edge.git.upkeep import is_damaged
from evermirror.edge.store.whole import whole
from evermirror.errors import InvalidUrl
from evermirror.model.failure import (
    OURS,
    REFUSED_REFS,
    SOURCE_URL,
    TARGET_URL,
    Failure,
    FailureError,
    FailureKind,
    ls_remote_command,
)
from evermirror.model.printable import one_line
from evermirror.model.push import (
    PUSHES_MAX,
    REFS_TOLD,
    Pushed,
    PushedRef,
    PushTo,
    RefOutcome,
    Standings,
    put_digest,
)
from evermirror.model.refs import Oid, RefsDigest, RefSnapshot
from evermirror.model.repo import RepoKey, RepoSpec
from evermirror.model.url import parse_url

log = structlog.get_logger(__name__)

REFS_IN_WORDS = 3  # named in a failure's one line

MayPush = Callable[[], bool]
Progressed = Callable[[GitProgress], None]


@dataclass(frozen=True, slots=True)
class _Wish:
    """One call of ``push``."""

    key: RepoKey
    to: PushTo
    spec: RepoSpec  # the target, as if it were an upstream
    accept: bool
    force: bool
    may_push: MayPush
    progressed: Progressed
    believed: RefsDigest | None
    source: RepoSpec | None


@dataclass(slots=True)
class _Work:
    """What a push has come to so far."""

    wanted: RefSnapshot
    record: PutRecord | None
    lock_fd: int
    settled: Settled = field(default_factory=lambda: Settled(LastPut()))
    after: Seen | None = None
    sent_bytes: int = 0
    failure: Failure | None = None
    warning: str = ""
    head_followed: bool = False


class Pusher:
    """Pushes mirrors on to their targets."""

    def __init__(
        self, git: Git, mirrors: Mirrors, prober: Prober, settings: PushSettings, clock: Callable[[], float]
    ) -> None:
        self._git = git
        self._mirrors = mirrors
        self._prober = prober
        self._settings = settings
        self._clock = clock
        self._locks = Locks(git.settings.own_dir / "pushes", settings.lock_wait_s)
        self._branches = DefaultBranches(self._addresses, git.credentials.redactor, settings.ca_file)
        self._exposure = Exposure(
            prober,
            git.credentials,
            Visibilities(self._addresses, git.credentials.redactor, settings.ca_file),
            settings.visibility,
            settings.public_targets,
        )
        self._surroundings: dict[str, str] = {}  # asked for once it is needed

    async def behind(self, key: RepoKey, to: PushTo) -> bool:
        """Is there anything to be pushed, as far as our own files tell? No process, no network."""
        try:
            return await asyncio.to_thread(self._behind, self._mirrors.path(key), to)
        except FailureError:
            return True

    def _behind(self, repo: Path, to: PushTo) -> bool:
        try:
            record = read_put(repo, to.target, self._spec(to).url)
            refs = read_ref_files(repo)
            here = sort_refs(refs, head_target(repo)).public if refs is not None else None
        except (InvalidUrl, OSError):
            return True
        return to.adopt or here is None or not is_level(record, here, to)

    async def standings(self, key: RepoKey) -> Standings:
        """How all targets are that something was put at, as far as our own files tell."""
        refs = public_refs((await self._mirrors.read_refs(key)).refs)
        return await asyncio.to_thread(_standings, self._mirrors.path(key), refs)

    async def push(
        self,
        key: RepoKey,
        to: PushTo,
        *,
        accept: bool,
        force: bool,
        may_push: MayPush,
        progressed: Progressed,
        source_url: str = "",
        believed: RefsDigest | None = None,
        source: RepoSpec | None = None,
    ) -> Pushed:
        """Make the target what the mirror is, as far as that is ours to do. Whatever goes wrong with it is in
        ``Pushed.failure``; it is ``corrupt`` where the mirror must be mended first. ``accept``: a person's
        word for what the guard holds; ``force`` reads the target also where nothing seems to be left to do.
        ``believed`` is the digest of the mirror's refs as its last sync left them: where others are found,
        the disk lost them and not the source. ``source``: nothing is shown to more people than it is."""
        started_at = self._clock()
        try:
            spec = self._spec(to)
        except InvalidUrl as error:
            failure = Failure(
                FailureKind.UNKNOWN, f"the target's URL is refused: {error.reason}", hint=error.hint
            )
            told = await self._told(failure, source_url or key, "")
            return Pushed(to.target, None, started_at=started_at, ended_at=self._clock(), failure=told)
        wish = _Wish(key, to, spec, accept, force, may_push, progressed, believed, source)
        try:
            async with self._locks.hold(folder_id(RepoKey(f"{key}\n{to.target}"))) as lock_fd:
                pushed = await self._push(wish, lock_fd)
        except FailureError as error:
            put = await asyncio.to_thread(self._known_digest, wish)
            pushed = Pushed(to.target, put, failure=error.failure)
        if pushed.failure is not None:
            failure = await self._judged(key, pushed.failure)
            pushed = replace(pushed, failure=await self._told(failure, source_url or key, spec.url))
        return replace(pushed, started_at=started_at, ended_at=self._clock())

    async def _push(self, wish: _Wish, lock_fd: int) -> Pushed:
        repo = self._mirrors.path(wish.key)
        wanted = await self._snapshot(wish)
        record = await asyncio.to_thread(read_put, repo, wish.to.target, wish.spec.url)
        if not (wish.force or wish.to.adopt) and await asyncio.to_thread(is_level, record, wanted, wish.to):
            return Pushed(wish.to.target, wish.to.put, wanted.head_oid)
        work = _Work(wanted, record, lock_fd)
        await self._work(wish, work)
        return await asyncio.to_thread(self._pushed, wish, work)

    async def _work(self, wish: _Wish, work: _Work) -> None:
        seen = await self._look(wish.spec)
        plan = await Planning(
            self._git,
            self._mirrors.path(wish.key),
            work.wanted,
            work.record.last if work.record is not None else None,
            wish.to,
            self._settings.guard,
            wish.accept,
            wish.force,
        ).plan(seen.snapshot.refs)
        work.settled, work.after = Settled(plan.put, plan.waiting), seen
        if plan.held is not None:
            work.failure = Failure(
                FailureKind.CONFLICT,
                plan.held_words,
                hint="Look at the source; confirm it (`evermirror confirm`) to have it followed",
                context={"guard": plan.held.value},
            )
            return
        if wish.source is not None and (plan.changes or wish.force):
            work.failure = await self._exposure.check(wish.source, wish.spec)
            if work.failure is not None:
                return
        if plan.changes:
            await self._write(wish, work, await asyncio.to_thread(intents, plan))
        sending = await self._send(wish, work, plan, seen)
        unseen: Failure | None = None
        if sending.begun:
            try:
                work.after = await self._look(wish.spec)
            except FailureError as error:
                work.after, unseen = None, error.failure
        there = work.after.snapshot.refs if work.after is not None else None
        work.settled = await asyncio.to_thread(
            settle, plan, work.wanted.refs, sending.told, sending.begun, there
        )
        failure = await asyncio.to_thread(self._failure_of, work, plan, sending.failure or unseen)
        work.failure = None if failure is None else sending.with_declined(failure)
        if work.failure is None or work.failure.kind is FailureKind.CONFLICT or work.failure.of_refs:
            await self._follow_head(wish, work, work.after)
        try:
            await self._write(wish, work, work.settled.put)
        except FailureError as error:
            work.failure = work.failure or error.failure

    async def _send(self, wish: _Wish, work: _Work, plan: PushPlan, seen: Seen) -> Sending:
        remote = self._git.remote(replace(wish.spec, url=seen.url), await self._prober.addresses(wish.spec))
        sending = Sending(
            self._git,
            await asyncio.to_thread(refless, self._mirrors.path(wish.key)),
            remote,
            self._settings,
            work.lock_fd,
            wish.may_push,
            wish.progressed,
            refs_there=len(seen.snapshot.refs) + len(plan.updates),
        )
        going_on = await sending.send(plan.clearing) and await sending.send(plan.updates)
        if going_on and plan.deletions:
            refs = await asyncio.to_thread(lambda: {**seen.snapshot.refs, **_taken(plan, sending)})
            await self._follow_head(wish, work, replace(seen, snapshot=RefSnapshot(refs, seen.snapshot.head)))
            await sending.send(plan.deletions)
        work.sent_bytes = sending.sent_bytes
        return sending

    # What is known

    async def _snapshot(self, wish: _Wish) -> RefSnapshot:
        """Branches and tags of one moment: between two syncs, not within one."""
        repo = self._mirrors.path(wish.key)
        if not await asyncio.to_thread(repo.is_dir):
            failure = Failure(FailureKind.UNKNOWN, "there is no mirror here yet: nothing to push")
            raise FailureError(replace(failure, context={OURS: "mirror"}))
        async with self._mirrors.locked(wish.key):
            here = await self._mirrors.read_refs(wish.key)
        if await asyncio.to_thread(is_damaged, repo):
            raise FailureError(_damaged("the mirror here is damaged"))
        if wish.believed not in (None, await asyncio.to_thread(here.digest)):
            raise FailureError(_damaged("the mirror here has other refs than its last sync left"))
        return RefSnapshot(await asyncio.to_thread(public_refs, here.refs), here.head)

    async def _judged(self, key: RepoKey, failure: Failure) -> Failure:
        """What git takes for damage of the mirror has to be confirmed; what we saw ourselves has not."""
        if not (failure.corrupt and failure.git_command):
            return failure
        try:
            async with self._mirrors.locked(key):
                return await judge_damage(self._git, self._mirrors.path(key), failure)
        except FailureError:  # somebody else writes it
            return replace(failure, corrupt=False)

    async def _look(self, spec: RepoSpec) -> Seen:
        try:
            seen = await self._prober.probe(spec, None)
        except FailureError as error:
            raise FailureError(at_target(error.failure)) from None
        assert isinstance(seen, Seen)  # noqa: S101 - without a mark nothing is unchanged
        return seen

    async def _write(self, wish: _Wish, work: _Work, last: LastPut) -> None:
        """``head`` is what the target was seen to have, so that a change of it alone is noticed. Once begun,
        a write ends before the lock is given up."""
        done = work.failure is None and not last.pending and not work.warning
        head = work.wanted.head if done else (work.record.head if work.record is not None else None)
        record = PutRecord(wish.spec.url, head if work.after is not None else UNSEEN, last)
        await whole(asyncio.to_thread(write_put, self._mirrors.path(wish.key), wish.to.target, record))
        work.record = record

    def _known_digest(self, wish: _Wish) -> RefsDigest | None:
        try:
            record = read_put(self._mirrors.path(wish.key), wish.to.target, wish.spec.url)
        except FailureError:
            return None
        return put_digest(record.last.refs) if record is not None and not record.last.pending else None

    # Besides

    async def _follow_head(self, wish: _Wish, work: _Work, at: Seen | None) -> None:
        """Once in a push, where the target's forge is known and has another default branch."""
        head = work.wanted.head
        if work.head_followed or at is None or head is None or head == at.snapshot.head:
            return
        credential = self._git.credentials.find(wish.spec)
        if credential is None or not credential.forge or head not in at.snapshot.refs:
            return
        if not wish.may_push():
            work.warning = f"the target's default branch is not set: {out_of_contact().message}"
            return
        work.head_followed = True
        work.warning = await self._branches.follow(at.url, credential, head)
        if work.warning:
            log.warning("default branch not set", repo=wish.key, target=wish.spec.url, reason=work.warning)

    async def _addresses(self, url: str) -> tuple[str, ...]:
        parsed = parse_url(url, replace(self._settings.rules, schemes=frozenset({"http", "https"})))
        return await self._prober.addresses(RepoSpec(parsed.key, parsed.text, parsed.host_key))

    def _spec(self, to: PushTo) -> RepoSpec:
        url = parse_url(to.url, self._settings.rules)
        return RepoSpec(url.key, url.text, url.host_key, credential=to.credential)

    # What is told

    def _failure_of(self, work: _Work, plan: PushPlan, failure: Failure | None) -> Failure | None:
        settled = work.settled
        done = settled.count(RefOutcome.PUT, RefOutcome.DELETED)
        if failure is not None and (work.after is None or done < len(plan.changes)):  # else it came too late
            return failure
        if settled.wrong:
            words = one_line("; ".join(settled.wrong[:REFS_IN_WORDS]))
            return Failure(FailureKind.UNKNOWN, f"after the push the target differs: {words}")
        waiting = [r for r in settled.refs if r.outcome in (RefOutcome.CONFLICT, RefOutcome.REFUSED)]
        return not_put(waiting) if waiting else None

    def _pushed(self, wish: _Wish, work: _Work) -> Pushed:
        settled = work.settled
        order = sorted(settled.refs, key=lambda r: r.outcome in (RefOutcome.PUT, RefOutcome.DELETED))
        known = work.after is not None or not settled.put.pending
        there = work.after.snapshot.refs if work.after is not None else settled.put.refs
        return Pushed(
            wish.to.target,
            put_digest(settled.put.refs) if known else None,
            there.get(work.wanted.head) if work.wanted.head is not None else None,
            tuple(order[:REFS_TOLD]),
            put_total=settled.count(RefOutcome.PUT),
            deleted_total=settled.count(RefOutcome.DELETED),
            waiting_total=settled.count(RefOutcome.CONFLICT, RefOutcome.REFUSED),
            sent_bytes=work.sent_bytes,
            failure=work.failure,
            warning=work.warning,
        )

    async def _told(self, failure: Failure, source_url: str, target_url: str) -> Failure:
        """With what a person needs to understand it, and without secrets."""
        if not self._surroundings:
            self._surroundings = await surroundings(self._git)
        where = {SOURCE_URL: source_url, TARGET_URL: target_url}
        context = {**failure.context, **where, **self._surroundings}
        seen_by = one_line(ls_remote_command(target_url)) if target_url else "git push"
        told = replace(failure, git_command=failure.git_command or seen_by, context=context)
        return self._git.credentials.redactor.clean_failure(told)


def is_level(record: PutRecord | None, here: RefSnapshot, to: PushTo) -> bool:
    """The target has all of ``here``, as far as we and the coordinator know."""
    if record is None or record.last.pending or record.head != here.head:
        return False
    put = put_digest(record.last.refs)
    return put == to.put and put == put_digest(public_refs(here.refs))


def _standings(repo: Path, refs: Mapping[str, Oid]) -> Standings:
    puts = read_puts(repo, PUSHES_MAX)
    most = min(REFS_SHOWN, REFS_TOLD // max(len(puts), 1))
    targets = tuple(standing_of(target, put.url, refs, put.last, most) for target, put in puts.items())
    return Standings(len(refs), put_digest(refs), targets)


def _damaged(what: str) -> Failure:
    return Failure(
        FailureKind.UNKNOWN,
        f"nothing was pushed: {what}",
        hint="it is mended from its source, and pushed afterwards",
        corrupt=True,
    )


def not_put(waiting: list[PushedRef]) -> Failure:
    """Some refs wait for a person; the others are through. What stands in the way can be overwritten
    (adopt); what the target refuses only the target's own rules can let through."""
    in_conflict = [ref for ref in waiting if ref.outcome is RefOutcome.CONFLICT]
    told = (in_conflict + [ref for ref in waiting if ref.outcome is RefOutcome.REFUSED])[:REFS_IN_WORDS]
    named = one_line("; ".join(f"{ref.name:.200}: {ref.reason:.300}" for ref in told))
    more = f"; and {len(waiting) - REFS_IN_WORDS} more" if len(waiting) > REFS_IN_WORDS else ""
    count = f"{len(waiting)} ref{'s' * (len(waiting) != 1)}"
    if in_conflict:
        return Failure(
            FailureKind.CONFLICT,
            f"{count} could not be put: {named}{more}",
            hint="make room for them at the target, or have what is there overwritten (adopt)",
        )
    return Failure(
        FailureKind.PERMISSION_DENIED,
        f"{count} {'is' if len(waiting) == 1 else 'are'} refused: {named}{more}",
        hint="let the credential's user push to them there: look at protected branches and tags, and hooks",
        context={REFUSED_REFS: str(len(waiting))},
    )


def _taken(plan: PushPlan, sending: Sending) -> dict[str, Oid]:
    return {
        c.name: c.new
        for c in plan.updates
        if c.new is not None and c.name in sending.told and sending.told[c.name].ok
    }
