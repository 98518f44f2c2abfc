"""Hooks for what discoveries find: registered at the source, where a discovery is asked to.

Every run tells of the projects that are there. Those whose hook is not known to be as it should be, or was
not looked at for a day, are ordered together, through what people use (``webhook register``): what became of
it is in ``webhook status`` and ``webhook list``. One order runs at a time; while another does, these wait.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import structlog

from evermirror.edge.store.store import Store
from evermirror.errors import Conflict, EvermirrorError, Unavailable, UsageError
from evermirror.model.discovery import Bound, DiscoveryId, DiscoverySpec
from evermirror.model.failure import FailureError
from evermirror.model.forge import Forge
from evermirror.model.hook import HookRegistration, RegistrationState
from evermirror.model.repo import RepoKey
from evermirror.nodes.coordinator.discovery.discovering_projects import actor_of
from evermirror.nodes.coordinator.hooks.registering import Registering
from evermirror.nodes.hook_service import RegisterAction, RegisterWish

log = structlog.get_logger(__name__)

AT_ONCE = 1_000  # repos of one order
KNOWN_FOR_S = 86_400.0  # a hook that was as it should be is not looked at again for so long


class FoundHooks:
    """Projects whose hooks are to be looked at."""

    def __init__(self, store: Store, orders: Registering, clock: Callable[[], float]) -> None:
        self._store = store
        self._orders = orders
        self._clock = clock
        self._waiting: dict[tuple[DiscoveryId, Forge], dict[RepoKey, None]] = {}

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def check(self, spec: DiscoverySpec) -> None:
        """Raises UsageError where no hook could be registered with the settings as they are."""
        if not spec.hooks:
            return
        if spec.credential is None:
            raise UsageError("hooks: they are registered with a token", hint="Name a credential")
        self._orders.check(_wish(spec.forge, ("x",)))

    def stands(self, spec: DiscoverySpec, row: Bound) -> None:
        """A project is there."""
        if spec.hooks and row.key is not None:
            self._waiting.setdefault((row.discovery, spec.forge), {})[row.key] = None

    def forget(self, discovery: DiscoveryId) -> None:
        self._waiting = {of: keys for of, keys in self._waiting.items() if of[0] != discovery}

    async def look(self) -> None:
        """Orders what is due; raises nothing."""
        for (discovery, forge), keys in list(self._waiting.items()):
            some = list(itertools.islice(keys, AT_ONCE))
            try:
                known = await self._store.registrations_of(some)
                due = [key for key in some if not self._is_well(known.get(key))]
                if due:
                    await self._orders.register(_wish(forge, tuple(due)), actor=actor_of(discovery))
            except (Conflict, Unavailable, FailureError):  # another order is under way, or no database
                return
            except EvermirrorError as error:  # the next run tells of them again
                log.warning("hooks are not registered", discovery=discovery, reason=str(error))
            for key in some:
                keys.pop(key, None)
            if not keys:
                self._waiting.pop((discovery, forge), None)

    def _is_well(self, known: HookRegistration | None) -> bool:
        if known is None or known.state is not RegistrationState.OK:
            return False
        return 0 <= self._clock() - known.checked_at < KNOWN_FOR_S


def _wish(forge: Forge, keys: tuple[str, ...]) -> RegisterWish:
    return RegisterWish(RegisterAction.REGISTER, repos=keys, forge=forge)
