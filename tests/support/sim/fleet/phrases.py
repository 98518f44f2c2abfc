"""The phrases of scripts: what happens, and what is expected; each with what it does to the stage."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.events import (
    BrakeOverruled,
    CatalogChanged,
    CatalogRepo,
    CopiesDropped,
    CopiesVerified,
    DeletionsDeclined,
    DrainAsked,
    DutyResumed,
    Event,
    HeartbeatHeard,
    HeldCopy,
    QuarantineAsked,
    ReposHandedBack,
    RetireAsked,
    WitnessHeld,
    WitnessLost,
    WorkerDisconnected,
)
from evermirror.core.fleet.views import CopyView, RepoView
from evermirror.model.duration import parse_duration
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerId
from tests.support.sim.fleet.stage import Actor, Line, Stage, with_facts

KEY = r"(?P<key>\S+\.\S+/\S+?)"
KEYS = r"(?P<keys>\S+\.\S+/\S+?(?:(?:, | and )\S+\.\S+/\S+?)*)"
WHO = r"(?P<who>[A-Z]\w*)"
WHOS = r"[A-Z]\w*(?:(?:, | and )[A-Z]\w*)*"
VERSION = r" at v(?P<version>\d+)"

Play = Callable[[Stage], None]
Table = tuple[tuple[re.Pattern[str], Callable[..., None]], ...]


class Failed(Exception):
    """What is wrong with the line being played; its place is added by the script."""


def table(*rows: tuple[str, Callable[..., None]]) -> Table:
    """Each pattern with what it does: a function of the stage and the pattern's named groups."""
    return tuple((re.compile(pattern), does) for pattern, does in rows)


def find(phrases: Table, text: str) -> Play:
    for pattern, does in phrases:
        if match := pattern.fullmatch(text):
            return _bound(does, match.groupdict())
    raise Failed(f"this cannot be read: {text!r}")


def _bound(does: Callable[..., None], words: dict[str, str | None]) -> Play:
    return lambda stage: does(stage, **words)


def split(text: str) -> list[str]:
    """The items of "A, B and C"."""
    return re.split(r", | and ", text)


def keys_of(text: str) -> tuple[RepoKey, ...]:
    return tuple(RepoKey(part) for part in split(text))


def clock(now_s: float) -> str:
    minutes, seconds = divmod(round(now_s), 60)
    return f"{minutes}:{seconds:02}"


def _gains(stage: Stage, keys: str, facts: str | None) -> None:
    changes: dict[str, object] = {}
    pins: list[str] = []
    for fact in facts.split(", ") if facts else ():
        if fact in ("private", "public"):
            changes["trusted_only"] = fact == "private"
        elif fact.startswith("replicas "):
            changes["replicas"] = int(fact.split()[1])
        elif fact.startswith("pinned to "):
            pins += fact.removeprefix("pinned to ").split(" and ")
        else:
            raise Failed(f"a repo is private, public, replicas N or pinned to NAME, not {fact!r}")
    put = tuple(replace(CatalogRepo(key, pins=tuple(pins)), **changes) for key in keys_of(keys))  # type: ignore[arg-type]
    stage.do(CatalogChanged(put=put))


def _joins(stage: Stage, who: str, facts: str | None, waits: str | None) -> None:
    actor = stage.actor(who)
    for fact in facts.split(", ") if facts else ():
        match fact.split():
            case ["trusted"]:
                with_facts(actor, trusted=True)
            case ["untrusted"]:
                with_facts(actor, trusted=False)
            case ["weight", number]:
                with_facts(actor, weight=float(number))
            case ["capacity", number]:
                with_facts(actor, capacity=int(number))
            case _:
                raise Failed(f"a worker is trusted, untrusted, weight N or capacity N, not {fact!r}")
    _connects(stage, actor, waits)


def _connects(stage: Stage, actor: Actor, waits: str | None) -> None:
    actor.waits = waits is not None
    stage.connect(actor)


def _restarts(stage: Stage, who: str, waits: str | None) -> None:
    actor = stage.known(who)
    actor.boot += 1
    if actor.connected:
        stage.disconnect(actor)
    _connects(stage, actor, waits)


def _has(stage: Stage, who: str, keys: str, version: str, fate: str | None) -> None:
    actor = stage.known(who)
    copies = tuple(HeldCopy(key, int(version)) for key in keys_of(keys))
    actor.disk.update((copy.key, copy.digest) for copy in copies)
    stage.report(actor, lambda number: CopiesVerified(number, copies), _FATES[fate])


def _dropped(stage: Stage, who: str, keys: str, fate: str | None) -> None:
    actor, gone = stage.known(who), keys_of(keys)
    for key in gone:
        actor.disk.pop(key, None)
    stage.report(actor, lambda number: CopiesDropped(number, gone), _FATES[fate])


def _declines(stage: Stage, who: str, keys: str, version: str) -> None:
    actor = stage.known(who)
    copies = tuple(HeldCopy(key, int(version)) for key in keys_of(keys))
    actor.disk.update((copy.key, copy.digest) for copy in copies)
    stage.report(actor, lambda number: DeletionsDeclined(number, copies))


def _hands_back(stage: Stage, who: str, keys: str, fate: str | None) -> None:
    given = keys_of(keys)
    stage.report(stage.known(who), lambda number: ReposHandedBack(number, given), _FATES[fate])


_FATES = {None: "arrives", "lost": "lost", "late": "late"}


def _late_arrives(stage: Stage, who: str) -> None:
    late = stage.known(who).late
    if not late:
        raise Failed(f"no report of {who} is late")
    stage.do(late.pop(0))


def _old_connection(stage: Stage, who: str, what: str) -> None:
    """Signs of the connection before the present one."""
    actor = stage.known(who)
    old = actor.session - 1
    beat = HeartbeatHeard(actor.number, old, actor.accepting)
    stage.do(beat if what == "heartbeat" else WorkerDisconnected(actor.number, old))


def _room(stage: Stage, who: str, full: str | None) -> None:
    actor = stage.known(who)
    actor.accepting = full is None
    stage.beat(actor)


def _set(name: str, value: bool) -> Callable[..., None]:
    def does(stage: Stage, who: str) -> None:
        setattr(stage.known(who), name, value)

    return does


def _on_disk(stage: Stage, who: str, keys: str, version: str) -> None:
    stage.actor(who).disk.update((key, int(version)) for key in keys_of(keys))


def _wiped(stage: Stage, who: str) -> None:
    stage.known(who).disk.clear()


def _witness_holds(stage: Stage, keys: str, version: str) -> None:
    stage.do(WitnessHeld(tuple(HeldCopy(key, int(version)) for key in keys_of(keys))))


def _asked(event: Callable[[WorkerId], Event]) -> Callable[..., None]:
    return lambda stage, who: stage.do(event(stage.known(who).number))


_FATE = r"(?:, but the report is (?P<fate>lost|late))?"
_WAITS = r"(?P<waits>, and tells nothing yet)?"


HAPPENED = table(
    (rf"the catalog gains {KEYS}(?: \((?P<facts>[^)]*)\))?", _gains),
    (rf"the catalog loses {KEYS}", lambda stage, keys: stage.do(CatalogChanged(removed=keys_of(keys)))),
    (rf"the catalog forgets {KEYS}", lambda stage, keys: stage.do(CatalogChanged(forgotten=keys_of(keys)))),
    (rf"{WHO} joins(?: \((?P<facts>[^)]*)\))?{_WAITS}", _joins),
    (rf"{WHO} reconnects{_WAITS}", lambda stage, who, waits: _connects(stage, stage.known(who), waits)),
    (rf"{WHO} restarts{_WAITS}", _restarts),
    (rf"{WHO} tells what it holds", lambda stage, who: stage.tell_all(stage.known(who))),
    (rf"{WHO} loses its local file", lambda stage, who: stage.lose_file(stage.known(who))),
    (rf"{WHO}'s connection breaks", lambda stage, who: stage.disconnect(stage.known(who))),
    (rf"{WHO} falls silent", _set("silent", True)),
    (rf"{WHO} is heard again", _set("silent", False)),
    (rf"{WHO} receives nothing from now on", _set("deaf", True)),
    (rf"{WHO} has (?:cloned|synced) {KEYS}{VERSION}{_FATE}", _has),
    (rf"{WHO} has dropped {KEYS}{_FATE}", _dropped),
    (rf"{WHO} declines to delete {KEYS}{VERSION}", _declines),
    (rf"{WHO} hands back {KEYS}{_FATE}", _hands_back),
    (rf"{WHO}'s late report arrives", _late_arrives),
    (rf"a late (?P<what>heartbeat|break) of {WHO}'s old connection arrives", _old_connection),
    (
        rf"{WHO} sends report (?P<seq>\d+) again",
        lambda stage, who, seq: stage.repeat(stage.known(who), int(seq)),
    ),
    (
        rf"{WHO} sends again what is not known",
        lambda stage, who: stage.send_again(stage.known(who)),
    ),
    (rf"{WHO}'s disk is (?P<full>full)", _room),
    (rf"{WHO} has room again", lambda stage, who: _room(stage, who, None)),
    (rf"{WHO}'s disk has {KEYS}{VERSION}", _on_disk),
    (rf"{WHO}'s disk is wiped", _wiped),
    (rf"the aggregator holds {KEYS}{VERSION}", _witness_holds),
    (rf"the aggregator loses {KEYS}", lambda stage, keys: stage.do(WitnessLost(keys_of(keys)))),
    (r"the aggregator goes away", lambda stage: stage.do(WitnessLost())),
    (rf"{WHO} is to be drained", _asked(DrainAsked)),
    (rf"{WHO} is retired", _asked(RetireAsked)),
    (rf"{WHO} is quarantined", _asked(lambda worker: QuarantineAsked(worker, "served something else"))),
    (rf"{WHO} is put back on duty", _asked(DutyResumed)),
    (r"a person overrules the brake", lambda stage: stage.do(BrakeOverruled())),
    (r"the coordinator crashes and restarts", Stage.restart),
    (
        r"the coordinator sleeps for (?P<how_long>\w+)",
        lambda stage, how_long: stage.sleep(parse_duration(how_long)),
    ),
)


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
