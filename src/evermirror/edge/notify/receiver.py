"""Events to somebody's server: signed, each message with its number, and what the answer means."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from evermirror.core.deliver.decisions import NotTaken, Post, Taken
from evermirror.core.deliver.message import message_body
from evermirror.edge.notify.http import Answer, Poster
from evermirror.edge.notify.reasons import TIMEOUT_S
from evermirror.edge.notify.sender import NotSent
from evermirror.edge.notify.signing import SIGNATURE_HEADER, signature

DELIVERY_HEADER = "Evermirror-Delivery"
EVENT_HEADER = "Evermirror-Event"  # of a message that holds one event
GONE = 410
_LATER = frozenset({408, 425, 429})  # of 4xx: the same again may be taken


class Receiver:
    """Of one event hook. Never takes longer than its timeout."""

    def __init__(
        self,
        hook: str,
        url: str,
        secret: str,
        *,
        ca_file: Path | None = None,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.host = urlsplit(url).hostname or ""
        self._hook = hook
        self._secret = secret
        self._clock = clock
        self._poster = Poster(url, secrets=[secret], ca_file=ca_file, timeout_s=timeout_s, clock=clock)

    async def post(self, post: Post) -> Taken | NotTaken:
        body = message_body(self._hook, post.items)
        headers = {
            SIGNATURE_HEADER: signature(self._secret, int(self._clock()), body),
            DELIVERY_HEADER: post.delivery,
        }
        if len(post.items) == 1:
            headers[EVENT_HEADER] = post.items[0].type
        try:
            return _meaning(await self._poster.post(body, headers))
        except NotSent as error:
            return NotTaken(error.reason, retry_after_s=error.retry_after_s)


def _meaning(answer: Answer) -> Taken | NotTaken:
    """What else it says is not read."""
    status = answer.status
    if 200 <= status < 300:
        return Taken()
    reason = f"HTTP {status}"
    if 300 <= status < 400:
        reason += ": redirects are not followed; give the URL that it leads to"
    refused = 400 <= status < 500 and status not in _LATER and status != GONE
    return NotTaken(reason, refused, status == GONE, answer.retry_after_s)
