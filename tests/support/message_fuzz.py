"""Random frames that a worker or an aggregator could send: every field, extreme values, any order.

Frames are drawn from the descriptors of ``proto/``: a new field is fuzzed as soon as it exists. Most frames
keep the wire's rules, and are odd within them; a few break the rules, and end their connection."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from evermirror.edge.rpc.generated import fleet_pb2 as pb

RULE_BREAKING = 0.004  # of the frames: each costs a new connection
GARBAGE = 0.001  # of the frames are no protobuf at all
LIST_LENGTHS = (0, 0, 1, 1, 1, 2, 3, 40)
COUNTS = (0, 1, 2, 3, 7, 100, 65_536, 2**31 - 1, 2**31, 2**32, 2**40, 2**53 + 1, 2**62, 2**63 - 1)
TIMES = (
    -62_135_596_800.0,
    -1.0,
    0.0,
    1e-9,
    4_294_967_296.0,
    253_402_300_799.0,
)  # the years 1, 1970, 2106, 9999
AMOUNTS = (0.0, 0.5, 1.0, 5.0, 100.0, 1e6, 1e11)
TEXTS = (
    "",
    "ok",
    "a" * 300,
    "line\nbreak\r\x1b[31m",
    "<script>alert(1)</script>",
    "\u202e\u0000\U0001f642",
    "名" * 200,
)
NAMES = (
    "",
    "w",
    "a/b",
    "x" * 101,
    "\u202ename",
    "host.example",
    "https://u:p@host.example/x",
    "ns=1;DROP TABLE repos",
)
REFS = (
    b"refs/heads/main",
    b"refs/tags/v1",
    b"refs/heads/\xff\xfe",
    b"HEAD",
    b"refs/evermirror/kept/x",
    b"x" * 400,
)
BODIES = (
    "",
    "{}",
    "[]",
    "null",
    "1e999",
    '{"refs":',
    json.dumps({"refs": [1, None]}),
    "[" * 2000,
    '"\\ud800"',
)
WORKER_FRAMES = (
    "beat",
    "holding",
    "numbered",
    "numbered",
    "numbered",
    "passing",
    "obeyed",
    "compared",
    "answer",
)
AGGREGATOR_FRAMES = ("beat", "beat", "follow", "have", "have", "lack", "ask_holders", "doubted", "accused")
_FRACTIONS = ("percent", "whole_percent")
_TIME_ENDINGS = ("_at", "as_of", "until")


class MessageFuzzer:
    """Draws frames for one node. ``keys``: repositories that exist; ``nodes``: ids that it may name."""

    def __init__(self, seed: int, frames: Sequence[str], keys: Sequence[str], nodes: Sequence[str]) -> None:
        self._random = random.Random(seed)
        self._frames = frames
        self._keys = keys
        self._nodes = nodes
        self._breaking = False
        self.generation = 1
        self.next_report = 1

    def frame(self) -> bytes:
        """The next frame, as bytes."""
        pick = self._random
        self._breaking = pick.random() < RULE_BREAKING
        if pick.random() < GARBAGE:
            return pick.randbytes(pick.choice((1, 30, 4000)))
        up = pb.Up()
        getattr(up, pick.choice(self._frames)).SetInParent()
        which = up.WhichOneof("frame")
        assert which is not None
        self._fill(getattr(up, which))
        if which == "numbered":
            self._number(up.numbered)
        return up.SerializeToString()

    def answer(self, number: int) -> bytes:
        """An answer to a question that was really asked, which is what gets furthest."""
        body = self._random.choice(BODIES)
        error = self._random.choice(("", "", "", "no"))
        return pb.Up(answer=pb.Answer(number=number, body=body, error=error)).SerializeToString()

    def followed(self, upto: int) -> bytes:
        """Mostly what was told: anything else ends the connection."""
        wrong = self._random.random() < 0.05
        return pb.Up(
            followed=pb.Followed(upto=self._random.choice(COUNTS) if wrong else upto)
        ).SerializeToString()

    def hello(self, protocol: int, role: int) -> bytes:
        """One that is let in."""
        pick = self._random
        return pb.Up(
            hello=pb.Hello(
                protocol=protocol,
                version=pick.choice(("1.2.3", "", "v" * 100)),
                boot=pick.choice((1, 2, 3)),
                generation=self.generation,
                epoch=pick.choice(COUNTS),
                seen=pick.choice(COUNTS),
                weight=pick.choice((0.1, 1.0, 1000.0)),
                capacity=pick.choice((0, 1, 100, 2**63 - 1)),
                role=role,  # type: ignore[arg-type]
            )
        ).SerializeToString()

    def holding(self) -> bytes:
        """The end of what it holds, without which little else is listened to."""
        holding = pb.Holding(last=True)
        for _ in range(self._random.choice(LIST_LENGTHS)):
            self._fill(holding.items.add())
        return pb.Up(holding=holding).SerializeToString()

    def _number(self, numbered: Any) -> None:
        """Mostly the numbers that come next, so that the reports count."""
        if self._random.random() < 0.98:
            del numbered.reports[20:]
            numbered.generation, numbered.first = self.generation, self.next_report
            self.next_report += len(numbered.reports)

    def _fill(self, message: Any, depth: int = 0) -> None:
        descriptor: Descriptor = message.DESCRIPTOR
        chosen = {
            self._random.choice(oneof.fields).name
            for oneof in descriptor.oneofs
            if not oneof.name.startswith("_")
        }
        for field in descriptor.fields:
            oneof = field.containing_oneof
            if oneof is not None and not oneof.name.startswith("_"):
                if field.name in chosen:
                    self._set(message, field, depth)
            elif field.message_type is not None and field.message_type.GetOptions().map_entry:
                getattr(message, field.name)[self._text(field.name)] = self._text(field.name)
            elif field.has_presence and self._random.random() < 0.3 and not self._needed(field):
                continue
            else:
                self._set(message, field, depth)

    @staticmethod
    def _needed(field: FieldDescriptor) -> bool:
        """Messages without these are refused for their absence alone."""
        return field.name in ("status", "failure", "activity") and field.containing_type.name != "Pushed"

    def _set(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        if field.message_type is not None:
            if field.is_repeated:
                length = self._random.choice(LIST_LENGTHS[: 6 if depth else None])
                for _ in range(max(1, length) if field.name == "reports" else length):
                    self._fill(getattr(message, field.name).add(), depth + 1)
            else:
                part = getattr(message, field.name)
                part.SetInParent()
                self._fill(part, depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(self._value(field) for _ in range(self._length(field)))
        else:
            setattr(message, field.name, self._value(field))

    def _length(self, field: FieldDescriptor) -> int:
        """As the wire's rules have it, or any."""
        by_rule = {} if self._breaking else {"counts": 3, "rhythm": 0}
        return by_rule.get(field.name, self._random.choice(LIST_LENGTHS))

    def _value(self, field: FieldDescriptor) -> Any:
        values: dict[int, Callable[[FieldDescriptor], Any]] = {
            FieldDescriptor.CPPTYPE_INT64: self._count,
            FieldDescriptor.CPPTYPE_UINT64: lambda _: self._random.getrandbits(64),
            FieldDescriptor.CPPTYPE_DOUBLE: self._double,
            FieldDescriptor.CPPTYPE_BOOL: lambda _: self._random.random() < 0.5,
            FieldDescriptor.CPPTYPE_ENUM: self._enum,
        }
        if field.cpp_type in values:
            return values[field.cpp_type](field)
        return self._bytes(field.name) if field.type == FieldDescriptor.TYPE_BYTES else self._text(field.name)

    def _count(self, _: FieldDescriptor) -> int:
        if self._breaking and self._random.random() < 0.1:
            return -self._random.choice(COUNTS) - 1
        return self._random.choice(COUNTS) if self._random.random() < 0.4 else self._random.randrange(50)

    def _double(self, field: FieldDescriptor) -> float:
        if self._breaking and self._random.random() < 0.2:
            return self._random.choice((float("nan"), float("inf"), float("-inf"), 1e308))
        if field.name in _FRACTIONS:
            return self._random.choice((0.0, 33.3, 100.0, -5.0, 1e9))
        if field.name == "at" or field.name.endswith(_TIME_ENDINGS):
            odd = self._random.random() < 0.3
            return self._random.choice(TIMES) if odd else time.time() + self._random.uniform(-1000, 400)
        return self._random.choice(AMOUNTS)

    def _enum(self, field: FieldDescriptor) -> int:
        numbers = [value.number for value in field.enum_type.values]
        return self._random.choice(numbers if self._breaking else numbers[1:])

    def _text(self, name: str) -> str:
        pick = self._random
        if name in ("key", "keys"):
            return (
                pick.choice(self._keys)
                if pick.random() < 0.8
                else f"unknown.example/o/{pick.randrange(10**6)}"
            )
        if name == "node":
            return pick.choice(self._nodes)
        if name in (
            "message",
            "hint",
            "reason",
            "stderr",
            "stdout",
            "warning",
            "warnings",
            "evidence",
            "context",
        ):
            return pick.choice(TEXTS)
        if name == "body":
            return pick.choice(BODIES)
        if name == "host":
            return pick.choice(("host.example", "h" * 300, "\u202e.example"))
        return pick.choice(NAMES if self._breaking else NAMES[1:])

    def _bytes(self, name: str) -> bytes:
        pick = self._random
        if self._breaking and pick.random() < 0.2:
            return pick.randbytes(pick.choice((0, 1, 19, 33, 70_000)))
        if name in ("digest", "put", "fingerprint"):
            return bytes([pick.randrange(4)]) * 32
        if name in ("name", "ref"):
            return pick.choice(REFS)
        return bytes([pick.randrange(4)]) * pick.choice((20, 20, 20, 32))
