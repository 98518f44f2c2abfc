"""What a script expects: each phrase, and how it is looked for in what the machine said and shows."""

from __future__ import annotations

import re
from collections.abc import Callable

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.views import CopyView, RepoView
from evermirror.model.repo import RepoKey
from tests.support.sim.fleet.phrases import KEY, KEYS, WHO, WHOS, Failed, clock, keys_of, split, table
from tests.support.sim.fleet.stage import Line, Stage


def _said(stage: Stage, text: str, details: frozenset[str]) -> None:
    """Finds the line and takes it out: one line is expected once."""
    for i, line in enumerate(stage.lines):
        if line.text == text and details <= line.details:
            del stage.lines[i]
            return
    wanted = Line(text, details)
    rest = "; ".join(str(line) for line in stage.lines) or "nothing"
    raise Failed(f"expected by {clock(stage.now_s)}: {wanted}. Decided: {rest}")


def _told(stage: Stage, who: str, what: str, keys: str, details: str | None = None) -> None:
    named = (
        frozenset(part for part in re.split(r",? (?=as |from |at )", details) if part) if details else None
    )
    for key in keys_of(keys):
        _said(stage, f"{who} {what} {key}", named or frozenset())


def _nothing(stage: Stage) -> None:
    loud = [str(line) for line in stage.lines if not line.quiet]
    if loud:
        raise Failed(f"expected nothing by {clock(stage.now_s)}. Decided: {'; '.join(loud)}")


def _same(what: str, expected: object, found: object) -> None:
    if expected != found:
        raise Failed(f"expected {what}: {expected}. It is: {found}")


def _repo(stage: Stage, key: str) -> RepoView:
    view = stage.machine.repo(RepoKey(key))
    if view is None:
        raise Failed(f"{key} is not known")
    return view


def _status(stage: Stage, who: str, status: str) -> None:
    wanted = stage.known(who).number
    found = [view.record.status for view in stage.machine.workers() if view.record.id == wanted]
    _same(f"{who}'s status", status, found[0] if found else "retired")


def _where(wanted: Callable[[CopyView], bool], what: str, *, in_order: bool) -> Callable[..., None]:
    def look(stage: Stage, key: str, who: str) -> None:
        found = [stage.by_id(copy.worker).name for copy in _repo(stage, key).copies if wanted(copy)]
        expected = [] if who in ("nowhere", "nobody") else split(who)
        if not in_order:
            expected, found = sorted(expected), sorted(found)
        _same(f"{key} {what}", expected, found)

    return look


def _primary(stage: Stage, key: str, who: str) -> None:
    primary = _repo(stage, key).primary
    _same(f"primary of {key}", who, "nobody" if primary is None else stage.by_id(primary).name)


def _why(stage: Stage, key: str, text: str) -> None:
    lines = stage.machine.explain(RepoKey(key))
    if not any(text.casefold() in line.casefold() for line in lines):
        raise Failed(f"expected why {key}: {text}. It says: {' / '.join(lines)}")


def _unknown(stage: Stage, key: str) -> None:
    _same(f"{key} known", None, stage.machine.repo(RepoKey(key)))


_DETAILS = r"(?P<details>(?:,? (?:as primary|as follower|from \w+|at the front|at v\d+))*)"

EXPECTED = table(
    (r"nothing(?: else)?", _nothing),
    (rf"{WHO} (?P<what>is asked for|is told to delete) {KEYS}{_DETAILS}", _told),
    (rf"{WHO} (?P<what>is told to stop|is nudged about|leads|follows) {KEYS}", _told),
    (
        r"(?P<text>alert [a-z-]+(?: is over)?"
        r"|[A-Z]\w* is (?:refused|welcomed back|welcomed afresh|asked to compare)"
        r"|[A-Z]\w*'s reports are known up to \d+|task \d+ of [A-Z]\w* may run)",
        lambda stage, text: _said(stage, text, frozenset()),
    ),
    (rf"{WHO} is (?P<status>alive|suspect|down|draining|quarantined|retired)", _status),
    (
        rf"{KEY} is wanted (?:on )?(?P<who>nowhere|{WHOS})",
        _where(lambda copy: copy.rank is not None, "wanted on", in_order=True),
    ),
    (
        rf"{KEY} is held by (?P<who>nobody|{WHOS})",
        _where(lambda copy: copy.state is CopyState.HELD, "held by", in_order=False),
    ),
    (rf"primary of {KEY} is {WHO}", _primary),
    (rf"primary of {KEY} is (?P<who>nobody)", _primary),
    (rf"{KEY} waits for room", lambda stage, key: _same(f"{key} waiting", True, _repo(stage, key).no_room)),
    (rf"{KEY} is not known", _unknown),
    (rf"why {KEY}: (?P<text>.+)", _why),
    (
        r"the brake is (?P<state>on|off)",
        lambda stage, state: _same("brake", state, "on" if stage.machine.totals().braked else "off"),
    ),
    (
        rf"{WHO} has the id (?P<number>\d+)",
        lambda stage, who, number: _same(f"{who}'s id", int(number), stage.known(who).number),
    ),
)
