"""Watches how loaded the sources are, by their node exporters, and tells the pull machine.

    every load_every: all exporters at once ──▶ samples ──▶ node_load of each ──▶ the worst ──▶ LoadSeen

An exporter that does not answer is left out, and said once in the log, as is its return. Where none answers
nothing is told: what was told last counts for five minutes, and then our own polls do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from evermirror.config import Config
from evermirror.core.pull.node_load import NodeSample, node_load, worst
from evermirror.edge.prometheus.node_exporter import NodeExporter, NotTold
from evermirror.model.printable import one_line
from evermirror.model.pull import Load

log = structlog.get_logger(__name__)

REASON_MAX_CHARS = 300


class Exporter(Protocol):
    """Whose ``look`` never takes longer than its own bound, and raises nothing but ``NotTold``."""

    name: str

    async def look(self, at: float) -> NodeSample: ...


class LoadWatch:
    """``run`` beside the rest; does nothing where no exporter is named."""

    def __init__(
        self,
        exporters: Sequence[Exporter],
        every_s: float,
        tell: Callable[[Load], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._exporters = tuple(exporters)
        self._every_s = every_s
        self._tell = tell
        self._monotonic = monotonic
        self._samples: dict[int, NodeSample] = {}  # the last of each
        self._silent: set[int] = set()

    async def run(self) -> None:
        """Until cancelled."""
        while self._exporters:
            began = self._monotonic()
            await self.look()
            await asyncio.sleep(max(0.0, self._every_s - (self._monotonic() - began)))

    async def look(self) -> None:
        """At all of them, once."""
        loads = await asyncio.gather(*(self._load_of(i, e) for i, e in enumerate(self._exporters)))
        load = worst(load for load in loads if load is not None)
        if load is not None:
            self._tell(load)

    async def _load_of(self, number: int, exporter: Exporter) -> Load | None:
        try:
            sample = await exporter.look(self._monotonic())
        except NotTold as error:
            if number not in self._silent:
                self._silent.add(number)
                reason = one_line(str(error))[:REASON_MAX_CHARS]
                log.warning("a node exporter tells no load", exporter=exporter.name, reason=reason)
            return None
        if number in self._silent:
            self._silent.discard(number)
            log.info("a node exporter tells load again", exporter=exporter.name)
        before = self._samples.get(number)
        self._samples[number] = sample
        return node_load(before, sample)


def make_load_watch(config: Config, tell: Callable[[Load], None]) -> LoadWatch:
    exporters = [NodeExporter(url, config.upstreams.ca_file) for url in config.pull.load_metrics]
    return LoadWatch(exporters, config.pull.load_every, tell)
