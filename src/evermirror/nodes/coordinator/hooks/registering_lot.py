"""The repos of one lot, one after another: each one's forge is asked, and a limit is waited for.

What is stored of a repo since the order began is from this very order: one that goes on after a stop passes
over those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import structlog

from evermirror.core.hooks.plan import Ours, hook_url
from evermirror.core.hooks.standing import Standing
from evermirror.edge.forge.hooks_api import ForgeHooks
from evermirror.edge.git.credentials import Credential
from evermirror.edge.store.hook_registrations import HookedRepo, Lot
from evermirror.errors import EvermirrorError
from evermirror.model.failure import OURS, Failure, FailureError, FailureKind
from evermirror.model.forge import Forge
from evermirror.model.hook import HookRegistration, RegistrationState, WantedHook
from evermirror.model.repo import RepoKey
from evermirror.nodes.coordinator.discovery.discovering_forges import Patience, our_mistake
from evermirror.nodes.coordinator.hooks.registering_act import Done, act, refused
from evermirror.nodes.coordinator.hooks.registering_book import Book, RegisterParts
from evermirror.nodes.coordinator.hooks.registering_walk import Walk
from evermirror.nodes.coordinator.hooks.registering_whom import Whom, instance_of
from evermirror.nodes.hook_service import RegisterAction

log = structlog.get_logger(__name__)

CLIENTS_MAX = 4  # of one lot: http and https of the same host

_KNOWN = {
    RegistrationState.OK: "as it should be",
    RegistrationState.MISSING: "missing",
    RegistrationState.DRIFTED: "drifted",
    RegistrationState.REFUSED: "refused",
    RegistrationState.REMOVED: "removed",
}


class LotRun:
    """``bases``: our public addresses, the present one first."""

    def __init__(
        self,
        lot: Lot,
        whom: Whom,
        book: Book,
        parts: RegisterParts,
        patience: Patience,
        bases: tuple[str, ...],
    ) -> None:
        self._lot = lot
        self._whom = whom
        self._book = book
        self._parts = parts
        self._patience = patience
        self._bases = bases
        self._standing = Standing()
        self._clients: dict[str, ForgeHooks] = {}
        self._seen = 0

    @property
    def _left(self) -> int:
        return max(0, self._lot.count - self._seen)

    async def carry_out(self, walk: Walk) -> None:
        try:
            after: RepoKey | None = None
            while page := await self._book.patiently(partial(walk.page, self._lot, after)):
                if not await self._page(page):
                    self._book.count("not asked", self._left)
                    return
                after = page[-1].key
        finally:
            await self._close()

    async def _page(self, page: Sequence[HookedRepo]) -> bool:
        """False: it is no use to ask about the rest."""
        keys = [repo.key for repo in page]
        known = await self._book.patiently(lambda: self._parts.store.registrations_of(keys))
        order = self._book.order
        for repo in page:
            self._seen += 1
            before = known.get(repo.key)
            if order.resumed and before is not None and before.checked_at >= order.started_at:
                self._book.count(_KNOWN[before.state], 1)
            elif not await self._one(repo, before):
                return False
        return True

    async def _one(self, repo: HookedRepo, before: HookRegistration | None) -> bool:
        failure: Failure | None = None
        try:
            done = await self._asked(repo)
            self._standing.allowed()
        except FailureError as error:
            failure = error.failure
            done = refused(failure)
        except EvermirrorError as error:  # an address that is none
            done = Done("refused", None, problem=str(error))
        except Exception:  # whatever a forge answers, the others go on
            log.exception("a repo's hook", repo=repo.key)
            failure = our_mistake()
            done = refused(failure)
        if done.did == "not there" and before is None:
            done = replace(done, state=None)
        stop = failure is not None and not failure.ours and self._standing.refused(failure.kind)
        if stop and self._left:
            done = replace(done, problem=f"{done.problem} ({self._left} more of {repo.host} are not asked)")
        await self._book.tell(repo.key, self._whom.forge, done)
        return not stop

    async def _asked(self, repo: HookedRepo) -> Done:
        wish, forge = self._book.order.wish, self._whom.forge
        secret = self._parts.secrets.current(forge, repo.key, repo.host)
        if secret is None and wish.action is RegisterAction.REGISTER:
            raise FailureError(_no_secret(repo, forge))
        at = instance_of(repo, await self._credential())
        client = await self._client(at.base_url)
        wanted = WantedHook(hook_url(self._bases[0], forge, repo.key), secret or "", client.events)
        ours = Ours(forge, repo.key, self._bases)
        return await self._patience.ask(lambda: act(client, at.path, wanted, ours, wish))

    async def _credential(self) -> Credential:
        """As the settings have it now: a token may be changed while an order is under way."""
        known = self._whom.credential
        now = self._parts.credentials.by_name.get(known.name, known)
        if now != known:
            self._whom = replace(self._whom, credential=now)
            await self._close()
        return now

    async def _close(self) -> None:
        while self._clients:
            await self._clients.popitem()[1].close()

    async def _client(self, base_url: str) -> ForgeHooks:
        if base_url not in self._clients:
            if len(self._clients) >= CLIENTS_MAX:
                await self._clients.pop(next(iter(self._clients))).close()
            self._clients[base_url] = self._parts.open(self._whom.forge, base_url, self._whom.credential)
        return self._clients[base_url]


def _no_secret(repo: HookedRepo, forge: Forge) -> Failure:
    return Failure(
        FailureKind.AUTH_FAILED,
        "no secret is set for its hooks",
        hint=f"Set webhooks.{forge.value}_secret, or one for {repo.host} in webhooks.secrets",
        context={OURS: "secret"},
    )
