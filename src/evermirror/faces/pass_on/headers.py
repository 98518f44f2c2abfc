"""What of a request and of its answer is passed on: a list each; everything else stays behind.

So nothing that is about one connection only (RFC 9110, 7.6.1), that tells an address, or that speaks for an
aggregator gets through, whatever a client thinks of.
"""

from __future__ import annotations

from collections.abc import Iterable

Pairs = tuple[tuple[bytes, bytes], ...]

ACCEPT_LANGUAGE = b"accept-language"
AUTHORIZATION = b"authorization"

_ASKED = frozenset(
    {
        b"accept",
        ACCEPT_LANGUAGE,
        AUTHORIZATION,
        b"content-type",
        b"last-event-id",
        b"origin",
        b"sec-fetch-site",
        b"user-agent",
        # forges' webhooks: what happened, and the signature over the body
        b"idempotency-key",
        b"webhook-id",
        b"webhook-signature",
        b"webhook-timestamp",
        b"x-forgejo-delivery",
        b"x-forgejo-event",
        b"x-forgejo-signature",
        b"x-gitea-delivery",
        b"x-gitea-event",
        b"x-gitea-signature",
        b"x-gitee-event",
        b"x-gitee-ping",
        b"x-gitee-timestamp",
        b"x-gitee-token",
        b"x-github-delivery",
        b"x-github-event",
        b"x-gitlab-event",
        b"x-gitlab-event-uuid",
        b"x-gitlab-instance",
        b"x-gitlab-token",
        b"x-hub-signature-256",
    }
)
_ANSWERED = frozenset(
    {
        b"allow",
        b"cache-control",
        b"content-disposition",
        b"content-language",
        b"content-security-policy",
        b"content-type",
        b"etag",
        b"last-modified",
        b"location",
        b"retry-after",
        b"vary",
        b"www-authenticate",
    }
)


def asked(headers: Iterable[tuple[bytes, bytes]]) -> Pairs:
    """Of a client's headers, those for the coordinator. Each once: the first, as the API reads them."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name.lower() in _ASKED:
            found.setdefault(name.lower(), value)
    return tuple(found.items())


def answered(headers: Iterable[tuple[bytes, bytes]]) -> Pairs:
    """Of the coordinator's headers, those for the client."""
    lowered = ((name.lower(), value) for name, value in headers)
    return tuple((n, v) for n, v in lowered if n in _ANSWERED and not (n == b"location" and _leaves(v)))


def value_of(pairs: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes:
    """Empty where it is not there."""
    return next((value for key, value in pairs if key == name), b"")


def _leaves(location: bytes) -> bool:
    """A place on another server: the coordinator's own address is of no use to a client."""
    return not location.startswith(b"/") or location.startswith(b"//")
