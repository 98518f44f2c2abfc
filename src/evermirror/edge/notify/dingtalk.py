"""DingTalk: a custom robot of a group, signed where it has a secret.

POST <url with access_token>&timestamp=<ms>&sign=<base64 of HMAC-SHA256(secret, "<ms>\\n<secret>"), quoted>
{"msgtype": "markdown", "markdown": {"title": …, "text": …}, "at": {"isAtAll": false}}
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote_plus

from evermirror.edge.notify.bots import Codes, check
from evermirror.edge.notify.http import Poster
from evermirror.edge.notify.markdown import fit, harmless
from evermirror.edge.notify.reasons import TIMEOUT_S
from evermirror.edge.notify.words import (
    ABOUT_BYTES_MAX,
    TEXT_BYTES_MAX,
    TITLE_BYTES_MAX,
    between,
    label,
    more,
    signed_by,
    when,
)
from evermirror.model.alert import Message, MessageItem

BODY_BYTES_MAX = 20_000  # DingTalk's own bound: errcode 460101 beyond it
_FRAME_BYTES = 1_000  # the title, and the JSON around title and text
TOO_FAST_S = 600.0  # a robot that sent more than 20 messages in a minute is shut out for ten
_CODES = Codes(
    # More than 20 a minute, under two numbers; more than the plan allows.
    too_fast={410100: TOO_FAST_S, 130101: TOO_FAST_S, 90030: TOO_FAST_S},
    # Too long, under two numbers; not a message, of an unknown type; then a link, a text, a picture and
    # a content that DingTalk lets nobody send.
    bad_message=frozenset({460101, 101002, 40035, 400105, 430101, 430102, 430103, 430104}),
)


class DingTalk:
    """Sends to one robot."""

    def __init__(
        self,
        url: str,
        secret: str = "",
        *,
        ca_file: Path | None = None,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secret = secret
        self._clock = clock
        self._poster = Poster(url, secrets=[secret], ca_file=ca_file, timeout_s=timeout_s, clock=clock)

    async def send(self, message: Message) -> None:
        query = signed_query(self._secret, int(self._clock() * 1000)) if self._secret else ""
        answer = await self._poster.post(dingtalk_body(message), {}, query)
        check(answer, _CODES, self._poster.reasons)


def signed_query(secret: str, at_ms: int) -> str:
    """As DingTalk's documentation has it; it refuses what is more than an hour off."""
    signed = hmac.new(secret.encode("utf-8"), f"{at_ms}\n{secret}".encode(), hashlib.sha256).digest()
    return f"timestamp={at_ms}&sign={quote_plus(base64.b64encode(signed))}"


def dingtalk_body(message: Message) -> bytes:
    """At most ``BODY_BYTES_MAX``; nobody is mentioned, whatever the text says."""
    title = harmless(message.title, TITLE_BYTES_MAX) or "evermirror"  # without one it is refused
    text = fit(
        f"#### {title}",
        [_block(item, message.language) for item in message.items],
        lambda left_out: _foot(message, left_out),
        limit=BODY_BYTES_MAX - _FRAME_BYTES,
        size=lambda text: len(_encoded(text)) - 2,  # without its quotes
    )
    markdown = {"title": title, "text": text}
    return _encoded({"msgtype": "markdown", "markdown": markdown, "at": {"isAtAll": False}})


def _block(item: MessageItem, language: str) -> str:
    what = harmless(item.title, TITLE_BYTES_MAX) + between(language) + harmless(item.about, ABOUT_BYTES_MAX)
    rest = f"{harmless(item.text, TEXT_BYTES_MAX)}  \n{when(item, language)}"
    return f"**{label(item, language)}** {what}  \n{rest}"  # two spaces: a line break


def _foot(message: Message, left_out: int) -> str:
    rest = more(message.more + left_out, message.language)
    return f"{rest}\n\n{_signed(message)}" if rest else _signed(message)


def _signed(message: Message) -> str:
    return harmless(signed_by(message), TITLE_BYTES_MAX)


def _encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8")
