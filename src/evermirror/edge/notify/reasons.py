"""Why a message did not go out: in words, without secrets, within a bounded time."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qsl, quote, quote_plus, urlsplit

import aiosmtplib
import httpx2

from evermirror.edge.notify.sender import NotSent
from evermirror.model.printable import one_line

TIMEOUT_S = 10.0  # for a whole message: name, connection, TLS, answer
WORDS_MAX = 300  # of what the other side says; the rest is of no use to people
MASK = "***"
# What networks, certificates and other people's servers do. Anything else is a mistake of ours.
WEATHER = (OSError, EOFError, ValueError, httpx2.HTTPError, httpx2.InvalidURL, aiosmtplib.SMTPException)
PART_CHARS_MIN = 6  # of a URL: a shorter one is no token, and would blot out ordinary words


class Reasons:
    """Makes ``NotSent`` for one channel. The other side may repeat what it was given: no form of a secret
    gets through."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets if secret for form in _forms(secret)}
        ordered = sorted(forms, key=len, reverse=True)  # one may hold another
        self._secret = re.compile("|".join(map(_pattern, ordered))) if ordered else None

    def not_sent(
        self, reason: str, *, permanent: bool = False, retry_after_s: float | None = None
    ) -> NotSent:
        return NotSent(self.words(reason), permanent=permanent, retry_after_s=retry_after_s)

    def words(self, text: str) -> str:
        """One line for people."""
        if self._secret is not None:
            text = self._secret.sub(MASK, text)
        text = one_line(text).strip()
        return text if len(text) <= WORDS_MAX else text[: WORDS_MAX - 1] + "…"

    @asynccontextmanager
    async def bounded(self, timeout_s: float) -> AsyncIterator[None]:
        """Weather and a time that is over become ``NotSent``."""
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except TimeoutError:
            raise self.not_sent(f"no answer within {timeout_s:g} s") from None
        except WEATHER as error:
            raise self.not_sent(_told(error)) from None


class Trust:
    """The certificates that a channel believes: read when they are first needed, which takes a while."""

    def __init__(self, ca_file: Path | None = None) -> None:
        self._ca_file = ca_file
        self._context: ssl.SSLContext | None = None

    async def context(self) -> ssl.SSLContext:
        if self._context is None:
            try:
                self._context = await asyncio.to_thread(ssl.create_default_context, cafile=self._ca_file)
            except OSError as error:
                why = error.strerror or "no certificates in it"
                raise NotSent(f"ca_file {str(self._ca_file)!r} cannot be used: {why}") from None
        return self._context


def secrets_of_url(url: str) -> Iterator[str]:
    """What of a URL must not be shown: all but its host, in the parts that could be repeated alone."""
    parts = urlsplit(url)
    values = (value for _, value in parse_qsl(parts.query))
    yield url
    yield from (part for part in (parts.path, parts.query, *values) if len(part) >= PART_CHARS_MIN)


def _forms(secret: str) -> set[str]:
    plain = secret.encode("utf-8")
    return {
        secret,
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        base64.b64encode(plain).decode("ascii"),
    }


def _pattern(form: str) -> str:
    """A short one is looked for as a word: within others it would blot out what people need to read."""
    found = re.escape(form)
    return found if len(form) >= PART_CHARS_MIN else rf"(?<!\w){found}(?!\w)"


def _told(error: BaseException) -> str:
    """The innermost fact that is known: libraries wrap it into words that say less."""
    found: BaseException | None = error
    for _ in range(10):
        if isinstance(found, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {found.verify_message}"
        if isinstance(found, OSError) and found.strerror:
            of_the_system = isinstance(found, ConnectionError) and found.errno is not None
            return os.strerror(found.errno or 0) if of_the_system else found.strerror
        if found is None:
            break
        found = found.__cause__ or found.__context__
    return str(error) or type(error).__name__
