"""One request to an address that was checked before: no redirect is followed, the answer is bounded."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

CONNECT_S = 10.0
_HTTP_PORTS = {"https": 443, "http": 80}

Resolve = Callable[[str], Awaitable[tuple[str, ...]]]  # from a URL to its checked addresses


class TooLongError(Exception):
    """An answer beyond its bound."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``headers``: names in lower case."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class Pinned:
    """Sends requests for a URL's host to that host's checked addresses only."""

    def __init__(self, resolve: Resolve, ca_file: Path | None = None) -> None:
        self._resolve = resolve
        self._ca_file = ca_file
        self._context: ssl.SSLContext | None = None  # made once: reading the roots takes a while

    async def client(self, timeout_s: float) -> httpx2.AsyncClient:
        """One to send through; the caller closes it."""
        if self._context is None:
            self._context = await asyncio.to_thread(ssl.create_default_context, cafile=self._ca_file)
        timeout = httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))
        return httpx2.AsyncClient(
            trust_env=False, verify=self._context, follow_redirects=False, timeout=timeout
        )

    async def addresses(self, url: str) -> tuple[str, ...]:
        parts = urlsplit(url)
        return await self._resolve(f"{parts.scheme}://{parts.netloc}/api")

    async def send(
        self,
        client: httpx2.AsyncClient,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: Mapping[str, object] | None,
        bytes_max: int,
    ) -> Answer:
        """``url`` has the host's name, not an address. Raises what ``resolve`` and httpx2 raise."""
        if not all(value.isascii() and value.isprintable() for value in headers.values()):
            # Libraries show the value where they refuse it.
            raise ValueError("the credential's token has letters that cannot be sent")
        parts = urlsplit(url)
        first = (await self.addresses(url))[0]
        address = f"[{first}]" if ":" in first else first
        port = parts.port or _HTTP_PORTS[parts.scheme]
        query = f"?{parts.query}" if parts.query else ""
        request = client.build_request(
            method,
            f"{parts.scheme}://{address}:{port}{parts.path}{query}",
            headers={**headers, "Host": parts.netloc, "Accept-Encoding": "identity"},
            json=body,
            extensions={"sni_hostname": parts.hostname},
        )
        response = await client.send(request, stream=True)
        try:
            data = await _read(response, bytes_max)
        finally:
            await response.aclose()
        told = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status_code, told, data)


async def _read(response: httpx2.Response, bytes_max: int) -> bytes:
    data = bytearray()
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) > bytes_max:
            raise TooLongError(f"the answer is longer than {bytes_max} bytes")
    return bytes(data)
