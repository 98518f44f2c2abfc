"""Markdown for bots, whose dialects know no escapes: what could be markup is written with its look-alike.

A repository's name may hold anything: a link, a heading, a mention of everybody. Its letters stay readable,
and do nothing: an address reads ``https：//…``, of which clients make no link, and which bots do not refuse.
Where a message is too long, whole alerts at its end are counted instead of shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import accumulate

from evermirror.edge.notify.words import line

GAP = "\n\n"
_LOOK_ALIKES = str.maketrans(
    {"*": "＊", "`": "｀", "~": "～", "<": "＜", ">": "＞", "[": "［", "]": "］", "|": "｜", "\\": "＼"}
)
_EMPHASIS = re.compile(r"(?<![A-Za-z0-9])_+|_+(?![A-Za-z0-9_])")  # within a word it is a letter like others
_MENTION = re.compile(r"(?<![A-Za-z0-9])@|@(?=all|所有人|[0-9])", re.IGNORECASE)  # not that of git@host
_LINK = re.compile(r":(?=//)|(?<![A-Za-z0-9])(?:(?:mailto|tel|sms|data|javascript):|www\.)", re.IGNORECASE)
_NO_LINK = str.maketrans({":": "：", ".": "．"})
_ENTITY = re.compile(r"&(?=#?\w+;)")
_BEGINNING = re.compile(r"^(?:[#=+-]+|[0-9]+[.)])")  # of a heading, a ruler, a list
_AT_BEGINNING = str.maketrans({"#": "＃", "=": "＝", "+": "＋", "-": "－", ".": "．", ")": "）"})


def harmless(text: str, limit_bytes: int) -> str:
    """Somebody's text on one line, without markup, links and mentions."""
    text = line(text, limit_bytes).translate(_LOOK_ALIKES)
    text = _EMPHASIS.sub(lambda m: "＿" * len(m[0]), text)
    text = _ENTITY.sub("＆", _MENTION.sub("＠", text))
    text = _LINK.sub(lambda m: m[0].translate(_NO_LINK), text)
    text = _BEGINNING.sub(lambda m: m[0].translate(_AT_BEGINNING), text)
    return line(text, limit_bytes)


def fit(
    head: str,
    blocks: Sequence[str],
    foot: Callable[[int], str],
    *,
    limit: int,
    size: Callable[[str], int],
) -> str:
    """As many blocks as there is room for; ``foot`` is told how many are left out. ``size`` is a sum over
    letters, so that each block is measured once."""
    gap = size(GAP)
    sizes = [gap + size(block) for block in blocks]
    count = len(blocks)
    if size(head) + sum(sizes) + gap + size(foot(0)) > limit:
        room = limit - size(head) - gap - size(foot(count))  # the longest of all feet
        count = sum(total <= room for total in accumulate(sizes))
    return GAP.join([head, *blocks[:count], foot(len(blocks) - count)])
