"""The list file that evermirror keeps itself in a writable source: what the API added, one line a repo.

Lines that people wrote into it stay; so do comments. A line of ours is replaced when what the API says of its
repo changed, and goes when the API removed it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from evermirror.core.catalog.listfile import OTHER_ENCODINGS, parse_list
from evermirror.model.address import AllowList
from evermirror.model.repo import RepoKey
from evermirror.model.url import DEFAULT_PORTS, UrlRules

OWN_FILE = "evermirror/api.txt"
HEAD = "# Added through the API of evermirror, which keeps this file.\n"

# What is in the file already was accepted once: only the form is read here.
_EVERYWHERE = AllowList(suffixes=(("", None),), networks=AllowList.parse(["0.0.0.0/0", "::/0"]).networks)
_RULES = UrlRules(frozenset(DEFAULT_PORTS), _EVERYWHERE, userinfo=True)


def keys_in(data: bytes) -> dict[RepoKey, int]:
    """The repos of the file, each with its line, from 1."""
    return {entry.key: entry.line for entry in parse_list(_as_utf8(data), OWN_FILE, _RULES).entries}


def merged(data: bytes, wanted: Mapping[RepoKey, str], dropped: Collection[RepoKey]) -> bytes:
    """``data`` with one line for each of ``wanted`` and none for ``dropped``; the rest stays as it is."""
    data = _as_utf8(data)
    text = data.decode("utf-8", "surrogateescape") if data else HEAD
    lines = text.removesuffix("\n").split("\n")
    here = keys_in(data)
    for key, number in here.items():
        if key in wanted and key not in dropped:
            lines[number - 1] = wanted[key]
    gone = {number - 1 for key, number in here.items() if key in dropped}
    lines = [line for number, line in enumerate(lines) if number not in gone]
    lines += [line for key, line in sorted(wanted.items()) if key not in here and key not in dropped]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def _as_utf8(data: bytes) -> bytes:
    """An editor saved it otherwise: nothing in it would be understood, and each line added once more."""
    return data.decode("utf-16", "replace").encode() if data.startswith(OTHER_ENCODINGS) else data
