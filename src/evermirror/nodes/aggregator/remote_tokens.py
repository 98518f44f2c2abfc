"""Whose token this is, asked of the coordinator over HTTP: an aggregator knows none itself.

A token that the coordinator accepted counts on for a while when the coordinator does not answer.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

import httpx2

from evermirror.faces.api.auth import token_of_node
from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.faces.api.via import VIA
from evermirror.model.access import Role, TokenRecord, has_token_form

AWAY_S = 600.0  # a token accepted so lately is believed while the coordinator is away
KNOWN_MAX = 10_000
ASK_S = 10.0


class RemoteTokens:
    """A ``TokenLookup``; ``url`` is the coordinator's, empty while it is not known. ``show`` gives headers
    that say who asks, ``any_token`` whether the coordinator has a token of a person at all."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        url: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
        show: Callable[[], Mapping[str, str]] = dict,
        any_token: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._show = show
        self._any_token = any_token
        self._url = url
        self._clock = clock
        self._accepted: OrderedDict[bytes, float] = OrderedDict()  # by hash: when

    async def any_user_token(self) -> bool:
        """Nobody is let in for want of tokens here: see AuthSettings.tokens_required."""
        return self._any_token()

    async def find_token(self, plain: str) -> TokenRecord | None:
        """Any token of a person may read what is private; more is not done here."""
        if not has_token_form(plain):  # perhaps somebody's password for another server: it stays here
            return None
        digest = hashlib.sha256(plain.encode()).digest()
        status = await self._ask(plain)
        if status is None:
            at = self._accepted.get(digest)
            if at is None or self._clock() - at > AWAY_S:
                raise ApiProblem(
                    Kind.UNAVAILABLE,
                    "The coordinator, which knows the tokens, does not answer now",
                    hint="Try again in a minute; public repositories need no token",
                    headers={"Retry-After": "60"},
                )
        elif status == 200:
            self._remember(digest)
        else:
            self._accepted.pop(digest, None)
            if status == 403:
                raise token_of_node()
            return None
        return TokenRecord(0, "a token of the coordinator", Role.READER, trusted=False, created_at=0.0)

    def heard(self, authorization: str, accepted: bool) -> None:
        """What the coordinator thought of a token that was passed on to it."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return
        digest = hashlib.sha256(token.strip().partition(".")[0].encode()).digest()
        if accepted:
            self._remember(digest)
        else:
            self._accepted.pop(digest, None)

    async def _ask(self, plain: str) -> int | None:
        """200: a person's, 403: a node's, 401: none. None: no answer."""
        url = self._url()
        if not url:
            return None
        try:
            answer = await self._client.get(
                f"{url}/api/version",
                headers={**self._show(), "Authorization": f"Bearer {plain}"},
                timeout=ASK_S,
            )
        except httpx2.HTTPError:
            return None
        if VIA in answer.headers:
            return None  # it is our pass that it does not accept
        return answer.status_code if answer.status_code in (200, 401, 403) else None

    def _remember(self, digest: bytes) -> None:
        self._accepted[digest] = self._clock()
        self._accepted.move_to_end(digest)
        if len(self._accepted) > KNOWN_MAX:
            self._accepted.popitem(last=False)
