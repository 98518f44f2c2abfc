"""List files: one URL a line, ``#`` comments, ``key=value`` attributes after the URL.

    # kernels
    https://git.example/linux.git   priority=high interval=10m
    https://git.example/secret.git  private=true credential=corp target=https://gitlab.example/x.git

A line is taken whole or not at all: a misspelt ``private=`` must not publish a repository. What is not taken
is a ``Problem`` with file and line; the rest loads. A problem names the repo its line was about, where that
much could be read, so that a slip in a line does not remove what it used to say (see ``diff``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from evermirror.errors import InvalidUrl, InvalidValue, UsageError
from evermirror.model.duration import parse_duration
from evermirror.model.repo import Host, Mode, Priority, RepoKey, RepoSpec, check_interval
from evermirror.model.url import UrlRules, check_alias, parse_url

LINE_MAX_CHARS = 16_384  # a URL, an alias and half a dozen targets; longer is not a list file
TEXT_SHOWN_CHARS = 200  # of a bad line: enough to find it
SECRET_SOUGHT_CHARS = 4_096  # of a bad line: covers long tokens, and bounds the search on hostile lines
PROBLEMS_PER_FILE_MAX = 1_000  # a file that is something else altogether; the rest is counted in one line
TARGETS_MAX = 16  # per repo

_BOM = b"\xef\xbb\xbf"
_OTHER_ENCODINGS = (b"\xff\xfe", b"\xfe\xff")
_SECRET = re.compile(r"(?<=://)\S*@|(?<!\S)[^\s/@:]+:[^\s/]*@")  # also where the scheme was forgotten
_CREDENTIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One repo of the catalog. Where it is written is no part of it: moving a line changes nothing."""

    spec: RepoSpec
    alias: str | None = None
    targets: tuple[str, ...] = ()  # as given; understood by pull mirroring
    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)

    @property
    def key(self) -> RepoKey:
        return self.spec.key


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was not taken. ``line`` is 0 where the file as a whole is meant."""

    file: str
    line: int
    text: str  # at most 200 characters, printable, without passwords
    reason: str
    key: RepoKey | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.reason}"


@dataclass(frozen=True, slots=True)
class _Attributes:
    priority: Priority = Priority.NORMAL
    interval_s: float | None = None
    alias: str | None = None
    private: bool = False
    mode: Mode = Mode.EXACT
    credential: str | None = None
    targets: tuple[str, ...] = ()


_DEFAULTS = _Attributes()


class _BadLine(Exception):
    """Ends the reading of one line."""

    def __init__(self, reason: str, key: RepoKey | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.key = key


def parse_list(data: bytes, name: str, rules: UrlRules) -> tuple[list[CatalogEntry], list[Problem]]:
    """Entries and problems of one file, in its order; of two lines for one repo the first counts."""
    if data.startswith(_OTHER_ENCODINGS):
        return [], [Problem(name, 0, "", "the file is UTF-16: save it as UTF-8")]
    entries: list[CatalogEntry] = []
    problems: list[Problem] = []
    hosts: dict[Host, Host] = {}  # one string for all repos of a host
    for number, line in enumerate(_lines(data), 1):
        words = line.split(None, 1)
        if not words or words[0].startswith("#"):
            continue
        try:
            entry = _entry(words, name, number, rules, hosts)
        except _BadLine as bad:
            problems.append(Problem(name, number, shown(line), bad.reason, bad.key))
        else:
            entries.append(entry)
    entries, repeats = without_repeats(entries)
    problems = sorted(problems + repeats, key=lambda problem: problem.line) if repeats else problems
    if len(problems) > PROBLEMS_PER_FILE_MAX:
        more = len(problems) - PROBLEMS_PER_FILE_MAX
        problems[PROBLEMS_PER_FILE_MAX:] = [Problem(name, 0, "", _more(more))]
    return entries, problems


def attributes_given(data: bytes, entries: Iterable[CatalogEntry]) -> list[dict[str, str]]:
    """What the lines of these entries say, as written: an entry does not tell what is given from defaults."""
    lines = _lines(data)
    rests = (lines[entry.line - 1].split(None, 1)[1:] for entry in entries)
    return [{name: value for text in rest for _, name, value in _words(text)} for rest in rests]


def without_repeats(entries: Iterable[CatalogEntry]) -> tuple[list[CatalogEntry], list[Problem]]:
    """Of entries for one repo, or with one alias, the first stays; the others are problems."""
    by_key: dict[RepoKey, CatalogEntry] = {}
    problems: list[Problem] = []
    for entry in entries:
        first = by_key.setdefault(entry.key, entry)
        if first is not entry:
            problems.append(_repeat(entry, f"repeats {first.file}:{first.line}"))
    aliased = [entry for entry in by_key.values() if entry.alias is not None]
    taken: dict[str, CatalogEntry] = {}
    for entry in aliased:
        alias = entry.alias or ""
        first = by_key.get(RepoKey(alias)) or taken.setdefault(alias, entry)
        if first is not entry:
            problems.append(_repeat(entry, f"its alias is that of {first.file}:{first.line}"))
            del by_key[entry.key]
    return list(by_key.values()), problems


def shown(text: str) -> str:
    """A bad line as it may be shown and logged: short, printable, without passwords."""
    text = _SECRET.sub("***@", text[:SECRET_SOUGHT_CHARS].strip())
    if len(text) > TEXT_SHOWN_CHARS:
        text = text[: TEXT_SHOWN_CHARS - 1] + "…"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _repeat(entry: CatalogEntry, reason: str) -> Problem:
    return Problem(entry.file, entry.line, shown(entry.spec.url), reason, entry.key)


def _entry(
    words: list[str], name: str, number: int, rules: UrlRules, hosts: dict[Host, Host]
) -> CatalogEntry:
    if sum(map(len, words)) > LINE_MAX_CHARS:
        raise _BadLine(f"the line is longer than {LINE_MAX_CHARS} characters")
    try:
        url = parse_url(words[0], rules)
    except InvalidUrl as error:
        raise _BadLine(str(error)) from None
    key = url.key
    rest = _attributes(words[1], key) if len(words) > 1 else _DEFAULTS
    host = url.host_key
    spec = RepoSpec(
        key,
        url.text,
        hosts.setdefault(host, host),
        rest.priority,
        rest.interval_s,
        rest.mode,
        rest.private,
        rest.credential,
    )
    return CatalogEntry(spec, rest.alias, rest.targets, name, number)


def _lines(data: bytes) -> list[str]:
    """Bytes that are not UTF-8 become lone surrogates: the line that has them is refused, others are read."""
    return data.removeprefix(_BOM).decode("utf-8", "surrogateescape").split("\n")


def _words(text: str) -> Iterator[tuple[str, str, str]]:
    """Each attribute as a word, its name and its value (empty where it has none), up to a comment."""
    for word in text.split():
        if word.startswith("#"):
            return
        name, _, value = word.partition("=")
        yield word, name, value


def _more(count: int) -> str:
    return "1 more line has a problem" if count == 1 else f"{count} more lines have problems"


def _attributes(text: str, key: RepoKey) -> _Attributes:
    found = _DEFAULTS
    given: set[str] = set()
    for word, name, value in _words(text):
        if not value:
            raise _BadLine(f"{shown(word)!r} is not an attribute: write name=value", key)
        if name not in _READERS:
            raise _BadLine(f"unknown attribute {shown(name)!r}: known are {', '.join(_READERS)}", key)
        if name in given and name not in _REPEATABLE:
            raise _BadLine(f"{name} is given twice", key)
        given.add(name)
        try:
            found = _READERS[name](found, value)
        except UsageError as error:
            raise _BadLine(f"{name}: {error}", key) from None
    return found


def _priority(so_far: _Attributes, text: str) -> _Attributes:
    return replace(so_far, priority=Priority(_one_of(text, [p.value for p in Priority])))


def _interval(so_far: _Attributes, text: str) -> _Attributes:
    return replace(so_far, interval_s=check_interval(parse_duration(text)))


def _alias(so_far: _Attributes, text: str) -> _Attributes:
    return replace(so_far, alias=check_alias(text))


def _private(so_far: _Attributes, text: str) -> _Attributes:
    return replace(so_far, private=_TRUTH[_one_of(text, list(_TRUTH))])


def _mode(so_far: _Attributes, text: str) -> _Attributes:
    return replace(so_far, mode=Mode(_one_of(text, [m.value for m in Mode])))


def _credential(so_far: _Attributes, text: str) -> _Attributes:
    if not _CREDENTIAL.fullmatch(text):
        raise InvalidValue(
            "is not the name of a credential", hint="Use letters, digits, dot, hyphen, underscore"
        )
    return replace(so_far, credential=text)


def _target(so_far: _Attributes, text: str) -> _Attributes:
    if len(so_far.targets) >= TARGETS_MAX:
        raise InvalidValue(f"more than {TARGETS_MAX} are given")
    if not text.isprintable():
        raise InvalidValue("has a control or invisible character")
    return replace(so_far, targets=(*so_far.targets, text))


def _one_of(text: str, choices: list[str]) -> str:
    if text not in choices:
        raise InvalidValue(f"{shown(text)!r} is not one of {', '.join(choices)}")
    return text


_READERS: Mapping[str, Callable[[_Attributes, str], _Attributes]] = {
    "priority": _priority,
    "interval": _interval,
    "alias": _alias,
    "private": _private,
    "mode": _mode,
    "credential": _credential,
    "target": _target,
}
_REPEATABLE = frozenset({"target"})
