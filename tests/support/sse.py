"""A reader of server-sent events, by the letter of the standard."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx2


@dataclass(frozen=True)
class Told:
    """One event as a browser would see it; ``last_id`` is where it would resume."""

    type: str
    data: dict
    last_id: str


class Stream:
    """``last_id`` moves also where an id comes without data."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.answer = answer
        self.last_id = ""
        self.comments = 0
        self.retry_ms = None
        self._lines = answer.aiter_lines()

    async def __aiter__(self) -> AsyncIterator[Told]:
        kind, data = "", []
        async for line in self._lines:
            if not line:
                if data:
                    yield Told(kind or "message", json.loads("\n".join(data)), self.last_id)
                kind, data = "", []
                continue
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match name:
                case "":
                    self.comments += 1
                case "id":
                    self.last_id = value
                case "event":
                    kind = value
                case "data":
                    data.append(value)
                case "retry":
                    self.retry_ms = int(value)

    async def take(self, count: int) -> list[Told]:
        taken: list[Told] = []
        async for told in self:
            taken.append(told)
            if len(taken) == count:
                return taken
        return taken


@contextlib.asynccontextmanager
async def following(base: str, *, last_id: str = "", token: str = "", **query) -> AsyncIterator[Stream]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    async with (
        httpx2.AsyncClient(base_url=base, timeout=30.0, trust_env=False) as client,
        client.stream("GET", "/api/events", params=query, headers=headers) as answer,
    ):
        yield Stream(answer)
