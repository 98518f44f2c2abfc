"""A list file as `add --file` reads it: the catalog's format, and the server decides what it lets in."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from evermirror.errors import UsageError

LIST_BYTES_MAX = 200_000_000  # a million lines are about 60 MB

# What `POST /api/git_urls` takes. Targets are a project's: a catalog's line, or `pull add`, gives it some.
_SENT = ("priority", "interval", "alias", "private", "mode", "credential", "fsck_allow", "fsck_reason")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One repository that a command is about; ``name`` tells it in messages.

    With a ``refusal`` it is not asked for: its line could not be understood."""

    name: str
    url: str
    info: dict[str, object] = field(default_factory=dict)  # additional_info
    refusal: str = ""


def read_list(file: Path) -> list[Wanted]:
    """Every line that says something, in order; raises UsageError where the file cannot be read."""
    from evermirror.core.catalog.listfile import attributes_given, parse_list
    from evermirror.model.address import AllowList
    from evermirror.model.url import DEFAULT_PORTS, UrlRules

    # Which transports and hosts are allowed is the server's to say: only the form is checked here.
    everywhere = AllowList.parse(["0.0.0.0/0", "::/0"])
    everywhere = AllowList(suffixes=(("", None),), networks=everywhere.networks)
    rules = UrlRules(frozenset(DEFAULT_PORTS), everywhere, userinfo=True)
    data = _content(file)
    parsed = parse_list(data, str(file), rules)
    entries, problems = parsed.entries, parsed.problems
    found: list[tuple[int, Wanted]] = []
    for entry, given in zip(entries, attributes_given(data, entries), strict=True):
        info: dict[str, object] = {name: given[name] for name in _SENT if name in given}
        if "private" in info:
            info["private"] = entry.spec.private
        if "fsck_allow" in info:
            info["fsck_allow"] = list(entry.spec.fsck_allow)
        found.append((entry.line, Wanted(f"{file}:{entry.line}: {entry.spec.url}", entry.spec.url, info)))
    for problem in problems:
        place = f"{file}:{problem.line}: {problem.text}" if problem.line else str(file)
        found.append((problem.line, Wanted(place, problem.text, refusal=problem.reason)))
    return [one for _, one in sorted(found, key=lambda item: item[0])]


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            data = opened.read(LIST_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"list {file} cannot be read: {error.strerror}") from error
    if len(data) > LIST_BYTES_MAX:
        raise UsageError(f"list {file} is larger than {LIST_BYTES_MAX} bytes")
    return data
