"""What an HTTP answer that is not a list of refs means: its failure, its redirect, how long to stay away.

| answer                                           | failure                                                |
|--------------------------------------------------|--------------------------------------------------------|
| 429; 403 or 503 with signs of a rate limit       | RATE_LIMITED, with the time that was asked for         |
| 401 to nobody in particular                      | NOT_FOUND: forges say so of what is gone or private    |
| 401 to a credential; 403                         | AUTH_FAILED: it is there, and refuses                  |
| 404, 410, 451                                    | NOT_FOUND                                              |
| a redirect elsewhere                             | NOT_FOUND: moved; the target is named, never contacted |
| a web page instead of git                        | NOT_FOUND; to a credential AUTH_FAILED: a login page   |
| 408, 425, 5xx                                    | NETWORK_TIMEOUT                                        |
| another text with HTTP 200                       | UNKNOWN: never an empty repository                     |
| the dumb protocol, and the rest                  | UNKNOWN                                                |
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from email.utils import parsedate_to_datetime
from urllib.parse import SplitResult, urljoin, urlsplit

from evermirror.edge.git.connection import Response
from evermirror.edge.git.wordings import kind_of, without_names
from evermirror.model.failure import HTTP_BODY, HTTP_STATUS, Failure, FailureKind
from evermirror.model.printable import one_line

RETRY_AFTER_MAX_S = 86_400.0  # a host that asks for more is looked at once a day all the same
EPOCH_MIN_S = 1_000_000_000  # a reset time above this is a date, below it a number of seconds
BODY_LOOKED_AT_BYTES = 2000  # of an error page, for signs of a rate limit
BODY_SHOWN_CHARS = 500  # of an answer, in a failure's context
BODY_CLEANED_BYTES = 10_000  # of it: secrets are removed before it is cut
FOREIGN_SHOWN_CHARS = 120  # of it, in the message
SHOWN_URL_CHARS = 200
GIT_TYPE = "application/x-git-upload-pack-"

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_RATE_WORDS = re.compile(r"rate.?limit|too many requests|abuse detection", re.IGNORECASE)
_LOGIN = re.compile(r"login|log_in|sign_?in|/auth\b|/sso\b", re.IGNORECASE)
_PRIVATE_HINT = "it is gone, or private and needs a credential"
_CREDENTIAL_HINT = "check the repo's credential and what it may read"

_ERR_PROTOCOL = re.compile(
    r"protocol|object.?format|expected|unknown (?:capability|command|object)|unsupported|invalid command",
    re.IGNORECASE,
)


def is_git(response: Response) -> bool:
    """Whether a smart git server speaks here."""
    return response.status == 200 and response.header("content-type").startswith(GIT_TYPE)


def is_redirect(response: Response) -> bool:
    return response.status in _REDIRECTS


def failure_of(response: Response, *, authenticated: bool, now: float, url: str = "") -> Failure:
    """The failure that an answer other than 200 stands for; ``now`` is UTC seconds. What is a name in the
    ``url`` that was asked for is no sign of anything."""
    status = response.status
    wait_s = retry_after_s(response, now)
    if status == 429 or (status in (403, 503) and _rate_limited(response, wait_s, url)):
        return Failure(FailureKind.RATE_LIMITED, f"HTTP {status}: rate limited", retry_after_s=wait_s)
    match status:
        case 401 if not authenticated:
            return Failure(FailureKind.NOT_FOUND, "HTTP 401: gone or private", hint=_PRIVATE_HINT)
        case 401:
            return Failure(FailureKind.AUTH_FAILED, "HTTP 401: credential refused", hint=_CREDENTIAL_HINT)
        case 403:
            hint = _CREDENTIAL_HINT if authenticated else "it refuses to be read without a credential"
            return Failure(FailureKind.AUTH_FAILED, "HTTP 403: refused", hint=hint)
        case 404 | 410 | 451:
            return Failure(FailureKind.NOT_FOUND, f"HTTP {status}: not there", hint=_PRIVATE_HINT)
        case 408 | 425:
            return Failure(FailureKind.NETWORK_TIMEOUT, f"HTTP {status}")
        case _ if status >= 500:
            return Failure(FailureKind.NETWORK_TIMEOUT, f"HTTP {status}", retry_after_s=wait_s)
        case _:
            return Failure(FailureKind.UNKNOWN, f"HTTP {status}")


def with_answer(failure: Failure, response: Response, clean: Callable[[str], str]) -> Failure:
    """The failure with what was answered: people may see in it what no table knows. ``clean`` removes
    secrets: of one that is cut, half would stay."""
    body = clean(response.body[:BODY_CLEANED_BYTES].decode("utf-8", "replace"))[:BODY_SHOWN_CHARS]
    told = {HTTP_STATUS: str(response.status), HTTP_BODY: body}
    return replace(failure, context={**failure.context, **told})


def retry_after_s(response: Response, now: float) -> float | None:
    """How long the host asks us to stay away, bounded; None where it does not say."""
    asked = _seconds(response.header("retry-after"), now)
    if asked is None and _remaining(response) in ("", "0"):
        for name in ("x-ratelimit-reset", "ratelimit-reset"):
            asked = _seconds(response.header(name), now) if asked is None else asked
    return None if asked is None else min(max(0.0, asked), RETRY_AFTER_MAX_S)


def _seconds(value: str, now: float) -> float | None:
    """A number of seconds, a Unix time, or an HTTP date."""
    if value.isascii() and value.isdigit():
        number = float(value[:18])
        return number - now if number > EPOCH_MIN_S else number
    try:
        return parsedate_to_datetime(value).timestamp() - now if value else None
    except (ValueError, OverflowError):
        return None


def _rate_limited(response: Response, wait_s: float | None, url: str) -> bool:
    if wait_s is not None or _remaining(response) == "0":
        return True
    if response.status != 403:
        return False
    page, _ = without_names(response.body[:BODY_LOOKED_AT_BYTES].decode("utf-8", "replace"), url)
    return _RATE_WORDS.search(page) is not None


def _remaining(response: Response) -> str:
    """GitHub's name for it, or GitLab's."""
    return response.header("x-ratelimit-remaining") or response.header("ratelimit-remaining")


def redirect_url(response: Response, asked: str) -> SplitResult | None:
    """Where a redirect leads, without the service's own part; None where it leads nowhere that is a URL."""
    try:
        target = urlsplit(urljoin(asked, response.header("location")))
        _ = target.port  # raises where it is no number
    except ValueError:
        return None
    path = target.path.removesuffix("/git-upload-pack").removesuffix("/info/refs").rstrip("/")
    return target._replace(path=path, query="", fragment="")


def moved(response: Response, target: SplitResult | None, clean: Callable[[str], str]) -> Failure:
    """A redirect that is not followed: it is named, without what may be secret in it."""
    if target is None or not target.hostname:
        return Failure(FailureKind.NOT_FOUND, f"HTTP {response.status}: moved to nowhere")
    host = target.netloc.rpartition("@")[2]
    shown = one_line(clean(f"{target.scheme}://{host}{target.path}"))[:SHOWN_URL_CHARS]
    if _LOGIN.search(target.path):
        return Failure(FailureKind.NOT_FOUND, f"sent to a login page: {shown}", hint=_PRIVATE_HINT)
    hint = "redirects are not followed: if that is right, give the repo its new URL"
    return Failure(FailureKind.NOT_FOUND, f"moved to {shown}", hint=hint)


def not_git(content_type: str, *, authenticated: bool) -> Failure | None:
    """A web page where git should be; None for anything that may still be git's."""
    if not content_type.lower().startswith(("text/html", "application/xhtml")):
        return None
    kind = FailureKind.AUTH_FAILED if authenticated else FailureKind.NOT_FOUND
    return Failure(
        kind, "a web page instead of a git repository", hint="check the URL; it may ask for a login"
    )


def foreign(response: Response, clean: Callable[[str], str]) -> Failure:
    """HTTP 200 with a text that is not git's: a maintenance page, a health check, a cut answer. It says
    nothing about refs. ``clean`` removes secrets."""
    body = one_line(clean(response.body[:BODY_CLEANED_BYTES].decode("utf-8", "replace")).strip())
    kind = one_line(clean(response.header("content-type"))) or "no content type"
    return Failure(
        FailureKind.UNKNOWN,
        f"HTTP 200, but not from git ({kind[:FOREIGN_SHOWN_CHARS]}): {body[:FOREIGN_SHOWN_CHARS]}",
        hint="upstream may be under maintenance: it is asked again. Otherwise check the URL",
    )


def dumb() -> Failure:
    """A plain file server."""
    message = "only the dumb http protocol is spoken here, which is not supported"
    return Failure(
        FailureKind.UNKNOWN,
        message,
        hint="ask for smart http (git http-backend), or mirror it from elsewhere",
    )


def refused(said: str, *, authenticated: bool, url: str = "") -> Failure | None:
    """An ERR line; None where upstream did not understand what we asked, so that another way may work."""
    words, _ = without_names(said, url)
    match kind_of(words):
        case FailureKind.NOT_FOUND:
            return Failure(FailureKind.NOT_FOUND, said, hint=_PRIVATE_HINT)
        case FailureKind.AUTH_FAILED if authenticated:
            return Failure(FailureKind.AUTH_FAILED, said, hint=_CREDENTIAL_HINT)
        case FailureKind.AUTH_FAILED:
            return Failure(FailureKind.NOT_FOUND, said, hint=_PRIVATE_HINT)
        case FailureKind() as kind:
            return Failure(kind, said)
    if _ERR_PROTOCOL.search(words):
        return None
    return Failure(FailureKind.UNKNOWN, said or "upstream said ERR and nothing else")
