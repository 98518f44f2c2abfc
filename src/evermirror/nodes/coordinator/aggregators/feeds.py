"""All aggregators: who is there, where their relays are, what they hold between them.

One that goes away may be back in a moment: for ``grace`` its relay stays named, and what it holds counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import structlog

from evermirror.core.fleet.events import AggregatorsTold, CommandGiven, UnreachedTold
from evermirror.core.fleet.witnesses import Told, Witnesses
from evermirror.edge.relay.seal import PASS_S
from evermirror.edge.rpc.bounds import BoundedPeer
from evermirror.edge.rpc.transport import Peer, PeerGone
from evermirror.model.access import Role, TokenRecord
from evermirror.model.failure import FailureError
from evermirror.model.messages import HeldRepo, LookAt
from evermirror.model.refs import RefsDigest, short_digest
from evermirror.model.relay import Denial, NodeId, RelayAddress, aggregator_node_id, worker_node_id
from evermirror.model.repo import RepoKey
from evermirror.model.wire import Accused, Hello, Rejected, Welcomed
from evermirror.model.worker import WORKERS_MAX, AggregatorRecord, Duty, WorkerId, WorkerRecord
from evermirror.nodes.clock import STEP_S
from evermirror.nodes.coordinator.aggregators.accusing import Accusations, Looks
from evermirror.nodes.coordinator.aggregators.feed import ChangeSource, Feed
from evermirror.nodes.coordinator.aggregators.holders import Holders
from evermirror.nodes.coordinator.aggregators.passes import RENEW_S, Passes
from evermirror.nodes.coordinator.aggregators.registry import Registry
from evermirror.nodes.coordinator.fleet import OWN_TOKEN, Fleet
from evermirror.nodes.coordinator.fleet_view import AggregatorInfo
from evermirror.nodes.coordinator.followers import LOOK_ITEMS
from evermirror.nodes.coordinator.greeting import hello_of, refusal
from evermirror.nodes.coordinator.hearing import held_copies

log = structlog.get_logger(__name__)

KNOWN_MAX = 100  # aggregators that are shown: of more, not those that are retired or went long ago
WARNINGS_MAX = 10  # of one aggregator, in the overview: its own page has all
TICK_S = (0.02, 5.0)  # between two looks at who has been away too long: a tenth of grace, within these
COLLECT_S = 30.0  # the longest that anybody waits for an aggregator to have what a worker has
FIRST_S = 3.0  # the same where it has nothing of the repo yet
NOTICED_S = 60.0  # a pass may be given for so long after a token was revoked elsewhere; clocks differ, too
MISSED_S = 2.0  # workers dial a relay again within that; they rest longer where it stays away


@dataclass(slots=True)
class _Aggregator:
    """One that was ever seen since the start, by its token."""

    node: NodeId
    name: str
    version: str
    boot: int
    relay: RelayAddress | None
    since: float  # UTC seconds: connected, or gone
    heard_at: float  # monotonic
    feed: Feed | None = None  # while it is connected
    counts: bool = True  # it is there, or not away for longer than grace
    told: int = 0  # changes, in earlier sessions
    last_unreached: frozenset[NodeId] | None = None  # as it told in earlier sessions

    @property
    def unreached(self) -> frozenset[NodeId] | None:
        """Its last word on whom its relay has no line to; None where it never said."""
        now = self.feed.unreached if self.feed is not None else None
        return now if now is not None else self.last_unreached


class Feeds:
    """``serve`` each connection, ``run`` beside it, ``wake`` when something changed."""

    def __init__(
        self,
        fleet: Fleet,
        store: ChangeSource,
        holders: Holders,
        accusations: Accusations,
        passes: Passes,
        registry: Registry,
        *,
        epoch: int,
        utc: Callable[[], float],
        http_url: str = "",
        own_relay: Callable[[], RelayAddress | None] = lambda: None,
        refs_extra: tuple[str, ...] = (),
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fleet = fleet
        self._store = store
        self._holders = holders
        self._accusations = accusations
        self._epoch = epoch
        self._utc = utc
        self._http_url = http_url
        self._own_relay = own_relay
        self._refs_extra = refs_extra
        self._mono = mono
        self._passes = passes
        self._registry = registry
        self._witnesses = Witnesses()
        self._looks = Looks(mono)
        self._known: dict[NodeId, _Aggregator] = {}
        self._had = asyncio.Condition()  # told whenever one has something new
        self._named: tuple[RelayAddress, ...] = ()  # relays, as everybody was last told
        self._started_at = mono()
        self._unreached_told: frozenset[WorkerId] = frozenset()
        self._some_told: bool | None = None  # whether there are aggregators, as the fleet was told
        self._user_tokens = False  # there are some, as aggregators were last told
        self._due = asyncio.Event()  # something is to be done before the next tick
        self._revoked_seen_at = utc()  # when the database last said which tokens are revoked
        self._denials = 0  # how often somebody was shut out or let in again
        self._denials_told = 0  # of these, aggregators know of so many
        self._renewed_at, self._clock_ahead_s = mono(), utc() - mono()
        self._renewal_due = False  # for another reason than time, and not done yet
        self.on_denied: Callable[[tuple[Denial, ...]], None] = lambda denied: None  # for an own relay

    def wake(self) -> None:
        for one in self._known.values():
            if one.feed is not None:
                one.feed.wake()

    def relays(self) -> tuple[RelayAddress, ...]:
        """Those that can be reached, as far as is known."""
        found = [self._own_relay(), *(one.relay for one in self._known.values() if one.counts)]
        return tuple(dict.fromkeys(relay for relay in found if relay is not None))

    def view(self) -> tuple[AggregatorInfo, ...]:
        """Those that joined, in that order, behind the one in this very process, which no registry needs."""
        own = self._known.get(aggregator_node_id(OWN_TOKEN))
        found = [] if own is None else [self._info(AggregatorRecord(OWN_TOKEN, own.name), own)]
        found += [
            self._info(record, self._known.get(aggregator_node_id(record.token_id)))
            for record in self._registry.records()
        ]
        first = sorted(found, key=lambda a: (not a.own, not a.connected, a.record.retired, -a.since))
        shown = {one.record.token_id for one in first[:KNOWN_MAX]}
        return tuple(one for one in found if one.record.token_id in shown)

    def _info(self, record: AggregatorRecord, one: _Aggregator | None) -> AggregatorInfo:
        feed = one.feed if one is not None else None
        since = one.since if one is not None else record.last_alive_at
        if record.token_id == OWN_TOKEN and one is not None:
            address = one.relay.address if one.relay is not None else ""
            record = replace(
                record,
                http_url=self._http_url,
                relay=address,
                version=one.version,
                joined_at=since,
                last_alive_at=self._utc(),
            )
        return AggregatorInfo(
            record=record if feed is None else replace(record, last_alive_at=self._utc()),
            own=record.token_id == OWN_TOKEN,
            connected=feed is not None,
            since=since,
            serves=self._witnesses.count(aggregator_node_id(record.token_id)),
            followed=feed.followed if feed is not None else 0,
            told=(one.told if one is not None else 0) + (feed.told if feed is not None else 0),
            load=feed.status if feed is not None else None,
        )

    def warnings(self) -> tuple[str, ...]:
        """What aggregators that are there say is wrong with them."""
        there = ((one.name, one.feed.status) for one in self._known.values() if one.feed is not None)
        return tuple(
            f"aggregator {name}: {text}"
            for name, status in there
            if status is not None
            for text in status.warnings[:WARNINGS_MAX]
        )

    async def run(self) -> None:
        """Forgets those that are away too long, renews passes in time, until cancelled."""
        shortest_s, longest_s = TICK_S
        tick_s = min(max(self._fleet.machine.settings.grace_s / 10, shortest_s), longest_s)
        while True:
            await self._wait(tick_s)
            await self._shut_out_revoked()  # this and passes first: what fails below puts neither off
            await self._tell_denials()
            await self._renew_in_time()
            self._accusations.tick()
            await self._registry.tick()
            for one in list(self._known.values()):
                if one.counts and one.feed is None and self._away_too_long(one):
                    log.warning("aggregator is gone", aggregator=one.name)
                    one.counts = False
                    await self._tell(self._witnesses.forget(one.node))
            await self._tell_presence()
            await self._tell_unreached()

    async def _tell_denials(self) -> None:
        if self._denials_told != (number := self._denials):
            await self._tell_aggregators()
            self._denials_told = number

    async def _renew_in_time(self) -> None:
        ahead_s = self._utc() - self._mono()
        clock_set = abs(ahead_s - self._clock_ahead_s) > STEP_S  # nodes judge passes by it
        due = self._mono() - self._renewed_at >= RENEW_S
        self._renewal_due |= await self._tokens_changed() or due or clock_set
        if self._renewal_due or self.relays() != self._named:
            now = self._mono()
            await self._renew()
            self._renewed_at, self._clock_ahead_s, self._renewal_due = now, ahead_s, False

    async def _tell_presence(self) -> None:
        """Tell the fleet whether there are aggregators: surely none only once none came for ``grace``."""
        some = any(one.counts for one in self._known.values())
        some = some or any(not record.retired for record in self._registry.records())
        known = some or self._mono() - self._started_at >= self._fleet.machine.settings.grace_s
        if known and some is not self._some_told:
            await self._fleet.tell(AggregatorsTold(some))
            self._some_told = some

    async def _tell_unreached(self) -> None:
        """Workers that none of the aggregators can read from; nothing new while there is none to say so."""
        told = [one.unreached for one in self._known.values() if one.counts and one.unreached is not None]
        if not told:
            return
        nodes = frozenset.intersection(*told)
        workers = frozenset(w for node in nodes if (w := self._worker_of(node)) is not None)
        if workers != self._unreached_told:
            await self._fleet.tell(UnreachedTold(workers))
            self._unreached_told = workers

    def _worker_of(self, node: NodeId) -> WorkerId | None:
        number = node.removeprefix("worker/").partition("-")[0]
        is_number = number.isdecimal() and len(number) <= len(str(WORKERS_MAX))
        record = self._fleet.machine.record(WorkerId(int(number))) if is_number else None
        return record.id if record is not None and worker_node_id(record) == node else None

    def _away_too_long(self, one: _Aggregator) -> bool:
        return self._mono() - one.heard_at >= self._fleet.machine.settings.grace_s

    async def _tokens_changed(self) -> bool:
        """Whether the first token of a person was made, or the last one revoked, since this was asked."""
        before = self._user_tokens
        try:
            self._user_tokens = await self._store.any_user_token()
        except FailureError as error:
            log.debug("the database does not say whether there are tokens", reason=error.failure.message)
        return self._user_tokens != before

    async def _renew(self) -> None:
        """Everybody gets a new pass, and hears where relays are."""
        named = self.relays()
        self._fleet.renew_access()
        await self._tell_aggregators()
        self._named = named

    async def _tell_aggregators(self) -> None:
        there = [(one, one.feed.peer) for one in self._known.values() if one.feed is not None]
        await asyncio.gather(*(self._give_access(one, peer) for one, peer in there))

    async def _give_access(self, one: _Aggregator, peer: Peer) -> None:
        access = self._passes.of_aggregator(one.node)
        if access is None:
            return  # its token was revoked; its connection ends by that
        try:
            await peer.send(replace(access, user_tokens=self._user_tokens))
        except PeerGone as gone:
            log.debug("a pass was not taken", aggregator=one.name, reason=str(gone))

    async def _wait(self, tick_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(tick_s):
                await self._due.wait()
        self._due.clear()

    # Who is shut out

    def restore(self, records: Iterable[WorkerRecord]) -> None:
        """Shut out whom an earlier process did: passes that it gave may still be good."""
        for record in records:
            if record.duty in (Duty.QUARANTINED, Duty.RETIRED):
                since = max((at for at, word in record.history if word == record.duty.value), default=0.0)
                if since + PASS_S > self._utc():
                    self._passes.deny(worker_node_id(record), since)

    def duty_changed(self, record: WorkerRecord) -> None:
        """A worker was quarantined, retired, drained or resumed: relays hear of it at once."""
        node, shut = worker_node_id(record), record.duty in (Duty.QUARANTINED, Duty.RETIRED)
        if self._passes.deny(node, self._utc()) if shut else self._passes.readmit(node):
            self._tell_relays()

    async def _shut_out_revoked(self) -> None:
        """Nodes whose token was revoked, by whichever process."""
        now = self._utc()
        # After an outage of the database also those revoked meanwhile: they got passes until now.
        since = min(now - PASS_S, self._revoked_seen_at) - NOTICED_S
        try:
            found = await self._store.tokens_revoked_since(since)
        except FailureError as error:
            log.debug("the database does not say which tokens are revoked", reason=error.failure.message)
            return
        self._revoked_seen_at = now
        news = [self._revoked(token) for token in found]
        if any(news):
            self._tell_relays()

    def _revoked(self, token: TokenRecord) -> bool:
        if token.role is Role.AGGREGATOR:
            node = aggregator_node_id(token.id)
        elif (worker := self._fleet.worker_of(token.id)) is None:
            return False
        elif (record := self._fleet.machine.record(worker)) is not None:
            node = worker_node_id(record)
        else:
            return False
        noticed_at = (token.revoked_at or 0.0) + NOTICED_S
        if not self._passes.is_denied(node):
            noticed_at = max(noticed_at, self._utc())  # it may have got its last pass just now
        return self._passes.deny(node, noticed_at, revoked=True)

    def _tell_relays(self) -> None:
        self._denials += 1
        self.on_denied(self._passes.denials())
        self._due.set()

    # One connection

    async def serve(self, peer: Peer) -> None:
        """An aggregator's connection from its first word to its end."""
        peer = BoundedPeer(peer, self._utc)
        try:
            hello = await hello_of(peer)
            refused = refusal(hello, peer.identity, Role.AGGREGATOR, self._refs_extra)
            refused = refused or self._twice(hello, peer) or self._same_name(hello, peer)
            if refused is not None:
                await peer.send(refused)
                await peer.close(refused.reason)
                return
            if hello.trial:
                await peer.send(self._welcome(peer, hello))
                await peer.close("it was a trial")
                return
            await self._converse(hello, peer)
        except (PeerGone, TimeoutError) as error:
            log.debug("connection ended", peer=peer.address, reason=str(error))
            await peer.close(str(error))

    def _twice(self, hello: Hello, peer: Peer) -> Rejected | None:
        other = self._known.get(aggregator_node_id(peer.identity.token_id))
        if other is None or other.feed is None or other.boot == hello.boot or not self._lately_heard(other):
            return None
        reason = "another process with this token is connected; every aggregator needs a token of its own"
        return Rejected(reason, final=False)

    def _same_name(self, hello: Hello, peer: Peer) -> Rejected | None:
        if not self._registry.is_named(hello.name, peer.identity.token_id):
            return None
        reason = (
            f"another aggregator has the name {hello.name!r}: set aggregator.name here, use a token of"
            " another name, or revoke the other's token"
        )
        return Rejected(reason, final=True)

    def _lately_heard(self, one: _Aggregator) -> bool:
        return self._mono() - one.heard_at < 2 * self._fleet.machine.settings.heartbeat_s

    async def _converse(self, hello: Hello, peer: Peer) -> None:
        node = aggregator_node_id(peer.identity.token_id)
        before = self._known.get(node)
        if before is not None and before.feed is not None:
            await before.feed.peer.close("it connected anew")
        one = self._enter(node, hello, before)
        feed = Feed(peer, self._store, self._holders.of, _Voice(self, one), self._utc)
        try:
            await self._tell(self._witnesses.forget(node))  # it tells all it has, again
            tokens_changed = await self._tokens_changed()
            await peer.send(self._welcome(peer, hello))
            if not self.is_current(one):
                raise PeerGone("it connected anew")
            one.feed = feed
            await self._enlist(hello, peer)
            if self.relays() != self._named or self._is_back(one, before) or tokens_changed:
                await self._renew()
            else:
                await self._give_access(one, peer)
            log.info("aggregator connected", aggregator=hello.name, version=hello.version)
            await feed.run(lambda: self._heard(one))
        finally:
            await self._leave(one, feed)

    async def _enlist(self, hello: Hello, peer: Peer) -> None:
        if peer.identity.token_id != OWN_TOKEN:
            relay = hello.relay.address if hello.relay is not None else ""
            told = AggregatorRecord(peer.identity.token_id, hello.name, hello.http_url, relay, hello.version)
            await self._registry.came(told)

    def _welcome(self, peer: Peer, hello: Hello) -> Welcomed:
        settings = self._fleet.machine.settings
        return Welcomed(
            peer.identity.token_id,
            self._epoch,
            resumed=False,
            heartbeat_s=settings.heartbeat_s,
            http_url=self._http_url,
            redial_s=settings.redial_s,
            name=hello.name,
        )

    def _is_back(self, one: _Aggregator, before: _Aggregator | None) -> bool:
        """Its relay was away and is where it was: those who dial it in ever longer pauses are told."""
        if one.relay is None or before is None or before.boot == one.boot:
            return False
        return self._mono() - before.heard_at >= MISSED_S

    def _enter(self, node: NodeId, hello: Hello, before: _Aggregator | None) -> _Aggregator:
        one = _Aggregator(
            node,
            hello.name,
            hello.version,
            hello.boot,
            hello.relay,
            since=self._utc(),
            heard_at=self._mono(),
            told=0 if before is None else before.told + (before.feed.told if before.feed else 0),
            last_unreached=before.unreached if before is not None else None,
        )
        self._known[node] = one
        for old in [n for n, other in self._known.items() if not other.counts]:
            if len(self._known) > KNOWN_MAX:
                del self._known[old]
        return one

    def _heard(self, one: _Aggregator) -> None:
        one.heard_at = self._mono()

    async def _leave(self, one: _Aggregator, feed: Feed) -> None:
        one.told += feed.told
        one.last_unreached, one.feed = one.unreached, None
        one.since, one.heard_at = self._utc(), self._mono()
        log.info("aggregator disconnected", aggregator=one.name)
        if self.is_current(one):
            await self._registry.left(feed.peer.identity.token_id)

    async def _tell(self, events: Iterator[Told]) -> None:
        for event in events:
            await self._fleet.tell(event)
            await asyncio.sleep(0)

    # What it says

    async def has(self, node: NodeId, items: Sequence[HeldRepo]) -> None:
        await self._tell(self._witnesses.has(node, held_copies(items)))
        async with self._had:
            self._had.notify_all()

    async def collected(self, node: NodeId, key: RepoKey, digest: RefsDigest, within_s: float) -> bool:
        """Whether that aggregator holds the repo so; waited for, though not long where it holds nothing of
        it: perhaps it only fetches what its clients ask for."""
        wanted = short_digest(digest)
        if not self._witnesses.digest(node, key):
            within_s = min(within_s, FIRST_S)
        try:
            async with asyncio.timeout(min(within_s, COLLECT_S)), self._had:
                await self._had.wait_for(lambda: self._witnesses.digest(node, key) == wanted)
        except TimeoutError:
            return self._witnesses.digest(node, key) == wanted
        return True

    async def lacks(self, node: NodeId, keys: Sequence[RepoKey]) -> None:
        await self._tell(self._witnesses.lacks(node, keys))

    def is_current(self, one: _Aggregator) -> bool:
        """Not of a connection that another one took the place of."""
        return self._known.get(one.node) is one

    async def doubts(self, keys: Sequence[RepoKey]) -> None:
        """Those who hold these look again, and tell what they have."""
        looks: dict[WorkerId, list[RepoKey]] = {}
        for key in self._looks.due(keys):
            for worker in self._holders.workers(key):
                looks.setdefault(worker, []).append(key)
        for worker, wanted in looks.items():
            for start in range(0, len(wanted), LOOK_ITEMS):
                look = LookAt(tuple(wanted[start : start + LOOK_ITEMS]))
                await self._fleet.tell(CommandGiven(worker, look))

    async def accuses(self, node: NodeId, name: str, accused: Accused) -> None:
        await self._accusations.heard(node, name, accused)


class _Voice:
    """What one aggregator says in one connection, with its name to it."""

    def __init__(self, feeds: Feeds, one: _Aggregator) -> None:
        self._feeds = feeds
        self._one = one

    async def has(self, items: Sequence[HeldRepo]) -> None:
        if self._feeds.is_current(self._one):
            await self._feeds.has(self._one.node, items)

    async def lacks(self, keys: Sequence[RepoKey]) -> None:
        if self._feeds.is_current(self._one):
            await self._feeds.lacks(self._one.node, keys)

    async def doubts(self, keys: Sequence[RepoKey]) -> None:
        await self._feeds.doubts(keys)

    async def accuses(self, accused: Accused) -> None:
        await self._feeds.accuses(self._one.node, self._one.name, accused)
