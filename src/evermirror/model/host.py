"""A host as it may stand in a URL: one canonical spelling, or a refusal that says why.

What must never happen is that two programs read the same host differently: we judge one machine, git connects
to another. So what some resolver reads in its own way is refused rather than interpreted: odd IPv4 spellings
(``127.1``, ``0x7f.1``), percent-encoding, digits and dots of other scripts, trailing dots.
"""

from __future__ import annotations

import re
import unicodedata
from encodings import idna
from ipaddress import IPv4Address, IPv6Address

from evermirror.errors import InvalidUrl

HOST_MAX_CHARS = 253  # DNS (RFC 1035), without the final dot
LABEL_MAX_CHARS = 63  # DNS (RFC 1035)

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?", re.ASCII)
# What libc takes for the last part of an IPv4 address; a host that ends so is an address or nothing.
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_QUAD = re.compile(r"(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})", re.ASCII)
# Letters and marks; digits of other scripts are refused (they turn into ASCII digits in some resolvers).
_IDN_CATEGORIES = frozenset({"Ll", "Lu", "Lo", "Lm", "Mn", "Mc"})
# Read as "ss", "σ" by the older IDNA standard and as themselves by the newer: two different hosts.
_IDN_AMBIGUOUS = frozenset("ßẞς")

_PLAIN_HINT = "Write the host name in ASCII letters, digits, hyphens and dots"


def canonical_host(text: str) -> str:
    """Lower-case ASCII name, dotted IPv4, or IPv6 without brackets; raises InvalidUrl.

    ``[…]`` is an IPv6 address. The name is not looked up and not judged here: see ``address`` for that."""
    if not text:
        raise InvalidUrl("the URL has no host", hint="Write it as https://host/path")
    if "%" in text:
        raise InvalidUrl("the host is percent-encoded or has a zone", hint=_PLAIN_HINT)
    if text.startswith("["):
        return _ipv6(text)
    name = text.lower() if text.isascii() else _from_unicode(text)
    if name.endswith("."):
        raise InvalidUrl("the host ends in a dot", hint="Leave the final dot out")
    if len(name) > HOST_MAX_CHARS:
        raise InvalidUrl(f"the host is longer than {HOST_MAX_CHARS} characters", hint=_PLAIN_HINT)
    labels = name.split(".")
    if _NUMERIC.fullmatch(labels[-1]):
        return _ipv4(name)
    for label in labels:
        _check_label(label)
    return name


def as_address(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a canonical host is written as; None for a name."""
    if ":" in host:
        return IPv6Address(host)
    return IPv4Address(host) if _QUAD.fullmatch(host) else None


def is_local_name(host: str) -> bool:
    """Names that mean this very machine by definition (RFC 6761), whatever a resolver would say."""
    return host == "localhost" or host.endswith((".localhost", "localhost.localdomain"))


def _check_label(label: str) -> None:
    if not label:
        raise InvalidUrl("the host has an empty part between two dots", hint=_PLAIN_HINT)
    if len(label) > LABEL_MAX_CHARS:
        raise InvalidUrl(f"a part of the host is longer than {LABEL_MAX_CHARS} characters", hint=_PLAIN_HINT)
    if not _LABEL.fullmatch(label):
        raise InvalidUrl("the host has a character that no host name has", hint=_PLAIN_HINT)


def _ipv4(name: str) -> str:
    if not _QUAD.fullmatch(name):
        raise InvalidUrl(
            "the host is an odd spelling of an IPv4 address",
            hint="Write four decimal numbers such as 192.0.2.1",
        )
    try:
        return str(IPv4Address(name))
    except ValueError:
        raise InvalidUrl("the host is not a valid IPv4 address", hint="Each number is at most 255") from None


def _ipv6(text: str) -> str:
    if text.endswith("]") and text.isascii():
        try:
            return str(IPv6Address(text[1:-1]))
        except ValueError:
            pass  # told below, with the bracket that is missing
    raise InvalidUrl(
        "the host is not a valid IPv6 address", hint="Write it in brackets: https://[2001:db8::1]/path"
    )


def _from_unicode(text: str) -> str:
    """IDNA, where every reading of it agrees: a character that would be mapped to another is refused."""
    if len(text) > HOST_MAX_CHARS:
        raise InvalidUrl(f"the host is longer than {HOST_MAX_CHARS} characters", hint=_PLAIN_HINT)
    for char in text:
        if char.isascii():
            continue
        mapped = unicodedata.normalize("NFKC", char) != char or any(c.isascii() for c in char.lower())
        if mapped or char in _IDN_AMBIGUOUS or unicodedata.category(char) not in _IDN_CATEGORIES:
            raise InvalidUrl(
                f"the host has the character U+{ord(char):04X}, which not every program reads alike",
                hint="Write the host in its ASCII form (xn--…)",
            )
    name = unicodedata.normalize("NFC", text.lower())
    try:
        return ".".join(
            label if label.isascii() else idna.ToASCII(label).decode("ascii") for label in name.split(".")
        )
    except UnicodeError:
        raise InvalidUrl(
            "the host is not a valid international name", hint="Write the host in its ASCII form (xn--…)"
        ) from None
