"""The obvious slow version of a courier: plain lists, no crash, no pages, one rule after the other."""

from __future__ import annotations

from evermirror.core.deliver.decisions import Item, NotTaken, Taken
from tests.core.deliver.couriers import ANSWER

DAY_S = 86_400.0


class Twin:
    def __init__(self, batch: int, answers: list[ANSWER]) -> None:
        self.batch, self.size, self.answers = batch, batch, answers
        self.rest: list[Item] = []
        self.message: list[Item] | None = None
        self.failures = self.alone = self.in_a_row = 0
        self.pause_until = 0.0
        self.since: float | None = None
        self.tried_in_vain = self.stopped = False
        self.posted: list[list[int]] = []
        self.aside: list[tuple[int, int]] = []  # with the tries

    def look(self, now: float) -> None:
        while True:
            self._lay_old_aside(now)
            if self.stopped or not self.rest or now < min(self.pause_until, now + 3600):
                return
            if self.message is None:
                self.message = self.rest[: self.size]
            self.posted.append([one.event for one in self.message])
            self._end(self.answers.pop(0) if self.answers else Taken(), now)

    def _end(self, answer: ANSWER, now: float) -> None:
        message = self.message or []
        if isinstance(answer, Taken):
            self.rest = self.rest[len(message) :]
            self.message, self.failures, self.alone, self.since = None, 0, 0, None
            self.in_a_row = 0
            self.tried_in_vain, self.size = False, min(self.size * 2, self.batch)
            return
        self.tried_in_vain = True
        self.since = now if self.since is None else self.since
        if answer.refused and len(message) > 1:
            self.size, self.message = len(message) // 2, None
            return
        self.failures += 1
        self.stopped = answer.gone
        self.pause_until = now + self._pause_s(answer)
        if answer.refused:
            self.alone += 1
        if answer.refused and self.alone >= 3 and self.in_a_row < 3:
            self.in_a_row += 1
            self.aside.append((message[0].event, 3))
            self.rest, self.message, self.alone = self.rest[1:], None, 0

    def _pause_s(self, answer: NotTaken) -> float:
        pause_s = 5.0
        for _ in range(self.failures - 1):
            pause_s = min(2 * pause_s, 900.0)
        pause_s = min(pause_s, 60.0) if answer.refused and self.in_a_row < 3 else pause_s
        return max(pause_s, min(answer.retry_after_s or 0.0, 3600.0))

    def _lay_old_aside(self, now: float) -> None:
        failing_long = self.since is not None and now >= self.since + DAY_S and self.failures >= 24
        if not failing_long or not self.tried_in_vain or self.stopped:
            return
        while self.rest and self.rest[0].at <= now - DAY_S:
            self.aside.append((self.rest.pop(0).event, self.failures))
            self.message, self.alone = None, 0
