"""How unsteady a worker is: a score of its recent falls, the weight it leaves, and the history people see.

Each fall counts 1 and fades by half every HALF_LIFE_S. One fall costs nothing: machines are rebooted. From
there on the weight's factor is the inverse of the score, down to a floor:

    falls                  one a day    every 8 h    every 4 h    every 2 h    every hour
    score just after       1.07         1.66         2.70         4.85         9.17
    factor                 0.94         0.60         0.37         0.21         0.11

Times are UTC, as they are remembered; where the clock was set back, nothing fades and nothing grows.
"""

from __future__ import annotations

from math import exp2

HALF_LIFE_S = 6 * 3600.0  # a night without a fall makes a worker trustworthy again; a quiet hour does not
FACTOR_MIN = 0.1  # the worst still gets a little, or it could never show that it is steady now
SCORE_MAX = 1 / FACTOR_MIN  # more would lower no weight, and only delay the way back (20 h from here)
HISTORY_MAX = 50  # ups and downs kept for each worker ever seen; a page of them is all that is shown

History = tuple[tuple[float, str], ...]


def faded(score: float, at_s: float, now_s: float) -> float:
    """What is left at ``now_s`` of a score as of ``at_s``."""
    return score * exp2(-max(0.0, now_s - at_s) / HALF_LIFE_S)


def flapped(score: float, at_s: float, now_s: float) -> float:
    """The score as of ``now_s`` of a worker that fell just now."""
    return min(faded(score, at_s, now_s) + 1.0, SCORE_MAX)


def weight_factor(score: float) -> float:
    """By how much the weight of a worker with this (faded) score is reduced for new placements."""
    return max(FACTOR_MIN, 1.0 / max(1.0, score))


def remember(history: History, at_s: float, word: str) -> History:
    """The history with one more line, without the oldest where it is full."""
    return (*history, (at_s, word))[-HISTORY_MAX:]
