"""A repository's URL: parsed once, canonicalised or refused; only its re-serialised form is used after that.

What is the same repository (the *key*)?
    key = host[:port]/path, without the scheme, the ssh user, a default port, trailing slashes and ``.git``.
    ``https://GitHub.com:443/a/b.git/`` and ``http://github.com/a/b`` are both ``github.com/a/b``.
    Letter case of the path is kept; percent-encoding is normalised (``%7e`` is ``~``, ``%c3`` is ``%C3``).
    A folder ``x/.git`` is the repository ``x``, as it is to git.
What is fetched (``text``)?
    The same parts put together again, with ``.git`` where it was given: some servers need it, others refuse.
Local folders (operators only) have the key ``local:/folder``: no host ends in a colon, so nothing collides.

Refused rather than repaired is whatever two programs could read differently: ``.`` and ``..`` segments, empty
segments (``//``), encoded slashes, backslashes, queries, fragments, odd hosts (see ``host``). A segment ``-``
is refused because forges and our own API use it to separate a repository from its pages.
Keys are printable ASCII; nothing in them needs quoting on a terminal or in a log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from evermirror.errors import InvalidUrl, InvalidValue
from evermirror.model.address import AllowList, forbidden_reason
from evermirror.model.host import HOST_MAX_CHARS, as_address, canonical_host, is_local_name
from evermirror.model.repo import Host, RepoKey

URL_MAX_BYTES = 2048  # the usual limit of browsers and proxies; long enough for any forge
ALIAS_MAX_CHARS = 255  # what GitLab allows for a full path
PORT_MAX = 65535

DEFAULT_PORTS = {"https": 443, "http": 80, "ssh": 22}
LOCAL_SCHEME = "local"
LOCAL_HOST = Host("local:")

# The usual form, taken in one step: tested to give what the long way gives.
_PLAIN = re.compile(
    r"https://((?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63})((?:/[A-Za-z0-9_~][A-Za-z0-9._~-]*)+)",
    re.ASCII,
)
_PLAIN_LOOSE = re.compile(r"https://([a-z0-9.-]+)((?:/[A-Za-z0-9_~][A-Za-z0-9._~-]*)+)", re.ASCII)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://", re.ASCII)
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*::", re.ASCII)  # git would run git-remote-<name>
_SCP = re.compile(r"([^@/:\[\]]+)@(\[[^\]@]*\]|[^:/@\[\]]+):/?([^/].*)")
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_SSH_USER = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]{0,63}", re.ASCII)
_SSH_USER_WIDE = re.compile(r"[A-Za-z0-9._+=~][A-Za-z0-9._+=~-]{0,63}", re.ASCII)
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})", re.ASCII)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})", re.ASCII)
_TO_ESCAPE = re.compile(r"[^A-Za-z0-9._~!$&'()*+,;=:@%/-]", re.ASCII)
_TO_ESCAPE_LOCAL = re.compile(r"[^A-Za-z0-9._~/-]", re.ASCII)

_FORM = "Write it as https://host/path"
_NOTHING = AllowList()


@dataclass(frozen=True, slots=True)
class UrlRules:
    """What this caller may submit. Operators only: odd ssh user names (``userinfo``), folders (``local``)."""

    schemes: frozenset[str] = frozenset({"https"})
    allow: AllowList = _NOTHING
    userinfo: bool = False
    local: bool = False


@dataclass(frozen=True, slots=True)
class RepoUrl:
    """The canonical parts. ``port`` is None for the scheme's own; ``path`` starts with a slash."""

    scheme: str
    user: str | None  # ssh only
    host: str  # IPv6 without brackets; empty for a local path
    port: int | None
    path: str

    @property
    def host_key(self) -> Host:
        """What limits and weather are kept by: the host, with its port where that is not the default."""
        if self.scheme == LOCAL_SCHEME:
            return LOCAL_HOST
        host = f"[{self.host}]" if ":" in self.host else self.host
        return Host(host if self.port is None else f"{host}:{self.port}")

    @property
    def key(self) -> RepoKey:
        """The identity of the repository."""
        path = _fold(self.path)
        if self.scheme == LOCAL_SCHEME:
            path = _TO_ESCAPE_LOCAL.sub(_escape, path)
        return RepoKey(self.host_key + path)

    @property
    def text(self) -> str:
        """The spelling that is fetched."""
        if self.scheme == LOCAL_SCHEME:
            return self.path
        user = "" if self.user is None else f"{self.user}@"
        return f"{self.scheme}://{user}{self.host_key}{self.path}"


def parse_url(text: str, rules: UrlRules) -> RepoUrl:
    """Canonical parts of a URL, ``user@host:path`` or (``rules.local``) absolute path; raises InvalidUrl.

    ``parse_url(parse_url(x).text) == parse_url(x)``. No message repeats what may be a secret."""
    plain = _PLAIN.fullmatch(text) if len(text) <= URL_MAX_BYTES else None
    if plain is not None and "https" in rules.schemes:
        host, path = plain.groups()
        if len(host) <= HOST_MAX_CHARS and not is_local_name(host) and not path.endswith(".git.git"):
            return RepoUrl("https", None, host, None, path)
    return _parse(text, rules)


def host_in(text: str) -> Host:
    """The host of a URL that is in its canonical form already."""
    _, remote, rest = text.partition("://")
    return Host(rest.partition("/")[0].rpartition("@")[2]) if remote else LOCAL_HOST


def plain_key(text: str, rules: UrlRules, hosts: dict[str, Host | None]) -> tuple[RepoKey, Host] | None:
    """Key and host of a URL of the usual form, which is also the form that is fetched; None for all others.

    For lists of a million: the same as ``parse_url``, without its object. ``hosts`` remembers who was asked
    for; it belongs to one ``rules``."""
    plain = _PLAIN_LOOSE.fullmatch(text)
    if plain is None or len(text) > URL_MAX_BYTES:
        return None
    name, path = plain.groups()
    if name in hosts:
        host = hosts[name]
    else:
        usual = "https" in rules.schemes and len(name) <= HOST_MAX_CHARS and not is_local_name(name)
        host = hosts[name] = Host(name) if usual and _PLAIN.fullmatch(f"https://{name}/x") else None
    if host is None or path.endswith(".git.git"):
        return None
    return RepoKey(name + (path[:-4] if path.endswith(".git") else path)), host


def check_alias(text: str) -> str:
    """A project key that people choose, such as ``devops/core``; raises InvalidValue, returns it as it is."""
    if not text or len(text) > ALIAS_MAX_CHARS:
        _refuse_alias(f"is empty or longer than {ALIAS_MAX_CHARS} characters")
    if not text.isprintable() or " " in text:
        _refuse_alias("has control characters or spaces")
    if ".." in text or any(c in text for c in "\\?#%@"):
        _refuse_alias("has .. or one of \\ ? # % @")
    if any(part in ("", ".", "-") or part.startswith("-") for part in text.split("/")):
        _refuse_alias("has an empty part, or one that is . or starts with -")
    if text.endswith(".git"):
        _refuse_alias("ends in .git")
    return text


def _refuse_alias(why: str) -> NoReturn:
    raise InvalidValue(f"the project key {why}", hint="Write it like devops/core")


def _parse(text: str, rules: UrlRules) -> RepoUrl:
    """The long way, for everything that is not plain."""
    _check_characters(text)
    if _HELPER.match(text):
        raise InvalidUrl("git's transport helpers (name::address) are not allowed", hint=_FORM)
    if text.startswith("/"):
        return _local(text, rules)
    scheme = _SCHEME.match(text)
    if "?" in text or "#" in text:
        raise InvalidUrl("the URL has a query or a fragment", hint="Leave out everything from ? or # on")
    if scheme is not None:
        url = _remote(scheme[1].lower(), text[scheme.end() :], rules)
    elif scp := _SCP.fullmatch(text):
        user, host, path = scp.groups()
        # A percent sign is an ordinary character in this form.
        url = _remote("ssh", f"{user}@{host}/{path.replace('%', '%25')}", rules)
    else:
        raise InvalidUrl("this is not a URL", hint=_FORM)
    if len(url.text) > URL_MAX_BYTES:
        raise InvalidUrl(
            f"the URL is longer than {URL_MAX_BYTES} bytes once encoded", hint="Use a shorter one"
        )
    return url


def _check_characters(text: str) -> None:
    if not text:
        raise InvalidUrl("the URL is empty", hint=_FORM)
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidUrl("the URL is not valid Unicode text", hint=_FORM) from None
    if length > URL_MAX_BYTES:
        raise InvalidUrl(f"the URL is longer than {URL_MAX_BYTES} bytes", hint="Use a shorter one")
    if text.startswith("-"):
        raise InvalidUrl("the URL starts with -", hint=_FORM)
    if any(c.isspace() for c in text):
        raise InvalidUrl("the URL has white space", hint="Remove it, or write %20 for a space in the path")
    if not text.isprintable():
        raise InvalidUrl("the URL has a control or invisible character", hint="Type it anew")
    if "\\" in text:
        raise InvalidUrl("the URL has a backslash", hint="Write / instead")


def _remote(scheme: str, rest: str, rules: UrlRules) -> RepoUrl:
    _check_scheme(scheme, rules)
    authority, _, path = rest.partition("/")
    userinfo, at, hostport = authority.rpartition("@")
    user = _user(scheme, userinfo, rules) if at else None
    bracket = hostport.find("]")
    host, colon, port_text = hostport[bracket + 1 :].partition(":")
    host = canonical_host(hostport[: bracket + 1] + host)
    port = _port(scheme, port_text) if colon else None
    _check_reachable(host, port or DEFAULT_PORTS[scheme], rules.allow)
    return RepoUrl(scheme, user, host, port, _canonical_path("/" + path))


def _check_scheme(scheme: str, rules: UrlRules) -> None:
    if scheme not in DEFAULT_PORTS:
        known = ", ".join(f"{s}://" for s in DEFAULT_PORTS if s in rules.schemes)
        hint = (
            f"Use {known}"
            if scheme != "file"
            else f"Use {known}; an operator may name a local path without file://"
        )
        raise InvalidUrl(f"{scheme}:// is not a supported transport", hint=hint)
    if scheme not in rules.schemes:
        raise InvalidUrl(
            f"{scheme}:// is not allowed here",
            hint=f"Use another transport, or have the operator add {scheme} to upstreams.schemes",
        )


def _user(scheme: str, userinfo: str, rules: UrlRules) -> str:
    if scheme != "ssh" or ":" in userinfo:
        raise InvalidUrl(
            "the URL carries a user name or password",
            hint="Leave it out; secrets are configured as named credentials and referred to by name",
        )
    pattern = _SSH_USER_WIDE if rules.userinfo else _SSH_USER
    if not pattern.fullmatch(userinfo):
        raise InvalidUrl(
            "the ssh user name is not usable", hint="Use letters, digits, dot, hyphen and underscore"
        )
    return userinfo


def _port(scheme: str, text: str) -> int | None:
    if not _PORT.fullmatch(text) or int(text) > PORT_MAX:
        raise InvalidUrl(
            f"the port is not a number from 1 to {PORT_MAX}", hint=f"Leave it out for {DEFAULT_PORTS[scheme]}"
        )
    port = int(text)
    return None if port == DEFAULT_PORTS[scheme] else port


def _check_reachable(host: str, port: int, allow: AllowList) -> None:
    """Refuses early what the resolver would refuse at every poll; names are judged there."""
    if allow.allows_host(host, port):
        return
    if is_local_name(host):
        raise InvalidUrl(
            f"{host} is this machine itself", hint=f"The operator may add {host} to upstreams.allow"
        )
    reason = forbidden_reason(host) if as_address(host) is not None else None
    if reason is not None:
        raise InvalidUrl(
            f"the address {host} is internal ({reason})",
            hint=f"The operator may add {host} to upstreams.allow",
        )


def _local(text: str, rules: UrlRules) -> RepoUrl:
    if not rules.local:
        raise InvalidUrl("local paths are not allowed here", hint=_FORM)
    path = text.rstrip("/")
    _check_segments(path)
    return RepoUrl(LOCAL_SCHEME, None, "", None, path)


def _canonical_path(raw: str) -> str:
    if _BAD_ESCAPE.search(raw):
        raise InvalidUrl(
            "a % in the path is not followed by two hex digits", hint="Write %25 for a percent sign"
        )
    path = _ESCAPE.sub(_normal_escape, raw) if "%" in raw else raw
    path = _TO_ESCAPE.sub(_escape, path).rstrip("/")
    _check_segments(path)
    return path


def _check_segments(path: str) -> None:
    folded = _fold(path)
    if not folded:
        raise InvalidUrl("the URL has a host but no path", hint=_FORM)
    if folded.endswith(".git"):
        raise InvalidUrl("the path ends in .git twice", hint="Write .git once, or leave it out")
    for segment in (*path.split("/")[1:], folded.rpartition("/")[2]):
        if segment in (".", ".."):
            raise InvalidUrl("the path has a . or .. segment", hint="Write the path without it")
        if not segment:
            raise InvalidUrl("the path has an empty segment (//)", hint="Write single slashes")
        if segment == "-":
            raise InvalidUrl(
                "the path has a segment -, as pages of a forge have",
                hint="Use the address that git clone is given",
            )


def _fold(path: str) -> str:
    """The path for identity: ``/x``, ``/x.git`` and ``/x/.git`` are one."""
    return path[:-4].removesuffix("/") if path.endswith(".git") else path


def _normal_escape(match: re.Match[str]) -> str:
    byte = int(match[1], 16)
    if byte in _UNRESERVED:
        return chr(byte)
    if byte < 0x20 or byte == 0x7F:
        raise InvalidUrl("the path has an encoded control character", hint="Write the path without it")
    if byte in b"/\\":
        raise InvalidUrl(
            "the path has an encoded slash or backslash", hint="Write / between the parts of a path"
        )
    return f"%{byte:02X}"


def _escape(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())
