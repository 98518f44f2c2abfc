"""Whether a hook is genuine: each forge's own scheme, over the raw bytes, compared in constant time.

    GitHub    X-Hub-Signature-256: sha256=HEX    HMAC-SHA256 of the body
    Gitea     X-Gitea-Signature: HEX             the same; Forgejo: X-Forgejo-Signature.
                                                 Of a form: of the JSON in it, not of the form
    GitLab    X-Gitlab-Token: SECRET             the secret itself
              webhook-signature: v1,BASE64 …     HMAC-SHA256 of "webhook-id.webhook-timestamp.body";
                                                 the secret is a signing token then (whsec_…)
    Gitee     X-Gitee-Token: SECRET              the secret itself (a password)
              X-Gitee-Token: BASE64              HMAC-SHA256 of "X-Gitee-Timestamp\\nSECRET"

A signature with a time is good for an hour before and after it: forges send again late, and clocks differ.
Which of several secrets it was, or that there is none at all, does not show in the time this takes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import unquote

from evermirror.core.hooks.body import is_form, payload_of
from evermirror.errors import UsageError
from evermirror.model.forge import Forge

AGE_MAX_S = 3600.0
SIGNING_PREFIX = "whsec_"
_SIGNATURES_MAX = 16  # in one header: while its key is changed, a forge signs with two
_NOBODYS = "nobody has this secret"
_DIGITS_MAX = 18


def is_signed(
    forge: Forge, headers: Mapping[str, str], body: bytes, secrets: Sequence[str], now: float
) -> bool:
    """``headers`` with names in lower case; ``now`` in UTC seconds. False where there are no secrets."""
    check = _CHECKS[forge]
    found = [check(headers, body, secret, now) for secret in secrets or (_NOBODYS,)]
    return bool(secrets) and any(found)


def github_signature(secret: str, body: bytes) -> str:
    return "sha256=" + _hex(secret, body)


def gitea_signature(secret: str, body: bytes) -> str:
    return _hex(secret, body)


def gitee_sign(secret: str, timestamp_ms: str) -> str:
    signed = hmac.digest(_bytes(secret), _bytes(f"{timestamp_ms}\n{secret}"), hashlib.sha256)
    return base64.b64encode(signed).decode()


def standard_signature(secret: str, webhook_id: str, timestamp: str, body: bytes) -> str:
    """As of Standard Webhooks; ``secret`` is ``whsec_`` and a key in base64, else ValueError."""
    signed = hmac.digest(_signing_key(secret), _bytes(f"{webhook_id}.{timestamp}.") + body, hashlib.sha256)
    return "v1," + base64.b64encode(signed).decode()


def _github(headers: Mapping[str, str], body: bytes, secret: str, now: float) -> bool:
    return _same(headers.get("x-hub-signature-256", ""), github_signature(secret, body))


def _gitea(headers: Mapping[str, str], body: bytes, secret: str, now: float) -> bool:
    signed = _signed_by_gitea(headers, body)
    own = gitea_signature(secret, signed)
    shown = [headers.get(name, "") for name in ("x-gitea-signature", "x-forgejo-signature")]
    shown.append(headers.get("x-hub-signature-256", "").removeprefix("sha256="))
    return _any_same(shown, own)


def _signed_by_gitea(headers: Mapping[str, str], body: bytes) -> bytes:
    if not is_form(headers):
        return body
    try:
        return payload_of(headers, body)
    except UsageError:
        return body


def _gitlab(headers: Mapping[str, str], body: bytes, secret: str, now: float) -> bool:
    shown = _same(headers.get("x-gitlab-token", ""), secret)
    if not secret.startswith(SIGNING_PREFIX) or "webhook-signature" not in headers:
        return shown
    at = headers.get("webhook-timestamp", "")
    try:
        own = standard_signature(secret, headers.get("webhook-id", ""), at, body)
    except ValueError:
        return shown
    given = headers["webhook-signature"].split()[:_SIGNATURES_MAX]
    signed = _any_same(given, own)
    return shown or (signed and _is_fresh(at, 1.0, now))


def _gitee(headers: Mapping[str, str], body: bytes, secret: str, now: float) -> bool:
    token = headers.get("x-gitee-token", "")
    at = headers.get("x-gitee-timestamp", "")
    own = gitee_sign(secret, at)
    # Its documentation percent-encodes the signature for use in a URL; in the header it comes both ways.
    signed = _any_same((token, unquote(token)), own)
    return _same(token, secret) or (signed and _is_fresh(at, 0.001, now))


_CHECKS: Mapping[Forge, Callable[[Mapping[str, str], bytes, str, float], bool]] = {
    Forge.GITHUB: _github,
    Forge.GITLAB: _gitlab,
    Forge.GITEE: _gitee,
    Forge.GITEA: _gitea,
}


def _is_fresh(text: str, unit_s: float, now: float) -> bool:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        return False
    return abs(int(text) * unit_s - now) <= AGE_MAX_S


def _signing_key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(SIGNING_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("the key of a signing token is base64") from error


def _hex(secret: str, body: bytes) -> str:
    return hmac.digest(_bytes(secret), body, hashlib.sha256).hex()


def _any_same(given: Sequence[str], own: str) -> bool:
    """All are compared, also after one that is the same."""
    found = [_same(one, own) for one in given]
    return any(found)


def _same(given: str, own: str) -> bool:
    return hmac.compare_digest(_header_bytes(given), _bytes(own))


def _header_bytes(value: str) -> bytes:
    """As they came: servers decode headers as Latin-1, whatever they are."""
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return _bytes(value)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
