"""The structure of the code: the map names what exists, and packages and modules get no more tangled.

The layers themselves are import-linter's, in pyproject.toml, and tests/test_house.py runs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "evermirror"
MAP = (ROOT / "ARCHITECTURE.md").read_text("utf-8")

# Ratchets: lower a number when the code allows it, never raise it.
PAIRS_MAX = 24  # packages that import each other
LONG_MODULES_MAX = 8
LONG_LINES = 450

_TOP = {p.name for folder in (ROOT, PACKAGE) for p in folder.iterdir() if p.is_dir() and p.name[0] != "."}
_TOP |= {"faces", "nodes", "sim"}  # also once they are gone
_PATH = re.compile(rf"(?<![\w/.-])(?:(?:{'|'.join(sorted(_TOP))})/[\w./*-]*[\w*]|\w+/[\w/]+\.py\b)")
_FILE = re.compile(r"`(\w+\.(?:py|proto|toml|json|yml|service))`")
_BRANCH = re.compile(r"^( *)([\w.-]+/?)(?= |$)")
_INDENT = 2


def tree_paths(text: str) -> Iterator[str]:
    """The paths of the first code block that starts at src/: one a line, below what is indented less."""
    block = text.partition("```\nsrc/")[2].partition("```")[0]
    above: list[str] = []
    for line in f"src/{block}".splitlines():
        if line.startswith("src/"):
            above = [line.rstrip("/")]
        elif (found := _BRANCH.match(line)) and (depth := len(found[1]) // _INDENT) <= len(above):
            above = [*above[:depth], found[2].rstrip("/")]
            yield "/".join(above)


def exists(path: str) -> bool:
    """Whether a path of the map is a file or folder of the project or of the package, with or without .py."""
    spellings = (path, f"{path}.py", re.sub(r"\.\w+$", ".py", path))  # the last: an attribute of a module
    return any(any(folder.glob(s)) for folder in (ROOT, PACKAGE) for s in spellings)


def missing(text: str) -> list[str]:
    """Paths and file names in ``text`` that nothing in the project has."""
    named = {*_PATH.findall(text), *tree_paths(text)}
    files = {name for name in _FILE.findall(text) if not any(ROOT.glob(f"[!.]*/**/{name}"))}
    return sorted({path for path in named if not exists(path)} | files)


def pairs_that_import_each_other(imports: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    found = {(a, b) for a, b in imports if a != b}
    return {(a, b) for a, b in found if a < b and (b, a) in found}


def package_imports() -> Iterator[tuple[str, str]]:
    """Which package imports from which; a module belongs to the package that it lies in."""
    graph = grimp.build_graph("evermirror", cache_dir=None)

    def package(module: str) -> str:
        is_package = (ROOT / "src" / Path(*module.split("."))).is_dir()
        return module if is_package else module.rpartition(".")[0]

    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            yield package(module), package(imported)


def test_everything_that_the_map_names_exists():
    assert "src/evermirror/core/schedule" in set(tree_paths(MAP)), "the tree is not read any more"
    assert missing(MAP) == []


@pytest.mark.parametrize(
    "fault",
    [
        "see core/schedule/nothing.py",
        "see nothing/here.py",
        "see `nodes/nothing`",
        "see `nothing_here.py`",
        "see faces/api/nothing_*",
        "```\nsrc/evermirror/\n  core/    pure\n    nothing/   a folder\n```",
    ],
)
def test_a_path_that_does_not_exist_is_noticed(fault):
    assert missing(fault) != []


def test_no_more_packages_import_each_other():
    pairs = pairs_that_import_each_other(package_imports())
    assert len(pairs) <= PAIRS_MAX, "\n".join(f"{a} <-> {b}" for a, b in sorted(pairs))


def test_packages_that_import_each_other_are_noticed():
    assert pairs_that_import_each_other([("a", "b"), ("b", "a"), ("a", "c"), ("c", "c")]) == {("a", "b")}


def test_no_more_modules_are_long():
    modules = (p for p in PACKAGE.rglob("*.py") if not {"generated", "migrations"} & set(p.parts))
    lines = {p: p.read_text("utf-8").count("\n") for p in modules}
    long = [f"{p.relative_to(PACKAGE)}: {n} lines" for p, n in sorted(lines.items()) if n > LONG_LINES]
    assert len(long) <= LONG_MODULES_MAX, "\n".join(long)
