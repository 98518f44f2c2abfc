"""WeCom (企业微信): a robot of a group.

POST <url with key>    {"msgtype": "markdown", "markdown": {"content": …}}
"""

from __future__ import annotations

import json
from pathlib import Path

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
from evermirror.model.alert import Level, Message, MessageItem, Turn

CONTENT_BYTES_MAX = 4_096  # WeCom's own bound: errcode 40058 beyond it
TOO_FAST_S = 60.0  # 20 messages a minute are allowed
_CODES = Codes(
    too_fast={45009: TOO_FAST_S, 45033: TOO_FAST_S},  # too many in a minute; too many at once
    bad_message=frozenset({40008, 40058, 45002, 44004}),  # of an unknown type, malformed, too long, empty
)


class WeCom:
    """Sends to one robot."""

    def __init__(self, url: str, *, ca_file: Path | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._poster = Poster(url, ca_file=ca_file, timeout_s=timeout_s)

    async def send(self, message: Message) -> None:
        answer = await self._poster.post(wecom_body(message), {})
        check(answer, _CODES, self._poster.reasons)


def wecom_body(message: Message) -> bytes:
    content = fit(
        f"**{harmless(message.title, TITLE_BYTES_MAX)}**",
        [_block(item, message.language) for item in message.items],
        lambda left_out: _foot(message, left_out),
        limit=CONTENT_BYTES_MAX,
        size=lambda text: len(text.encode("utf-8")),
    )
    told = {"msgtype": "markdown", "markdown": {"content": content}}
    return json.dumps(told, ensure_ascii=False).encode("utf-8")


def _block(item: MessageItem, language: str) -> str:
    what = harmless(item.title, TITLE_BYTES_MAX) + between(language) + harmless(item.about, ABOUT_BYTES_MAX)
    begun = f'> <font color="{_colour(item)}">{label(item, language)}</font> {what}'
    rest = f'> {harmless(item.text, TEXT_BYTES_MAX)}\n> <font color="comment">{when(item, language)}</font>'
    return f"{begun}\n{rest}"


def _colour(item: MessageItem) -> str:
    """One of the three that WeCom has: green, grey, orange."""
    if item.turn in (Turn.OVER, Turn.TEST):
        return "info"
    return "comment" if item.level is Level.WARNING else "warning"


def _foot(message: Message, left_out: int) -> str:
    signed = f'<font color="comment">{harmless(signed_by(message), TITLE_BYTES_MAX)}</font>'
    rest = more(message.more + left_out, message.language)
    return f"{rest}\n{signed}" if rest else signed
