"""Catalog list files from disk: single files, or folders of them. Git repositories are not read yet.

What cannot be read at all (missing, no permission, an I/O error) ends the reading with an error, so that the
caller keeps the last good catalog; what can be read but not understood is a problem, and the rest loads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from evermirror.core.catalog.listfile import CatalogEntry, Problem, parse_list, without_repeats
from evermirror.errors import UsageError
from evermirror.model.source import GIT_CATALOG
from evermirror.model.url import UrlRules

FILE_MAX_BYTES = 64 * 2**20  # a million URLs in one file are about 60 MB
FILES_MAX = 100_000  # in all folders together; a catalog of a million has about 1,000

_PROSE = frozenset({".md", ".rst", ".html"})  # a catalog may explain itself
_PROSE_NAMES = frozenset({"README", "LICENSE", "COPYING", "NOTICE", "CODEOWNERS", "Makefile"})
_OTHER_FORMATS = frozenset({".yaml", ".yml", ".json", ".toml"})


def read_list_files(paths: Sequence[Path], rules: UrlRules) -> tuple[list[CatalogEntry], list[Problem]]:
    """Entries and problems of all files; folders are read recursively, by name, without hidden names.

    Raises UsageError for what is missing or cannot be read, and for git repositories."""
    entries: list[CatalogEntry] = []
    problems: list[Problem] = []
    files = 0
    for path in paths:
        if is_git_repository(path):
            raise UsageError(f"catalog {path} is a git repository: {GIT_CATALOG}")
        for file in _files(path):
            files += 1
            if files > FILES_MAX:
                raise UsageError(
                    f"catalog {path} has more than {FILES_MAX} files", hint="Is this the right folder?"
                )
            some, wrong = _read(file, rules, named=file == path)
            entries += some
            problems += wrong
    if files > 1:
        entries, repeats = without_repeats(entries)
        problems += repeats
    return entries, problems


def is_git_repository(path: Path) -> bool:
    """Bare, or a work tree with its ``.git``; what lies inside one may be named all the same."""
    bare = (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()
    return bare or (path / ".git").exists()


def _files(path: Path) -> Iterator[Path]:
    """The file itself, or what lies in the folder; never through a symbolic link inside it."""
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path, onerror=_fail):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and name not in _PROSE_NAMES and Path(name).suffix not in _PROSE:
                yield Path(folder, name)


def _read(path: Path, rules: UrlRules, *, named: bool) -> tuple[list[CatalogEntry], list[Problem]]:
    """One file. ``named``: it was given as such, so it may be a link and have any name."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(path))
    if not named and path.suffix in _OTHER_FORMATS:
        return [], [Problem(shown, 0, "", f"not a list file: {path.suffix} files are not read")]
    try:
        # Non-blocking, so that a pipe in the folder cannot hold us up before it is recognised as one.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if named else os.O_NOFOLLOW))
    except OSError as error:
        if not named and path.is_symlink():
            return [], [Problem(shown, 0, "", "a symbolic link: not followed")]
        raise _unreadable(path, error) from None
    with open(handle, "rb") as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            return [], [Problem(shown, 0, "", "not a regular file")]
        if info.st_size > FILE_MAX_BYTES:
            return [], [Problem(shown, 0, "", f"the file is over {FILE_MAX_BYTES // 2**20} MB: split it")]
        try:
            data = file.read(FILE_MAX_BYTES)
        except OSError as error:
            raise _unreadable(path, error) from None
    return parse_list(data, shown, rules)


def _fail(error: OSError) -> None:
    raise _unreadable(Path(error.filename or "?"), error) from None


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"catalog {path} cannot be read: {error.strerror or error}", hint="Check the path and its permissions"
    )
