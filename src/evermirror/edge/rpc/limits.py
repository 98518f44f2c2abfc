"""The bounds of the gRPC transport, and how gRPC is told of them."""

from __future__ import annotations

from dataclasses import dataclass

from evermirror.edge.rpc.convert import FRAME_BYTES_MAX
from evermirror.edge.rpc.transport import SEND_S

SERVICE = "evermirror.v1.Fleet"
METHOD = f"/{SERVICE}/Connect"
ADMITTED = "evermirror-admitted"  # in the initial metadata of the answer: the token was accepted

METADATA_BYTES_MAX = 8192  # of one request: a token and what gRPC adds
STREAMS_PER_CONNECTION = 16  # a worker needs one; health checks some more
WINDOW_BYTES = 128 * 1024  # what may be under way, or lie unread, on one stream
TLS_FRAME_BYTES = 4096  # gRPC keeps a buffer of this size for every connection; by itself it takes 16 KiB
PING_INTERVAL_MIN_S = 5.0  # more pings than that are an attack

Options = list[tuple[str, int | str]]


@dataclass(frozen=True, slots=True)
class RpcLimits:
    """All times in seconds. A connection that was cut is noticed after both keepalive times together."""

    connections_max: int = 10_000  # that were let in by their token
    streams_per_token: int = 4  # a worker that reconnects before its last stream was found dead
    handshake_s: float = 10.0  # TLS and HTTP/2, from a new connection's first byte on
    idle_s: float = 30.0  # a connection without a stream
    authenticate_s: float = 10.0
    authenticating_max: int = 32  # questions to the store at a time; the others wait
    keepalive_s: float = 10.0  # of silence, then a ping
    keepalive_answer_s: float = 10.0
    send_s: float = SEND_S
    dial_s: float = 20.0
    close_s: float = 2.0  # for the last frames to get through
    stop_s: float = 5.0  # for connections to end when the server stops


def server_options(limits: RpcLimits) -> Options:
    return [
        *_both(limits),
        ("grpc.so_reuseport", 0),  # two servers on one port would each get half of the workers
        # Not grpc.max_allowed_incoming_connections: gRPC 1.85 never gives a place back, and after so many
        # connections nobody gets in any more. Those without a stream end by the two times below instead.
        ("grpc.server_handshake_timeout_ms", _ms(limits.handshake_s)),
        ("grpc.max_connection_idle_ms", _ms(limits.idle_s)),
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
        (
            "grpc.http2.min_ping_interval_without_data_ms",
            _ms(min(PING_INTERVAL_MIN_S, limits.keepalive_s / 2)),
        ),
    ]


def client_options(limits: RpcLimits, server_name: str) -> Options:
    options: Options = [
        *_both(limits),
        ("grpc.enable_retries", 0),  # a stream is not repeated behind our back
        ("grpc.enable_http_proxy", 0),  # no proxies from the environment
        ("grpc.use_local_subchannel_pool", 1),  # a dialer's connection is its own
        ("grpc.keepalive_permit_without_calls", 0),
    ]
    if server_name:
        options.append(("grpc.ssl_target_name_override", server_name))
    return options


def _both(limits: RpcLimits) -> Options:
    return [
        ("grpc.max_receive_message_length", FRAME_BYTES_MAX),
        ("grpc.max_send_message_length", FRAME_BYTES_MAX),
        ("grpc.max_metadata_size", METADATA_BYTES_MAX),
        ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
        ("grpc.keepalive_time_ms", _ms(limits.keepalive_s)),
        ("grpc.keepalive_timeout_ms", _ms(limits.keepalive_answer_s)),
        (
            "grpc.http2.ping_timeout_ms",
            _ms(limits.keepalive_answer_s),
        ),  # else a minute, whatever the above says
        ("grpc.http2.max_pings_without_data", 0),  # as many as keepalive needs
        # gRPC would widen the window on a fast link, and so what a side that does not read makes us keep.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
        ("grpc.tsi.max_frame_size", TLS_FRAME_BYTES),
    ]


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
