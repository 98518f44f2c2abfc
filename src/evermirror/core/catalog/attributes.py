"""What may be said of a repo beside its URL, in list files and in YAML alike: names, values, bounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from evermirror.core.catalog.entry import BadLine, CatalogEntry, shown
from evermirror.core.fsck import check_allowed, check_reason
from evermirror.errors import InvalidValue, UsageError
from evermirror.model.duration import parse_duration
from evermirror.model.pull import TARGETS_MAX, TargetSpec
from evermirror.model.repo import Host, Mode, Priority, RepoKey, RepoSpec, check_interval
from evermirror.model.url import RepoUrl, UrlRules, check_alias, parse_url

FALLBACKS_MAX = 16  # per repo
PINS_MAX = 16  # per repo; as many as a repo may have holders

_CREDENTIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_WORKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class Attributes:
    """As given, or the defaults."""

    priority: Priority = Priority.NORMAL
    interval_s: float | None = None
    alias: str | None = None
    private: bool = False
    mode: Mode = Mode.EXACT
    credential: str | None = None
    targets: tuple[str, ...] = ()
    target_credentials: tuple[str, ...] = ()  # none, one for all targets, or one for each
    pins: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    fsck_allow: tuple[str, ...] = ()
    fsck_reason: str | None = None

    def entry(self, url: RepoUrl, hosts: dict[Host, Host], file: str, line: int) -> CatalogEntry:
        """The repo at ``url``. ``hosts`` gives one string to all repos of a host."""
        host = url.host_key
        spec = RepoSpec(
            url.key,
            url.text,
            hosts.setdefault(host, host),
            self.priority,
            self.interval_s,
            self.mode,
            self.private,
            self.credential,
            self.fallbacks,
            fsck_allow=self.fsck_allow,
        )
        return CatalogEntry(spec, self.alias, self._targets(), self.pins, self.fsck_reason, file, line)

    def _targets(self) -> tuple[TargetSpec, ...]:
        names = self.target_credentials
        if len(names) <= 1:
            return tuple(TargetSpec(url, *names) for url in self.targets)
        return tuple(TargetSpec(url, name) for url, name in zip(self.targets, names, strict=True))


PLAIN = Attributes()


def read_attributes(
    pairs: Iterable[tuple[str, str]], key: RepoKey | None, rules: UrlRules, so_far: Attributes = PLAIN
) -> Attributes:
    """``so_far`` with each pair taken over; raises BadLine for what is unknown, given twice or out of
    bounds."""
    given: set[str] = set()
    for name, value in pairs:
        if name not in READERS:
            raise BadLine(f"unknown attribute {shown(name)!r}: known are {', '.join(READERS)}", key)
        if name in given and name not in REPEATABLE:
            raise BadLine(f"{name} is given twice", key)
        if name not in given and name in REPEATABLE:
            so_far = _emptied(so_far, name)
        given.add(name)
        try:
            so_far = READERS[name](so_far, value, rules)
        except UsageError as error:
            raise BadLine(f"{name}: {error}", key) from None
    if len(so_far.target_credentials) not in (0, 1, len(so_far.targets)):
        raise BadLine("target_credential: give one for all targets, or one for each, in their order", key)
    if so_far.fsck_allow and so_far.fsck_reason is None:
        raise BadLine("fsck_allow needs fsck_reason: say why these objects are known to be harmless", key)
    return so_far


def _emptied(so_far: Attributes, name: str) -> Attributes:
    """What is said here replaces what was inherited, and does not add to it."""
    match name:
        case "target":
            return replace(so_far, targets=())
        case "target_credential":
            return replace(so_far, target_credentials=())
        case "fallback":
            return replace(so_far, fallbacks=())
        case "fsck_allow":
            return replace(so_far, fsck_allow=())
        case _:
            return replace(so_far, pins=())


def _priority(so_far: Attributes, text: str, rules: UrlRules) -> Attributes:
    return replace(so_far, priority=Priority(_one_of(text, [p.value for p in Priority])))


def _interval(so_far: Attributes, text: str, rules: UrlRules) -> Attributes:
    return replace(so_far, interval_s=check_interval(parse_duration(text)))


def _alias(so_far: Attributes, text: str, rules: UrlRules) -> Attributes:
    return replace(so_far, alias=check_alias(text))


def _private(so_far: Attributes, text: str, rules: UrlRules) -> Attributes:
    return replace(so_far, private=_TRUTH[_one_of(text, list(_TRUTH))])


def _mode(so_far: Attributes, text: str, rules: UrlRules) -> Attributes:
    return replace(so_far, mode=Mode(_one_of(text, [m.value for m in Mode])))


def _credential(so_far: Attributes, text: str, rules: UrlRules) -> Attributes:
    return replace(so_far, credential=_credential_name(text))


def _target(so_far: Attributes, text: str, rules: UrlRules) -> Attributes:
    _check_count(len(so_far.targets), TARGETS_MAX)
    if not text.isprintable():
        raise InvalidValue("has a control or invisible character")
    url = parse_url(text, rules).text
    if url in so_far.targets:
        raise InvalidValue("the same is given twice")
    return replace(so_far, targets=(*so_far.targets, url))


def _target_credential(so_far: Attributes, text: str, rules: UrlRules) -> Attributes:
    _check_count(len(so_far.target_credentials), TARGETS_MAX)
    return replace(so_far, target_credentials=(*so_far.target_credentials, _credential_name(text)))


def _workers(so_far: Attributes, text: str, rules: UrlRules) -> Attributes:
    for name in text.split(","):
        _check_count(len(so_far.pins), PINS_MAX)
        if not _WORKER.fullmatch(name):
            raise InvalidValue(
                f"{shown(name)!r} is not the name or number of a worker", hint="Separate several by commas"
            )
        if name not in so_far.pins:
            so_far = replace(so_far, pins=(*so_far.pins, name))
    return so_far


def _fallback(so_far: Attributes, text: str, rules: UrlRules) -> Attributes:
    _check_count(len(so_far.fallbacks), FALLBACKS_MAX)
    return replace(so_far, fallbacks=(*so_far.fallbacks, parse_url(text, rules).text))


def _fsck_allow(so_far: Attributes, text: str, rules: UrlRules) -> Attributes:
    return replace(so_far, fsck_allow=check_allowed([*so_far.fsck_allow, *text.split(",")]))


def _fsck_reason(so_far: Attributes, text: str, rules: UrlRules) -> Attributes:
    return replace(so_far, fsck_reason=check_reason(text))


def _credential_name(text: str) -> str:
    if not _CREDENTIAL.fullmatch(text):
        raise InvalidValue(
            "is not the name of a credential", hint="Use letters, digits, dot, hyphen, underscore"
        )
    return text


def _check_count(count: int, most: int) -> None:
    if count >= most:
        raise InvalidValue(f"more than {most} are given")


def _one_of(text: str, choices: list[str]) -> str:
    if text not in choices:
        raise InvalidValue(f"{shown(text)!r} is not one of {', '.join(choices)}")
    return text


READERS: Mapping[str, Callable[[Attributes, str, UrlRules], Attributes]] = {
    "priority": _priority,
    "interval": _interval,
    "alias": _alias,
    "private": _private,
    "mode": _mode,
    "credential": _credential,
    "target": _target,
    "target_credential": _target_credential,
    "workers": _workers,
    "fallback": _fallback,
    "fsck_allow": _fsck_allow,
    "fsck_reason": _fsck_reason,
}
REPEATABLE = frozenset({"target", "target_credential", "workers", "fallback", "fsck_allow"})
