"""The rules of the house as functions from text to complaints, so that each can be shown to fail."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

# What core/ and model/ may import: a list of what is pure, so that a module nobody thought of is refused too.
_PURE = """
    __future__ abc array base64 binascii bisect collections contextlib copy cronsim dataclasses datetime
    decimal difflib enum fractions functools hashlib heapq hmac ipaddress itertools json math numbers numpy
    operator re statistics string struct textwrap types typing unicodedata urllib.parse xxhash yaml zlib
    zoneinfo
    evermirror.core evermirror.model evermirror.errors
"""
PURE_MODULES = frozenset(_PURE.split())
# Names that are pure in modules that are not.
PURE_NAMES = frozenset(
    {
        ("encodings", "idna"),
        ("fnmatch", "fnmatchcase"),  # `fnmatch` itself differs between systems
        ("pathlib", "PurePath"),
        ("pathlib", "PurePosixPath"),
    }
)
IMPURE_CALLS = frozenset({"open", "input", "print", "exec", "eval", "__import__", "breakpoint", "hash"})
IMPURE_ATTRIBUTES = frozenset(
    {
        ("datetime", "now"),
        ("datetime", "utcnow"),
        ("datetime", "today"),
        ("date", "today"),
        ("numpy", "random"),
        ("np", "random"),
        ("numpy", "load"),
        ("np", "load"),
    }
)
PROCESS_MODULES = frozenset({"subprocess", "multiprocessing", "pty", "concurrent.futures.process"})
PROCESS_ATTRIBUTES = re.compile(
    r"^(create_subprocess_(exec|shell)|subprocess_(exec|shell)|fork|forkpty|system|popen|startfile|posix_spawnp?"
    r"|(exec|spawn)(l|le|lp|lpe|v|ve|vp|vpe)|ProcessPoolExecutor)$"
)


def impurities(source: str) -> Iterator[str]:
    """Whatever a pure module must not have: clock, chance, I/O, waiting, what differs between runs."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                bad = [a.name for a in names if not _is_pure(a.name)]
                yield from (f"line {node.lineno}: import {name}" for name in bad)
            case ast.ImportFrom(module=module, names=names):
                pure_names = all((module, a.name) in PURE_NAMES for a in names)
                if not (_is_pure(module or "") or pure_names):
                    yield f"line {node.lineno}: from {module} import {', '.join(a.name for a in names)}"
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                yield f"line {node.lineno}: {name}()"
            case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=attr):
                if (owner, attr) in IMPURE_ATTRIBUTES:
                    yield f"line {node.lineno}: {owner}.{attr}"
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                yield f"line {node.lineno}: async"
            case _:
                continue


def _is_pure(module: str) -> bool:
    parts = module.split(".")
    return any(".".join(parts[:n]) in PURE_MODULES for n in range(1, len(parts) + 1))


def process_starts(source: str) -> Iterator[str]:
    """Every way by which a module could start a process."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                bad = [a.name for a in names if a.name in PROCESS_MODULES]
                yield from (f"line {node.lineno}: import {name}" for name in bad)
            case ast.ImportFrom(module=module, names=names):
                if module in PROCESS_MODULES or any(PROCESS_ATTRIBUTES.match(a.name) for a in names):
                    yield f"line {node.lineno}: from {module} import {', '.join(a.name for a in names)}"
            case ast.Attribute(attr=attr) if PROCESS_ATTRIBUTES.match(attr):
                yield f"line {node.lineno}: .{attr}"
            case _:
                continue


_OPEN_END = re.compile(
    r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"]) + r")\b(?!\(#\d+\))"
)


def open_ends(text: str) -> Iterator[str]:
    """Notes to do something later that name no issue, as in ``…(#12)``."""
    for number, line in enumerate(text.splitlines(), 1):
        if _OPEN_END.search(line):
            yield f"line {number}: {line.strip()}"


_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]\n]*\]\(\s*<?([^)\s>]+)>?[^)\n]*\)")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)


def anchors(markdown: str) -> set[str]:
    """The anchors that a forge gives to the headings."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", markdown)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.replace("`", "").lower()).replace(" ", "-")
        name, n = slug, 0
        while name in found:
            n += 1
            name = f"{slug}-{n}"
        found.add(name)
    return found


def broken_links(page: Path, root: Path) -> Iterator[str]:
    """Links of a Markdown page that lead to no file below ``root``, or to no heading of it."""
    text = page.read_text("utf-8")
    for target in _LINK.findall(_FENCE.sub("", text)):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue  # another site: nothing that can be checked here
        path, _, anchor = target.partition("#")
        file = (root / path.lstrip("/") if path.startswith("/") else page.parent / path) if path else page
        if not file.exists():
            yield f"{page.name}: {target} (no such file)"
        elif anchor and file.suffix == ".md" and anchor.lower() not in anchors(file.read_text("utf-8")):
            yield f"{page.name}: {target} (no such heading)"


def shown_commands(markdown: str) -> list[str]:
    """The command lines in a page's code blocks, without prompts, comments and output."""
    lines: list[str] = []
    for block in re.findall(r"^```(?:sh|bash|shell|console)\n(.*?)^```", markdown, re.MULTILINE | re.DOTALL):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            command = re.sub(r"\s+#\s.*$", "", line.strip().removeprefix("$ "))
            if command and not command.startswith("#"):
                lines.append(command)
    return lines


def make_targets(makefile: str) -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))


def unknown_targets(markdown: str, makefile: str) -> Iterator[str]:
    """Targets that a page tells the reader to make and that do not exist."""
    known = make_targets(makefile)
    for command in shown_commands(markdown):
        for part in re.split(r"\s*(?:&&|;|\|)\s*", command):
            words = re.sub(r'"[^"]*"|\'[^\']*\'', "", part).split()
            if words[:1] == ["make"]:
                wanted = [w for w in words[1:] if "=" not in w and not w.startswith("-")]
                yield from (f"make {w}" for w in wanted if w not in known)


def sources(folder: Path) -> Mapping[str, str]:
    """Every Python file below ``folder``: its path relative to it, its text."""
    return {p.relative_to(folder).as_posix(): p.read_text("utf-8") for p in sorted(folder.rglob("*.py"))}


def unsupervised_loops(source: str) -> Iterator[str]:
    """Tasks started with a bare ``create_task`` or ``ensure_future`` whose function, in the same file, loops
    for ever: nobody would notice that one died. Tasks of a TaskGroup raise in their owner, which is fine."""
    tree = ast.parse(source)
    endless = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef)
        and any(_is_endless(inner) for inner in ast.walk(node) if isinstance(inner, ast.While))
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and _starts_task(node.func) and node.args):
            continue
        work = node.args[0]
        name = _called(work.func) if isinstance(work, ast.Call) else ""
        if name in endless or name in ("run", "keep"):
            yield f"starts {name}() in a task that nobody supervises"


def _is_endless(loop: ast.While) -> bool:
    return isinstance(loop.test, ast.Constant) and bool(loop.test.value)


def _starts_task(called: ast.expr) -> bool:
    owner = (
        called.value.id if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) else ""
    )
    return _called(called) in ("create_task", "ensure_future") and owner in ("asyncio", "loop", "")


def _called(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
