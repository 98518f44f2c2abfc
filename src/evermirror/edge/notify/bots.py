"""What bots of chats have in common: JSON to a URL that holds a token; an answer of 200 may yet be a no."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from evermirror.edge.notify.http import ANSWER_BYTES_MAX, Answer
from evermirror.edge.notify.reasons import Reasons


@dataclass(frozen=True, slots=True)
class Codes:
    """What a chat's codes mean for us; all others are tried again later."""

    too_fast: Mapping[int, float] = field(default_factory=dict)  # to the time that it then wants, in seconds
    bad_message: frozenset[int] = frozenset()


def check(answer: Answer, codes: Codes, reasons: Reasons) -> None:
    """Raises ``NotSent`` unless the bot says that it has taken the message."""
    if answer.status != 200:
        raise reasons.not_sent(f"HTTP {answer.status}", retry_after_s=answer.retry_after_s)
    if not answer.whole:
        raise reasons.not_sent(f"an answer of more than {ANSWER_BYTES_MAX} bytes, which no bot gives")
    try:
        told = json.loads(answer.body)
    except (ValueError, RecursionError):
        told = None
    code = told.get("errcode") if isinstance(told, dict) else None
    if not isinstance(code, int) or isinstance(code, bool):
        raise reasons.not_sent("an answer without errcode: the URL is not that of a bot")
    if code != 0:
        raise reasons.not_sent(
            f"errcode {code}: {told.get('errmsg', '')}",
            permanent=code in codes.bad_message,
            retry_after_s=codes.too_fast.get(code),
        )
