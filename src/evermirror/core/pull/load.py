"""How loaded the source is: by its CPU where that is told, else by our own polls.

| signal    | high                                     | low                                           |
|-----------|------------------------------------------|-----------------------------------------------|
| CPU       | above 80 %                               | below 40 %                                    |
| own polls | they take 2 × as long as usual, or more  | less than 1.3 × as long, and less than 5 %    |
|           | than 20 % of them fail                   | of them fail                                  |

Rules
- Signals are asked in order, and the first that knows something is believed: what an outside signal told
  counts for a while only, so that one that fell silent does not rule for ever.
- *Usual* is kept for each host: the median answer of every ten minutes of a day, and of these the lower
  quartile. So answers that merely vary are usual, and an overload becomes so only after most of a day.
- What is compared is how long an answer took as a multiple of its host's usual, the median over the last
  minutes: hosts differ, and one slow answer is no load.
- Too few polls say nothing.
- Failures that are answers (gone, refused) tell nothing about load; time-outs and rate limits do.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from statistics import median
from typing import Protocol

from evermirror.model.pull import MINUTE, Load, LoadLevel
from evermirror.model.repo import Host

CPU_HIGH_PERCENT = 80.0
CPU_LOW_PERCENT = 40.0
TOLD_S = 5 * MINUTE  # for so long an outside signal is believed

WINDOW_S = 10 * MINUTE  # polls that are compared
WINDOW_MAX = 200  # of them at most; the newest
POLLS_MIN = 8  # fewer say nothing
SLOW_HIGH = 2.0  # × usual
SLOW_LOW = 1.3
ERRORS_HIGH = 0.20  # share of polls
ERRORS_LOW = 0.05
SPELL_S = 10 * MINUTE  # whose median is one of those that the usual is found from
SPELL_ANSWERS_MIN = 8  # a spell goes on until it has so many
SPELL_ANSWERS_MAX = 64  # the newest
SPELLS = 144  # a day of them
USUAL_SHARE = 0.25  # of the spells are faster than the usual
HOSTS_MAX = 1_000  # whose usual is remembered; the one asked longest ago is forgotten
LOOK_MIN_S = 0.001  # faster than this is as good as at once


class LoadSignal(Protocol):
    """Somebody who knows how the source is doing: node metrics, our own polls."""

    def at(self, now: float) -> Load | None:
        """None: not known at this time."""
        ...


def cpu_load(percent: float) -> Load:
    """Of the source's CPU."""
    level = LoadLevel.NORMAL
    if percent > CPU_HIGH_PERCENT:
        level = LoadLevel.HIGH
    elif percent < CPU_LOW_PERCENT:
        level = LoadLevel.LOW
    return Load(level, f"cpu {percent:.0f} %")


class ToldLoad:
    """What was last told from outside."""

    __slots__ = ("_at", "_load")

    def __init__(self) -> None:
        self._load: Load | None = None
        self._at = 0.0

    def tell(self, load: Load, now: float) -> None:
        self._load, self._at = load, now

    def at(self, now: float) -> Load | None:
        return self._load if abs(now - self._at) <= TOLD_S else None


class _Usual:
    """How long one host usually takes; None: not known yet."""

    __slots__ = ("_answers", "_began_at", "_spells", "took_s")

    def __init__(self, now: float) -> None:
        self._began_at = now
        self._answers = array("d")
        self._spells = array("d")
        self.took_s: float | None = None

    def add(self, took_s: float, now: float) -> None:
        answers = self._answers
        if not 0 <= now - self._began_at < SPELL_S and len(answers) >= SPELL_ANSWERS_MIN:
            self._spells.append(median(answers))
            del self._spells[:-SPELLS], answers[:]
            self._began_at = now
            self.took_s = sorted(self._spells)[int(USUAL_SHARE * len(self._spells))]
        answers.append(took_s)
        del answers[:-SPELL_ANSWERS_MAX]


class PollLoad:
    """What our own polls say; each is told by ``answered`` or ``failed``."""

    __slots__ = ("_polls", "_usual")

    def __init__(self) -> None:
        # When, whether it failed, and how long it took as a multiple of the usual, where that is known.
        self._polls: deque[tuple[float, bool, float | None]] = deque(maxlen=WINDOW_MAX)
        self._usual: OrderedDict[Host, _Usual] = OrderedDict()

    def answered(self, host: Host, look_s: float, now: float) -> None:
        took_s = max(look_s, LOOK_MIN_S)
        usual = self._usual.get(host)
        if usual is None:
            usual = self._usual[host] = _Usual(now)
        usual.add(took_s, now)
        self._polls.append((now, False, took_s / usual.took_s if usual.took_s else None))
        self._usual.move_to_end(host)
        if len(self._usual) > HOSTS_MAX:
            self._usual.popitem(last=False)

    def failed(self, now: float) -> None:
        """It timed out, or was told to come later."""
        self._polls.append((now, True, None))

    def at(self, now: float) -> Load | None:
        polls = self._polls
        while polls and not now - WINDOW_S <= polls[0][0] <= now:
            polls.popleft()
        if len(polls) < POLLS_MIN:
            return None
        errors = sum(failed for _, failed, _ in polls) / len(polls)
        if errors > ERRORS_HIGH:
            return Load(LoadLevel.HIGH, f"{errors:.0%} of polls fail")
        ratios = [ratio for _, _, ratio in polls if ratio is not None]
        if len(ratios) < POLLS_MIN:
            return None
        slow = median(ratios)
        if slow > SLOW_HIGH:
            return Load(LoadLevel.HIGH, f"polls take {slow:.1f}× as long as usual")
        calm = errors < ERRORS_LOW and slow < SLOW_LOW
        level = LoadLevel.LOW if calm else LoadLevel.NORMAL
        return Load(level, f"polls take {slow:.1f}× as long as usual, {errors:.0%} fail")
