"""Globs of names, many at once: taken apart when they are given, and cheap to ask.

``*`` anything, ``?`` one character, ``[ab]``, ``[!ab]`` one of these, or none of them. What stands between
stars is looked for one after the other, and a star never gives back what it took (in a pattern: an atomic
group): the time is bounded by the length of the name times that of the globs, whatever they are. Most globs
are names or beginnings of names, and need no pattern, which would take longer to make than to ask.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_SPECIAL = frozenset("*?[")
_ONE_CHARACTER = frozenset("?[")


def matching(globs: Sequence[str]) -> Callable[[str], bool]:
    """Asked of a name, whether one of the globs fits it; where there are none, anything does."""
    if not globs:
        return lambda name: True
    names = frozenset(glob for glob in globs if _SPECIAL.isdisjoint(glob))
    begins = frozenset(glob for glob in globs if glob[-1:] == "*" and _SPECIAL.isdisjoint(glob[:-1]))
    prefixes = tuple(glob[:-1] for glob in begins)
    rest = [_fitting(glob) for glob in dict.fromkeys(globs) if glob not in names | begins]

    def fits(name: str) -> bool:
        return name in names or name.startswith(prefixes) or any(one(name) for one in rest)

    return fits


def _fitting(glob: str) -> Callable[[str], bool]:
    if not _ONE_CHARACTER.isdisjoint(glob):
        pattern = re.compile(_pattern(glob), re.DOTALL)
        return lambda name: pattern.fullmatch(name) is not None
    first, *between, last = glob.split("*")

    def fits(name: str) -> bool:
        if not (name.startswith(first) and name.endswith(last)):
            return False
        place, end = len(first), len(name) - len(last)
        for piece in between:
            if (found := name.find(piece, place, end)) < 0:
                return False
            place = found + len(piece)
        return place <= end

    return fits


def _pattern(glob: str) -> str:
    first, *others = _pieces(glob)
    if not others:
        return first
    *between, last = others
    return first + "".join(f"(?>.*?{piece})" for piece in between if piece) + f".*{last}"


def _pieces(glob: str) -> list[str]:
    pieces, place = [""], 0
    while place < len(glob):
        char = glob[place]
        place += 1
        if char == "*":
            pieces.append("")
        elif char == "?":
            pieces[-1] += "."
        elif (
            char == "[" and (end := glob.find("]", place + (2 if glob[place : place + 1] == "!" else 1))) > 0
        ):
            pieces[-1] += _one_of(glob[place:end])
            place = end + 1
        else:
            pieces[-1] += re.escape(char)
    return pieces


def _one_of(chosen: str) -> str:
    negated = chosen.startswith("!")
    chosen = chosen.removeprefix("!")
    parts: list[str] = []
    place = 0
    while place < len(chosen):
        low, high = chosen[place], chosen[place]
        if chosen[place + 1 : place + 2] == "-" and place + 2 < len(chosen):
            high = chosen[place + 2]
            place += 2
        place += 1
        if low <= high:
            parts.append(f"{re.escape(low)}-{re.escape(high)}")
    if not parts:  # what is in an empty range: nothing
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{''.join(parts)}]"
