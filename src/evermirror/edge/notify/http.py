"""One POST to a channel: to its own host only, without redirects, with a bounded answer, and its URL nowhere.

The URL of a channel mostly is its password. The HTTP library gets scheme and host as the URL, and path and
query as bare bytes: so neither its errors nor its log can show them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from evermirror.edge.notify.reasons import TIMEOUT_S, Reasons, Trust, secrets_of_url

ANSWER_BYTES_MAX = 64_000
RETRY_AFTER_MAX_S = 3600.0  # whoever asks for more is asked again all the same
_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    whole: bool  # False: more was sent than is read
    retry_after_s: float | None


class Poster:
    """Posts to one URL. ``reasons`` knows every secret of the channel."""

    def __init__(
        self,
        url: str,
        *,
        secrets: Iterable[str] = (),
        ca_file: Path | None = None,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._url = url
        self._trust = Trust(ca_file)
        self._timeout_s = timeout_s
        self._clock = clock
        self.reasons = Reasons([*secrets, *secrets_of_url(url)])

    async def post(self, body: bytes, headers: Mapping[str, str], query: str = "") -> Answer:
        """``query`` is added to the URL's own. Raises ``NotSent``."""
        async with self.reasons.bounded(self._timeout_s):
            return await self._post(body, headers, query)

    async def _post(self, body: bytes, headers: Mapping[str, str], query: str) -> Answer:
        parts = urlsplit(self._url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        whole_query = "&".join(q for q in (parts.query, query) if q)
        target = (parts.path or "/") + (f"?{whole_query}" if whole_query else "")
        async with httpx2.AsyncClient(
            trust_env=False,
            verify=await self._trust.context() if parts.scheme == "https" else False,
            follow_redirects=False,
            timeout=self._timeout_s,
        ) as client:
            request = client.build_request(
                "POST",
                f"{parts.scheme}://{host}:{parts.port or _PORTS[parts.scheme]}/",
                headers={
                    "Content-Type": "application/json; charset=utf-8",
                    "Accept-Encoding": "identity",
                    "User-Agent": "evermirror",
                    **headers,
                },
                content=body,
                extensions={"target": target.encode("ascii")},
            )
            response = await client.send(request, stream=True)
            try:
                data, whole = await _read(response)
            finally:
                await response.aclose()
        return Answer(response.status_code, data, whole, self._retry_after(response.headers))

    def _retry_after(self, headers: httpx2.Headers) -> float | None:
        """Seconds, or a date; what is neither counts as not said."""
        said = headers.get("Retry-After", "").strip()
        if said.isdecimal() and said.isascii():
            return min(float(said[:9]), RETRY_AFTER_MAX_S)
        try:
            wait_s = parsedate_to_datetime(said).timestamp() - self._clock()
        except (ValueError, OverflowError):
            return None
        return min(max(wait_s, 0.0), RETRY_AFTER_MAX_S)


async def _read(response: httpx2.Response) -> tuple[bytes, bool]:
    data = bytearray()
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) > ANSWER_BYTES_MAX:
            return bytes(data[:ANSWER_BYTES_MAX]), False
    return bytes(data), True
