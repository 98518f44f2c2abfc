"""List files: one URL a line, ``#`` comments, ``key=value`` attributes after the URL.

    # kernels
    https://git.example/linux.git   priority=high interval=10m
    https://git.example/secret.git  private=true credential=corp target=https://gitlab.example/x.git

A line is taken whole or not at all: a misspelt ``private=`` must not publish a repository. What is not taken
is a ``Problem`` with file and line; the rest loads. A problem names the repo its line was about, where that
much could be read, so that a slip in a line does not remove what it used to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from evermirror.core.catalog.attributes import PLAIN, read_attributes
from evermirror.core.catalog.entry import BadLine, CatalogEntry, Parsed, Problem, shown, without_repeats
from evermirror.errors import InvalidUrl
from evermirror.model.repo import Host, RepoKey, RepoSpec
from evermirror.model.url import UrlRules, parse_url, plain_key

LINE_MAX_CHARS = 16_384  # a URL, an alias and half a dozen targets; longer is not a list file

BOM = b"\xef\xbb\xbf"
OTHER_ENCODINGS = (b"\xff\xfe", b"\xfe\xff")


def parse_list(data: bytes, name: str, rules: UrlRules) -> Parsed:
    """Entries and problems of one file, in its order; of two lines for one repo the first counts."""
    if data.startswith(OTHER_ENCODINGS):
        return Parsed.no_use(name, "the file is UTF-16: save it as UTF-8")
    entries: list[CatalogEntry] = []
    problems: list[Problem] = []
    hosts: dict[Host, Host] = {}
    usual: dict[str, Host | None] = {}
    for number, line in enumerate(_lines(data), 1):
        plain = plain_key(line, rules, usual)
        if plain is not None:  # nearly all lines of a large catalog
            entries.append(CatalogEntry(RepoSpec(plain[0], line, plain[1]), None, (), (), None, name, number))
            continue
        words = line.split(None, 1)
        if not words or words[0].startswith("#"):
            continue
        try:
            entries.append(_entry(words, name, number, rules, hosts))
        except BadLine as bad:
            problems.append(Problem(name, number, shown(line), bad.reason, bad.key))
    entries, repeats = without_repeats(entries)
    problems = sorted(problems + repeats, key=lambda problem: problem.line) if repeats else problems
    return Parsed.of(entries, problems)


def attributes_given(data: bytes, entries: Iterable[CatalogEntry]) -> list[dict[str, str]]:
    """What the lines of these entries say, as written: an entry does not tell what is given from defaults."""
    lines = _lines(data)
    rests = (lines[entry.line - 1].split(None, 1)[1:] for entry in entries)
    return [{name: value for text in rest for _, name, value in _words(text)} for rest in rests]


def line_of(entry: CatalogEntry) -> str:
    """A line that says the same again; what has its default is left out."""
    spec = entry.spec
    words: list[str] = [spec.url]
    if spec.priority is not PLAIN.priority:
        words.append(f"priority={spec.priority.value}")
    if spec.interval_s is not None:
        words.append(f"interval={spec.interval_s * 1000:.0f}ms")
    if entry.alias is not None:
        words.append(f"alias={entry.alias}")
    if spec.private:
        words.append("private=true")
    if spec.mode is not PLAIN.mode:
        words.append(f"mode={spec.mode.value}")
    if spec.credential is not None:
        words.append(f"credential={spec.credential}")
    words += [f"target={target.url}" for target in entry.targets]
    words += [f"target_credential={name}" for name in _target_credentials(entry)]
    if entry.pins:
        words.append(f"workers={','.join(entry.pins)}")
    words += [f"fallback={url}" for url in spec.fallbacks]
    if spec.fsck_allow and entry.fsck_reason is not None:
        words += [f"fsck_allow={','.join(spec.fsck_allow)}", f"fsck_reason={_word(entry.fsck_reason)}"]
    return " ".join(words)


def _word(text: str) -> str:
    """A line's values have no spaces."""
    return "_".join(text.split())


def _target_credentials(entry: CatalogEntry) -> list[str]:
    """One for all where it is the same. A line cannot say it of some targets alone: then of none."""
    names = [target.credential for target in entry.targets if target.credential is not None]
    if len(names) < len(entry.targets):
        return []
    return names[:1] if len(set(names)) == 1 else names


def _entry(
    words: list[str], name: str, number: int, rules: UrlRules, hosts: dict[Host, Host]
) -> CatalogEntry:
    if sum(map(len, words)) > LINE_MAX_CHARS:
        raise BadLine(f"the line is longer than {LINE_MAX_CHARS} characters")
    try:
        url = parse_url(words[0], rules)
    except InvalidUrl as error:
        raise BadLine(str(error)) from None
    attributes = PLAIN
    if len(words) > 1:
        attributes = read_attributes(_pairs(words[1], url.key), url.key, rules)
    return attributes.entry(url, hosts, name, number)


def _lines(data: bytes) -> list[str]:
    """Bytes that are not UTF-8 become lone surrogates: the line that has them is refused, others are read."""
    return data.removeprefix(BOM).decode("utf-8", "surrogateescape").split("\n")


def _pairs(text: str, key: RepoKey) -> Iterator[tuple[str, str]]:
    for word, name, value in _words(text):
        if not value:
            raise BadLine(f"{shown(word)!r} is not an attribute: write name=value", key)
        yield name, value


def _words(text: str) -> Iterator[tuple[str, str, str]]:
    """Each attribute as a word, its name and its value (empty where it has none), up to a comment."""
    for word in text.split():
        if word.startswith("#"):
            return
        name, _, value = word.partition("=")
        yield word, name, value
