"""Credentials that end: forges are asked daily how long their tokens are good; else the settings say it.

Asked are the forges of discoveries, and those that projects name a credential with a ``forge`` for. A 401 is
told as such, until the token is taken again there. What a forge does not answer stays as it was last known,
before a restart too. Of a credential that nobody uses any more only what the settings say is told.

| a forge is asked                              |                       |
|-----------------------------------------------|-----------------------|
| where a credential is new to it               | within a minute       |
| when a discovery was refused there            | within a minute       |
| that refused the token, or did not answer     | after an hour         |
| else                                          | after a day           |
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import structlog

from evermirror.core.discover.expiry import KINDS, expiry_alert, refused_alert
from evermirror.core.discover.naming import target_place
from evermirror.edge.git.credentials import Credential
from evermirror.errors import EvermirrorError
from evermirror.model.discovery import DiscoverySpec
from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.forge import Forge, TokenFacts
from evermirror.model.pull import Project
from evermirror.nodes.coordinator.alerts.alert_sink import AlertSink
from evermirror.nodes.coordinator.discovery.discovering_forges import Forges

log = structlog.get_logger(__name__)

EVERY_S = 86_400.0
AGAIN_S = 3600.0  # after a refusal, or no answer
LOOK_S = 60.0  # between two looks at what is known, and what is new
FIRST_S = 5.0  # after the start
ASK_S = 60.0  # for one forge
AT_ONCE = 8  # that are asked
USES_MAX = 200  # pairs of credential and instance that are asked in one round
REFUSALS_MAX = 3  # forges that refuse one credential, in its alert


@dataclass(frozen=True, slots=True)
class Use:
    """A credential at a forge."""

    credential: str
    forge: Forge
    base_url: str


@dataclass(slots=True)
class CredentialWatch:
    """``uses`` says which credentials are used where; ``dates`` are the settings' own, by name; ``suspected``
    were refused elsewhere, with when that was."""

    forges: Forges
    uses: Callable[[], Iterable[Use]]
    dates: Mapping[str, float]
    alerts: AlertSink
    clock: Callable[[], float]
    suspected: Callable[[], Iterable[tuple[Use, float]]] = tuple
    _told: dict[Use, float] = field(default_factory=dict)  # by the forges
    _refused: dict[Use, str] = field(default_factory=dict)
    _known: set[Use] = field(default_factory=set)  # answered since the start
    _asked: dict[Use, tuple[float, float]] = field(default_factory=dict)  # when; for how long that is enough

    def expiries(self) -> Mapping[str, float]:
        """Until when each credential is good, of those that this is known of: UTC seconds."""
        return {**self.dates, **self._by_forges()}

    def _by_forges(self) -> dict[str, float]:
        """Where one is used at several, the first end counts."""
        ends = sorted(((use.credential, at) for use, at in self._told.items()), reverse=True)
        return dict(ends)

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.sleep(FIRST_S)
        while True:
            self.tell()  # asking may take long
            await self._ask_all(self._due())
            self.tell()
            await asyncio.sleep(LOOK_S)

    def _due(self) -> Iterator[Use]:
        now, suspected = self.clock(), dict(sorted(self.suspected(), key=lambda one: one[1]))
        for use in self.uses():
            at, enough_s = self._asked.get(use, (-math.inf, 0.0))
            if not 0 <= now - at < enough_s or suspected.get(use, -math.inf) > at:
                yield use

    async def ask(self) -> None:
        """Every forge once."""
        await self._ask_all(self.uses())

    async def _ask_all(self, uses: Iterable[Use]) -> None:
        turn = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for use in sorted(set(uses), key=lambda use: (use.credential, use.base_url))[:USES_MAX]:
                group.create_task(self._ask(use, turn))

    def tell(self) -> None:
        """What stands now."""
        now, uses = self.clock(), set(self.uses())
        self._forget_all_but(uses)
        by_forges = self._by_forges()
        found = [
            expiry_alert(name, at, now, by_settings=name not in by_forges)
            for name, at in sorted(self.expiries().items())
        ]
        found += [refused_alert(name, why) for name, why in self._refusals()]
        alerts = {alert.identity: alert for alert in found if alert is not None}
        unheard = {use.credential for use in uses - self._known}
        kept = {a.identity: a for a in self.alerts.stands(KINDS) if a.about in unheard}
        self.alerts.stand(KINDS, tuple((kept | alerts).values()))

    def _forget_all_but(self, uses: set[Use]) -> None:
        self._told = {use: at for use, at in self._told.items() if use in uses}
        self._refused = {use: why for use, why in self._refused.items() if use in uses}
        self._known &= uses
        self._asked = {use: when for use, when in self._asked.items() if use in uses}

    def _refusals(self) -> Iterable[tuple[str, str]]:
        """One for each credential, with what all forges say that refuse it."""
        by_name: dict[str, list[str]] = {}
        for use, why in sorted(self._refused.items(), key=lambda one: (one[0].credential, one[0].base_url)):
            by_name.setdefault(use.credential, []).append(why)
        return ((name, "; ".join(whys[:REFUSALS_MAX])) for name, whys in by_name.items())

    async def _ask(self, use: Use, turn: asyncio.Semaphore) -> None:
        async with turn:
            self._asked[use] = (self.clock(), AGAIN_S)
            try:
                facts = await self._facts(use)
            except FailureError as error:
                self._failed(use, error)
            except (EvermirrorError, TimeoutError) as error:
                self._not_told(use, error)
            except Exception:  # whatever a forge answers, the others are watched on
                log.exception(
                    "a forge's answer about a token could not be read: this is our mistake",
                    credential=use.credential,
                    forge=use.base_url,
                )
            else:
                self._answered(use, facts)

    def _answered(self, use: Use, facts: TokenFacts | None) -> None:
        self._known.add(use)
        self._asked[use] = (self.clock(), EVERY_S)
        self._refused.pop(use, None)
        self._told.pop(use, None)
        if facts is not None and facts.expires_at is not None:
            self._told[use] = facts.expires_at

    def _failed(self, use: Use, error: FailureError) -> None:
        if error.failure.kind is not FailureKind.AUTH_FAILED or error.failure.ours:
            self._not_told(use, error)
            return
        self._known.add(use)
        self._refused[use] = f"{use.base_url} says: {error.failure.message}"

    async def _facts(self, use: Use) -> TokenFacts | None:
        async with (
            asyncio.timeout(ASK_S),
            self.forges.opened(use.forge, use.base_url, use.credential) as api,
        ):
            return await api.token()

    @staticmethod
    def _not_told(use: Use, error: Exception) -> None:
        log.info(
            "a forge did not tell how long a token is good", credential=use.credential, reason=str(error)
        )


def uses_of(
    specs: Iterable[DiscoverySpec], projects: Iterable[Project], credentials: Mapping[str, Credential]
) -> set[Use]:
    """Where credentials with a secret are used at a forge that we know the kind of. Gitee tells nothing of a
    token."""
    found: set[Use] = set()
    for spec in specs:
        if spec.credential is not None:
            found.add(Use(spec.credential, spec.forge, spec.source_url))
        if spec.target_url is not None and spec.target_credential is not None:
            found.add(Use(spec.target_credential, spec.target_forge, target_place(spec).base_url))
    known = {use.credential for use in found}
    for project in projects:
        for target in project.targets:
            credential = credentials.get(target.credential or "")
            if credential is None or credential.name in known or not (credential.forge and credential.secret):
                continue
            parts = urlsplit(target.url)
            if parts.scheme in ("https", "http"):
                found.add(Use(credential.name, Forge(credential.forge), f"{parts.scheme}://{parts.netloc}"))
    return {use for use in found if use.credential in credentials and use.forge is not Forge.GITEE}
