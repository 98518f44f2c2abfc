"""A line to a relay: connected, its certificate compared, and only then told who we are."""

from __future__ import annotations

import asyncio
import hmac
import ssl

from evermirror.edge.relay.certificate import fingerprint_of
from evermirror.edge.relay.frames import VERSION, Admitted, Hello, Refused
from evermirror.edge.relay.limits import LineLimits
from evermirror.edge.relay.line import Line, LineBroken, Scratch
from evermirror.errors import EvermirrorError
from evermirror.model.relay import RelayAddress

PORT_MAX = 65_535


class DialFailed(EvermirrorError):
    """No line; ``retry_after_s`` is the relay's wish, 0 where it has none."""

    def __init__(self, why: str, retry_after_s: float = 0.0) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s


class DialRefused(DialFailed):
    """The relay does not let this node in; another relay of the same coordinator would not either."""


async def dial(
    relay: RelayAddress, way: str, pass_: str, context: ssl.SSLContext, scratch: Scratch, limits: LineLimits
) -> Line:
    """Raises DialFailed."""
    line = await _connect(relay, context, scratch, limits)
    try:
        await line.ready()
        if not hmac.compare_digest(fingerprint_of(line.peer_certificate), relay.fingerprint.lower()):
            raise DialFailed("another certificate than the coordinator told: somebody is in between")
        await line.send(Hello(VERSION, way, pass_))
        match await line.next(limits.hello_s):
            case Admitted():
                line.idle = True
                return line
            case Refused(reason, 0.0):
                raise DialRefused(f"the relay refused: {reason}")
            case Refused(reason, retry_after_s):
                raise DialFailed(f"the relay is busy: {reason}", retry_after_s)
            case other:
                raise line.out_of_order(other)
    except LineBroken as broken:
        raise DialFailed(broken.message) from None
    except BaseException:
        line.abort("not admitted")
        raise


async def _connect(
    relay: RelayAddress, context: ssl.SSLContext, scratch: Scratch, limits: LineLimits
) -> Line:
    host, port = split_address(relay.address)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(limits.hello_s):
            _, line = await loop.create_connection(
                lambda: Line(context, scratch, limits, server_side=False), host, port
            )
    except TimeoutError:
        raise DialFailed(f"no connection in {limits.hello_s:g} s") from None
    except OSError as error:
        raise DialFailed(error.strerror or str(error)) from None
    except ValueError:  # a name that cannot be looked up at all
        raise DialFailed(f"{relay.address[:300]!r} names no host") from None
    return line


def split_address(text: str) -> tuple[str, int]:
    """``host:port``, ``[address]:port``. Raises DialFailed."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) <= PORT_MAX:
        raise DialFailed(f"{text[:300]!r} is no host:port")
    return host, int(port)
