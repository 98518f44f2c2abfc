"""One ``git push``: its command line, and what its porcelain output says of each ref.

Each ref goes by its object's id (see refless.py), with a lease, and without ``+``, which would override it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from evermirror.core.push.plan import RefPush
from evermirror.core.push.settle import Told
from evermirror.edge.git.classify import MESSAGE_CHARS_MAX
from evermirror.edge.git.refs import encode_name
from evermirror.model.printable import one_line

PUSH = (
    "push",
    "--porcelain",
    "--progress",
    "--no-verify",
    "--no-follow-tags",
    "--no-signed",
    "--recurse-submodules=no",
)
HOOK_REFUSED_ALL = "pre-receive hook declined"  # that hook says yes or no to a whole push
STALE = "stale info"
_STATUS = re.compile(rb"([ +\-*!=])\t[^\t\n]*:(refs/[^\t\n]+)\t([^\n]*)")
_SUMMARY = re.compile(rb"\[[^\]]*\](?: \((.*)\))?")
# git's words where the target itself failed, and not this ref: the whole push is to be judged.
_OF_ALL = ("unpacker error", "remote failed to report status", "atomic push failed")


def push_args(url: str, batch: Sequence[RefPush]) -> list[str]:
    """The words after ``git``."""
    leases = [f"--force-with-lease={_argument(c.name)}:{c.old or ''}" for c in batch]
    refspecs = [f"{c.new or ''}:{_argument(c.name)}" for c in batch]
    return [*PUSH, *leases, "--end-of-options", url, *refspecs]


def shown_command(url: str, batch: Sequence[RefPush]) -> str:
    """The same for people, and short."""
    args = push_args(url, batch[:1])
    more = f" … ({len(batch)} refs)" if len(batch) > 1 else ""
    return one_line(" ".join(["git", *args])) + more


def read_porcelain(output: bytes) -> dict[str, Told]:
    """What git says of each ref; those of which it says nothing definite are left out."""
    told: dict[str, Told] = {}
    for match in _STATUS.finditer(output):
        flag, raw, summary = match.groups()
        name = raw.decode("utf-8", "surrogateescape")
        if flag != b"!":
            told[name] = Told(ok=True)
            continue
        reason = _reason(summary)
        if not any(words in reason for words in _OF_ALL):
            told[name] = Told(ok=False, reason=reason, stale=reason == STALE)
    return told


def _reason(summary: bytes) -> str:
    match = _SUMMARY.match(summary)
    words = match[1] if match is not None and match[1] else summary
    return one_line(words.decode("utf-8", "replace"))[:MESSAGE_CHARS_MAX]


def _argument(name: str) -> str:
    """Whatever the locale, these very bytes arrive."""
    return os.fsdecode(encode_name(name))
