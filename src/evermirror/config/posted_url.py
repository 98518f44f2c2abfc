"""A URL that messages are posted to. It mostly holds a token: no part of it is repeated to anybody."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

from pydantic import SecretStr

SECRET_CHARS_MIN = 16  # whoever guesses it can tell people and programs what is not so
SHORT_SECRET = f"is shorter than {SECRET_CHARS_MIN} letters, and can be guessed: `openssl rand -hex 32`"
PLAIN_HTTP = "is plain http, which would show it and what is sent: use https"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def check_posted_url(url: SecretStr | None) -> SecretStr | None:
    if url is None:
        return None
    text = url.get_secret_value()
    try:
        parts = urlsplit(text)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("is not an http:// or https:// URL")
    if parts.username is not None or parts.fragment:
        raise ValueError("has a user name or a fragment, which would not be sent")
    return url


def shows_nothing(url: SecretStr) -> bool:
    """Nobody on the way can read it."""
    parts = urlsplit(url.get_secret_value())
    return parts.scheme == "https" or parts.hostname in LOOPBACK


def secrets_in(url: SecretStr) -> Iterator[str]:
    """The whole, and the parts that a library might print alone."""
    text = url.get_secret_value()
    yield text
    yield from (value for _, value in parse_qsl(urlsplit(text).query))
