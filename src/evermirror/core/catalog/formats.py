"""Which files of a folder or commit are the catalog's, what each is written in, and what it says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePosixPath

from evermirror.core.catalog.attributes import PLAIN, Attributes
from evermirror.core.catalog.entry import Parsed, Problem
from evermirror.core.catalog.listfile import parse_list
from evermirror.core.catalog.yamlfile import DEFAULTS_NAME, parse_defaults, parse_yaml
from evermirror.core.catalog.yamltree import BadYaml
from evermirror.model.url import UrlRules

FILE_MAX_BYTES = 64 * 2**20  # a million URLs in one file are about 60 MB
FILES_MAX = 1_000_000  # of one source: a million repos, one file each; in list files they are about 1,000

_PROSE = frozenset({".md", ".rst", ".html"})  # a catalog may explain itself
_PROSE_NAMES = frozenset({"README", "LICENSE", "COPYING", "NOTICE", "CODEOWNERS", "Makefile"})
_OTHER_FORMATS = frozenset({".json", ".toml"})
_YAML = frozenset({".yaml", ".yml"})
# The first line that says something; "key: value" and "- item" are YAML, a URL's colon has no space after it.
_SAYS = re.compile(rb"^[ \t]*(?!#|---[ \t\r]*$|%)([^ \t\r\n#][^\n]*)", re.MULTILINE)
_YAML_LINE = re.compile(rb"-(\s|$)|[A-Za-z_][A-Za-z0-9_.-]*[ \t]*:(\s|$)")


class Format(Enum):
    """What a file is written in."""

    LIST = "list"
    YAML = "YAML"
    OTHER = "other"


def is_catalog_path(path: str) -> bool:
    """Whether a file found in a folder may be the catalog's: not hidden, and not prose."""
    pure = PurePosixPath(path)
    if any(part.startswith(".") for part in pure.parts):
        return False
    return pure.name not in _PROSE_NAMES and pure.suffix not in _PROSE


def shown_name(label: str, path: str) -> str:
    """A file as it is named in messages."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in label + path)


def is_defaults(path: str) -> bool:
    return path == DEFAULTS_NAME or path.endswith(f"/{DEFAULTS_NAME}")


def format_of(path: str, data: bytes) -> Format:
    """By the name where it tells, else by the first line that says something."""
    suffix = PurePosixPath(path).suffix
    if suffix in _YAML:
        return Format.YAML
    if suffix in _OTHER_FORMATS:
        return Format.OTHER
    says = _SAYS.search(data.removeprefix(b"\xef\xbb\xbf"))
    return Format.YAML if says is not None and _YAML_LINE.match(says[1]) else Format.LIST


@dataclass(frozen=True, slots=True)
class Defaults:
    """What DEFAULTS files say, by folder; None where one cannot be understood, and so nothing below it."""

    folders: Mapping[str, Attributes | None] = field(default_factory=dict)
    problems: Mapping[str, Problem] = field(default_factory=dict)  # by path

    @classmethod
    def of(cls, files: Iterable[tuple[str, bytes]], label: str, rules: UrlRules) -> Defaults:
        """``files`` are all DEFAULTS files of a source, by path."""
        folders: dict[str, Attributes | None] = {}
        problems: dict[str, Problem] = {}
        for path, data in sorted(files, key=lambda file: file[0].count("/")):  # from the top down
            folder = path.rpartition("/")[0]
            above = cls(folders).above(path)
            try:
                folders[folder] = None if above is None else parse_defaults(data, rules, above)
            except BadYaml as bad:
                folders[folder] = None
                problems[path] = Problem(shown_name(label, path), bad.line, "", bad.reason)
        return cls(folders, problems)

    def above(self, path: str) -> Attributes | None:
        """What the file at ``path`` inherits."""
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            if folder in self.folders:
                return self.folders[folder]
        return PLAIN


def parse_file(path: str, data: bytes, label: str, rules: UrlRules, defaults: Defaults) -> Parsed:
    """What the file at ``path`` says; ``label`` stands before its name in messages."""
    name = shown_name(label, path)
    if is_defaults(path):
        wrong = defaults.problems.get(path)
        return Parsed() if wrong is None else Parsed(problems=(wrong,), broken=True)
    match format_of(path, data):
        case Format.LIST:
            return parse_list(data, name, rules)
        case Format.YAML:
            inherited = defaults.above(path)
            if inherited is None:
                return Parsed.no_use(name, "the DEFAULTS that it inherits cannot be understood")
            return parse_yaml(data, name, rules, inherited)
        case Format.OTHER:
            suffix = PurePosixPath(path).suffix
            return Parsed.no_use(name, f"not a catalog file: {suffix} files are not read", broken=False)
