"""Faults by request: what a stand-in's API answers in place of, or of what it did."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.support.backend import Reply, Request


@dataclass
class Fault:
    """For requests whose address contains ``path``. With ``done`` the request is carried out first and only
    its answer is spoilt: a write of which nobody knows."""

    path: str
    method: str | None = None
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | str | None = None
    cut: int | None = None  # the connection ends after so many bytes of the body
    delay_s: float = 0.0  # before the answer; where not ``done``, before the request is carried out
    done: bool = False
    times: int | None = 1  # None: until ``heal``
    naming: bytes = b""  # only where the request's body contains it

    @property
    def is_whole(self) -> bool:
        """Only slow, or cut: the answer is the true one."""
        return self.status is None and self.body is None


class Faults:
    """Those that were ordered, the oldest first."""

    def __init__(self) -> None:
        self._ordered: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._ordered.append(fault)

    def clear(self) -> None:
        with self._lock:
            self._ordered.clear()

    def answer(
        self, request: Request, carry_out: Callable[[], Reply], wait: Callable[[float], object]
    ) -> Reply:
        fault = self._take(request)
        if fault is None:
            return carry_out()
        reply = carry_out() if fault.done else None
        wait(fault.delay_s)
        if fault.is_whole:
            reply = reply or carry_out()
        else:
            data = fault.body.encode() if isinstance(fault.body, str) else fault.body or b""
            head = [("Content-Type", "application/json"), *fault.headers.items()]
            reply = Reply(fault.status or 200, head, iter([data]))
        return reply if fault.cut is None else _cut(reply, fault.cut)

    def _take(self, request: Request) -> Fault | None:
        with self._lock:
            for fault in self._ordered:
                if fault.path not in request.path or fault.naming not in request.body:
                    continue
                if fault.method in (None, request.method) and fault.times != 0:
                    if fault.times is not None:
                        fault.times -= 1
                    return fault
        return None


def _cut(reply: Reply, after: int) -> Reply:
    """The head promises the whole body; the connection ends after ``after`` bytes of it."""
    data = b"".join(reply.body)
    head = [(k, v) for k, v in reply.headers if k.lower() != "content-length"]

    def pieces() -> Iterator[bytes]:
        yield data[: after // 2] or b" "
        yield data[after // 2 : after]
        raise ConnectionResetError("cut as ordered")

    return Reply(reply.status, [*head, ("Content-Length", str(len(data) + 2))], pieces())
