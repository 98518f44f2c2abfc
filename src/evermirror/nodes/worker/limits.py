"""What bounds a worker: its own settings, and within them its share of the fleet's rates.

The share is written down, so that a worker that starts while its coordinator is away does not ask upstream as
if it were the whole fleet. One that was never told has its own settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.edge.store.local import LocalState
from evermirror.model.failure import FailureError
from evermirror.model.messages import ApplySettings

log = structlog.get_logger(__name__)


class Limits:
    """``told`` is what the coordinator told last, also before a restart where ``remembers``."""

    def __init__(
        self,
        settings: ScheduleSettings,
        scheduler: Scheduler,
        local: LocalState,
        clock: Callable[[], float],
        *,
        remembers: bool,
    ) -> None:
        self._settings = settings
        self._scheduler = scheduler
        self._local = local
        self._clock = clock
        self._remembers = remembers
        self._unsaved = False
        self._saving = asyncio.Lock()  # whoever saves knows on return that all told before is written
        self.told: ApplySettings | None = local.limits if remembers else None
        if self.told is not None:
            self.configure(settings)

    def tell(self, limits: ApplySettings) -> None:
        """These hold from now on."""
        self.told = limits
        self._unsaved = self._remembers
        self.configure(self._settings)

    def configure(self, settings: ScheduleSettings) -> None:
        """The worker's own settings, from now on."""
        self._settings = settings
        self._scheduler.reconfigure(settings.within(self.told), self._clock())

    async def save(self) -> None:
        """Writes what was told since the last time; what cannot be written is tried again the next time."""
        async with self._saving:
            if not self._unsaved or self.told is None:
                return
            self._unsaved = False
            try:
                await self._local.note_limits(self.told)
            except FailureError as error:
                log.warning("limits not written", reason=error.failure.message)
                self._unsaved = True
