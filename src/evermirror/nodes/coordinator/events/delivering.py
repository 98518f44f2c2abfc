"""Events on their way to others' servers: a part for each event hook, so that none holds up another.

- A hook that is new begins at the latest event; one that left the settings loses its place, not its letters.
  One that is switched off keeps both.
- Other settings are taken over while the rest goes on; a message that is under way ends first.
- At a stop, messages that are under way have some seconds. What is not known to have ended goes again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from evermirror.core.deliver.alert import removed, switched_off
from evermirror.edge.store.store import Store
from evermirror.model.alert import Alert
from evermirror.model.delivery import HookProgress
from evermirror.model.failure import FailureError
from evermirror.nodes.coordinator.events.delivery_line import Around, HookParts, Line, News
from evermirror.nodes.event_service import HookFigures
from evermirror.nodes.running import in_time
from evermirror.nodes.supervisor import Supervisor

log = structlog.get_logger(__name__)

STOP_S = 2.9  # for all hooks
RETRY_S = 5.0  # other settings, while the database is in trouble
CLEAN_EVERY_S = 3600.0
LETTERS_KEPT_S = 30 * 86_400.0


class Delivering:
    """``load`` once, ``run`` beside the rest; ``configure`` at any time."""

    def __init__(
        self,
        hooks: Mapping[str, HookParts],
        *,
        store: Store,
        news: News,
        tell: Callable[[Alert], None],
        clock: Callable[[], float],
        supervisor: Supervisor,
    ) -> None:
        self._supervisor = supervisor
        self._wanted = dict(hooks)
        self._around = Around(store, news, tell, clock)
        self._lines: dict[str, Line] = {}
        self._started: set[str] = set()
        self._changed = asyncio.Event()

    def configure(self, hooks: Mapping[str, HookParts]) -> None:
        """Other settings, from soon on."""
        self._wanted = dict(hooks)
        self._changed.set()

    @property
    def lines(self) -> Mapping[str, Line]:
        return self._lines

    def figures(self) -> Mapping[str, HookFigures]:
        return {name: line.figures() for name, line in self._lines.items()}

    async def load(self) -> None:
        """Whatever happens from now on reaches new hooks too."""
        store, wanted = self._around.store, dict(self._wanted)
        places = await store.load_event_hooks()
        latest = await store.latest_event()
        new = {name: HookProgress(name, latest) for name in wanted if name not in places}
        if new or places.keys() - wanted.keys():
            await store.begin_event_hooks(new, wanted.keys())
        letters = await store.letter_counts()
        for name in self._lines.keys() - wanted.keys():
            await self._stop(name)
            self._lines.pop(name).calm(removed(name))
        for name, parts in wanted.items():
            line = self._lines.get(name)
            if line is not None and (line.parts.enabled or not parts.enabled):
                await self._change(line, parts)
            else:  # one that was switched off begins with what is stored
                progress = new.get(name) or places[name]
                self._lines[name] = Line(parts, progress, letters.get(name, 0), self._around)

    async def _change(self, line: Line, parts: HookParts) -> None:
        if line.parts.enabled and not parts.enabled:
            await self._stop(parts.hook.name)
            line.calm(switched_off(parts.hook.name))
        line.configure(parts)

    async def _stop(self, name: str) -> None:
        if name in self._started:
            self._started.discard(name)
            await self._supervisor.stop(_part(name))

    # Life

    async def run(self) -> None:
        """Until cancelled. Run again, it begins with the lines that it has, and with settings that came."""
        try:
            async with self._supervisor.running("letters of event hooks", self._clean):
                while True:
                    self._start()
                    await self._changed.wait()
                    await self._take_over()
        finally:
            await in_time(self._end(), STOP_S)

    def _start(self) -> None:
        for name, line in self._lines.items():
            if line.parts.enabled and name not in self._started:
                self._started.add(name)
                self._supervisor.start(_part(name), line.run)

    async def _take_over(self) -> None:
        self._changed.clear()
        try:
            await self.load()
        except FailureError as error:
            log.error("event hooks wait for the database", reason=error.failure.message)
            await asyncio.sleep(RETRY_S)
            self._changed.set()
            return
        log.info("event hooks", hooks=sorted(self._lines))

    async def _end(self) -> None:
        await asyncio.gather(*map(self._stop, tuple(self._started)))

    async def _clean(self) -> None:
        """Letters that nobody looked at for a month."""
        while True:
            try:
                await self._around.store.clean_letters(self._around.clock() - LETTERS_KEPT_S)
                counts = await self._around.store.letter_counts()
                for name, line in self._lines.items():
                    line.letters = counts.get(name, 0)
            except FailureError as error:
                log.warning("old letters are not removed", reason=error.failure.message)
            await asyncio.sleep(CLEAN_EVERY_S)


def _part(name: str) -> str:
    return f"event hook {name}"
