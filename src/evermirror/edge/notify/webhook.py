"""A webhook: alerts as JSON, signed. ``docs/alerts.md`` has the schema; ``version`` changes when it does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from evermirror.edge.notify.http import Answer, Poster
from evermirror.edge.notify.reasons import TIMEOUT_S, Reasons
from evermirror.edge.notify.signing import SIGNATURE_HEADER, signature
from evermirror.edge.notify.words import clip
from evermirror.model.alert import Message, MessageItem

VERSION = 1
FIELD_BYTES_MAX = 2_000  # of each text: a whole message stays within some hundred kilobytes
# Too big, not of a type that it takes. 400 and 422 are also what receivers answer to a wrong signature, and
# proxies to a wrong port: settings are mended, and then the message goes out.
_BAD_MESSAGE = frozenset({413, 415})


class Webhook:
    """Sends to one URL."""

    def __init__(
        self,
        url: str,
        secret: str,
        *,
        ca_file: Path | None = None,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secret = secret
        self._clock = clock
        self._poster = Poster(url, secrets=[secret], ca_file=ca_file, timeout_s=timeout_s, clock=clock)

    async def send(self, message: Message) -> None:
        body = webhook_body(message)
        signed = signature(self._secret, int(self._clock()), body)
        check_taken(await self._poster.post(body, {SIGNATURE_HEADER: signed}), self._poster.reasons)


def check_taken(answer: Answer, reasons: Reasons) -> None:
    """Raises ``NotSent`` unless the receiver has taken what it was sent; what else it says is not read."""
    if 200 <= answer.status < 300:
        return
    told = f"HTTP {answer.status}"
    if 300 <= answer.status < 400:
        told += ": redirects are not followed; give the URL that it leads to"
    raise reasons.not_sent(told, permanent=answer.status in _BAD_MESSAGE, retry_after_s=answer.retry_after_s)


def webhook_body(message: Message) -> bytes:
    told = {
        "version": VERSION,
        "server": _text(message.server),
        "at": _time(message.at),
        "language": message.language,
        "level": message.level.value,
        "title": _text(message.title),
        "alerts": [_alert(item) for item in message.items],
        "more": message.more,
    }
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _alert(item: MessageItem) -> dict[str, object]:
    return {
        "id": item.alert,
        "kind": _text(item.kind),
        "about": _text(item.about),
        "level": item.level.value,
        "turn": item.turn.value,
        "title": _text(item.title),
        "text": _text(item.text),
        "raised_at": _time(item.raised_at),
        "ended_at": None if item.ended_at is None else _time(item.ended_at),
    }


def _text(text: str) -> str:
    return clip(text.encode("utf-8", "replace").decode("utf-8"), FIELD_BYTES_MAX)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
