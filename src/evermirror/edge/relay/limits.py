"""What a relay and its lines may use at most; every wait has an end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LineLimits:
    """Of any line, at either end."""

    hello_s: float = 10.0  # connection, handshake and admission, each
    first_byte_s: float = 2.0  # of TLS, from a new connection on: whoever dials speaks at once
    ping_s: float = 20.0  # between two signs of life on an idle line
    quiet_s: float = 60.0  # an idle line without any is half open, and closed
    silence_s: float = 300.0  # nothing moves in the midst of a request; as edge/git/serve.py waits for git
    request_bytes_max: int = 64_000_000  # unpacked: as edge/git/serve.py takes it


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """Of a worker's lines to one relay."""

    lines_max: int = 8
    pause_first_s: float = 0.5  # before dialling again; grows, jittered, until …
    pause_last_s: float = 60.0
    line: LineLimits = LineLimits()


@dataclass(frozen=True, slots=True)
class AskingLimits:
    """Of a reader's lines to other nodes' relays."""

    idle_lines_max: int = 4  # kept for the next question, of each relay
    idle_s: float = 15.0  # below ``ping_s``: no ping is needed
    pause_s: float = 5.0  # a relay that could not be reached is not tried for so long while others are there
    line: LineLimits = LineLimits()


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """Of a relay."""

    serving_lines_max: int = 20_000
    lines_per_worker: int = 16
    free_lines_max: int = 2  # of one worker, once a burst is over: no more were needed for …
    spare_s: float = 5.0
    asking_lines_max: int = 1_000
    asking_per_node: int = 64
    strangers_max: int = 200  # connections that have not said yet who they are, and of these …
    strangers_per_network: int = 50  # … from one address, of IPv6 one /64: many may share it behind NAT
    known_strangers_max: int = 200  # places besides, for networks from which somebody was admitted in …
    known_s: float = 86_400.0  # … the last day: whoever comes back after an outage
    known_max: int = 10_000  # such networks, ~200 bytes each
    asks_max: int = 256  # under way, and …
    asks_per_reader: int = 64
    queue: int = 256  # … in line for one of these places
    queue_wait_s: float = 10.0
    line_wait_s: float = 5.0  # for a free line of a holder that has some
    back_s: float = 20.0  # a holder whose last line broke so lately is about to come back
    line: LineLimits = LineLimits()


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Of the gateway for git's children."""

    connections_max: int = 256
    head_bytes_max: int = 32_768
    idle_s: float = 60.0  # a connection that git keeps without asking anything
    silence_s: float = 300.0  # git takes nothing: it may be resolving deltas of what it has
    request_bytes_max: int = 64_000_000  # unpacked
    answer_bytes_max: int = 200_000_000_000  # all answers of one opening: more than any repository has
