"""Which kept tip does a person mean? A ref and a date as the history shows them, either cut short."""

from __future__ import annotations

import re
from collections.abc import Iterable

from evermirror.core.keep.names import stamp_of
from evermirror.errors import Conflict, NotFound, UsageError
from evermirror.model.kept import KeptTip

CHOICES_TOLD = 5
DATE_CHARS_MAX = 40
_PUBLIC = ("refs/heads/", "refs/tags/")
_DATE = re.compile(r"[0-9TZ:. -]+", re.ASCII)
_SEE = "The history of the repo lists what is kept"


def shown_date(at: float) -> str:
    """``2026-11-15T20:30:00.123Z``: by which a kept tip is named."""
    s = stamp_of(at)
    return f"{s[:4]}-{s[4:6]}-{s[6:11]}:{s[11:13]}:{s[13:15]}.{s[15:18]}Z"


def choose(tips: Iterable[KeptTip], ref: str, date: str | None) -> KeptTip:
    """``ref`` is a whole name, a branch's or tag's short one, or the hidden one (for names that are no text);
    ``date`` may be the beginning of one, and None takes the newest."""
    found = _of_ref(tuple(tips), ref)
    if not found:
        raise NotFound(f"nothing is kept of {ref!r}", hint=_SEE)
    if date is None:
        return max(found, key=lambda tip: tip.at)
    digits = _digits(date)
    dated = [tip for tip in found if _digits(stamp_of(tip.at)).startswith(digits)]
    if not dated:
        raise NotFound(f"nothing is kept of {ref!r} with the date {date}", hint=_SEE)
    if len(dated) > 1:
        dates = ", ".join(shown_date(tip.at) for tip in dated[:CHOICES_TOLD])
        raise Conflict(f"{date} may be any of {len(dated)} tips of {ref!r}", hint=f"Say more of it: {dates}")
    return dated[0]


def _of_ref(tips: tuple[KeptTip, ...], ref: str) -> list[KeptTip]:
    whole = [tip for tip in tips if ref in (tip.name, tip.ref)]
    if whole:
        return whole
    short = [tip for tip in tips if tip.ref in {prefix + ref for prefix in _PUBLIC}]
    if len({tip.ref for tip in short}) > 1:
        raise Conflict(f"{ref!r} was both a branch and a tag", hint="Say refs/heads/… or refs/tags/…")
    return short


def _digits(date: str) -> str:
    if not date or len(date) > DATE_CHARS_MAX or not _DATE.fullmatch(date):
        raise UsageError(f"{date!r} is no date", hint="As the history shows it, such as 2026-11-15T20:30")
    return "".join(c for c in date if c.isdigit())
