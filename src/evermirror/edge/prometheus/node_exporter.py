"""A node exporter's metrics, read: one bounded request, and of its text the few lines that tell of load.

The text is not ours: a line that is none, or says what cannot be, is passed over. What is read (names of the
node exporter since 0.16, and of the process exporter):

    node_cpu_seconds_total{cpu,mode}                           node_memory_MemAvailable_bytes, …MemTotal_bytes
    node_network_receive_bytes_total{device}, …transmit_…      node_procs_running
    namedprocess_namegroup_num_procs{groupname="git…"}
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from evermirror.core.pull.node_load import NodeSample

TEXT_BYTES_MAX = 2_000_000  # a node exporter tells some 100 kB
TIMEOUT_S = 5.0  # of everything together
SERIES_MAX = 10_000  # lines that are parsed of one answer: 1,000 CPUs with ten modes
VALUE_MAX = 2.0**63  # counters of seconds and bytes are below

_CPU = "node_cpu_seconds_total"
_AVAILABLE, _TOTAL = "node_memory_MemAvailable_bytes", "node_memory_MemTotal_bytes"
_NETWORK = ("node_network_receive_bytes_total", "node_network_transmit_bytes_total")
_RUNNING = "node_procs_running"
_GROUPS = "namedprocess_namegroup_num_procs"
_WANTED = (_CPU, _AVAILABLE, _TOTAL, *_NETWORK, _RUNNING, _GROUPS)
LINE_MAX_CHARS = 4_000  # longer is not what an exporter tells of load
_LOOPBACK = "lo"


class NotTold(Exception):
    """No metrics; the message says why, for people."""


class NodeExporter:
    """One exporter. ``name`` is its host, for people."""

    def __init__(self, url: str, ca_file: Path | None = None) -> None:
        self._url = url
        self._ca_file = ca_file
        self._context: ssl.SSLContext | None = None  # made once: reading the roots takes a while
        self.name = urlsplit(url).netloc.rpartition("@")[2]

    async def look(self, at: float) -> NodeSample:
        """What it tells, as of ``at``; raises ``NotTold``."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                text = await self._text()
        except TimeoutError:
            raise NotTold(f"no answer within {TIMEOUT_S:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            raise NotTold(str(error) or type(error).__name__) from None
        sample = await asyncio.to_thread(sample_of, text, at)  # the largest may take half a second
        if not sample.cpus:
            raise NotTold("it tells nothing of CPUs: is it a node exporter, with /metrics in its address?")
        return sample

    async def _text(self) -> str:
        if self._context is None:
            self._context = await asyncio.to_thread(ssl.create_default_context, cafile=self._ca_file)
        async with (
            httpx2.AsyncClient(
                trust_env=False, verify=self._context, follow_redirects=False, timeout=TIMEOUT_S
            ) as client,
            client.stream("GET", self._url, headers=_HEADERS) as answer,
        ):
            if answer.status_code != httpx2.codes.OK:
                raise NotTold(f"it answers HTTP {answer.status_code}")
            data = bytearray()
            async for chunk in answer.aiter_raw():
                data += chunk
                if len(data) > TEXT_BYTES_MAX:
                    raise NotTold(f"its answer is longer than {TEXT_BYTES_MAX} bytes")
        return data.decode("utf-8", "replace")


# As text, and not compressed: what is bounded is what arrives.
_HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity"}


@dataclass(slots=True)
class _Reading:
    """What was read so far, by the names that it is asked for by."""

    cpus: dict[str, dict[str, float]] = field(default_factory=dict)
    single: dict[str, float] = field(default_factory=dict)
    network: dict[str, float] = field(default_factory=dict)
    git: float | None = None

    def add(self, name: str, labels: dict[str, str], value: float) -> None:
        match name:
            case "node_cpu_seconds_total":
                mode = labels.pop("mode", "")
                if mode:
                    self.cpus.setdefault(_identity(labels), {})[mode] = value
            case "namedprocess_namegroup_num_procs":
                if labels.get("groupname", "").lower().startswith("git"):
                    self.git = (self.git or 0.0) + value
            case _ if name in _NETWORK:
                if labels.get("device") != _LOOPBACK:
                    device = _identity(labels)
                    self.network[device] = self.network.get(device, 0.0) + value
            case _:
                self.single[name] = self.single.get(name, 0.0) + value


def sample_of(text: str, at: float) -> NodeSample:
    """What a text tells of load; never raises."""
    reading = _Reading()
    for sample in _samples(text):
        if sample.name in _WANTED and 0 <= sample.value <= VALUE_MAX:
            reading.add(sample.name, dict(sample.labels), float(sample.value))
    available, total = reading.single.get(_AVAILABLE), reading.single.get(_TOTAL)
    running = reading.single.get(_RUNNING)
    return NodeSample(
        at,
        cpus=reading.cpus,
        memory_available=min(1.0, available / total) if available is not None and total else None,
        network_bytes=reading.network,
        git_processes=None if reading.git is None else int(reading.git),
        running_processes=None if running is None else int(running),
    )


def _samples(text: str) -> Iterator[Sample]:
    """The samples that tell of load. The parser gets one short line at a time: its work grows with the square
    of a line's length, and it gives up a whole text for one bad line."""
    lines = (line for line in text.split("\n") if len(line) <= LINE_MAX_CHARS and line.startswith(_WANTED))
    for line in islice(lines, SERIES_MAX):
        with suppress(ValueError, LookupError, ArithmeticError):  # what the parser raises for bad lines
            for family in text_string_to_metric_families(line):
                yield from family.samples


def _identity(labels: dict[str, str]) -> str:
    """By all labels: a server that passes several nodes on tells each CPU's number more than once."""
    return ",".join(f"{name}={labels[name]}" for name in sorted(labels))
