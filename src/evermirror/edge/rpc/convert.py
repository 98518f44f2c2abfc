"""Frames to bytes and back: total for whatever the model holds, strict with whatever comes in.

Unknown fields of a newer side are left out. All else that breaks the contract (proto/evermirror/v1) is
FrameInvalid, and names the field.
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from evermirror.edge.rpc.convert_aggregator import (
    access_in,
    access_out,
    accused_in,
    accused_out,
    ask_in,
    ask_out,
    changes_in,
    changes_out,
    doubted_in,
    doubted_out,
    holders_in,
    holders_out,
)
from evermirror.edge.rpc.convert_commands import command_in, limits_in, limits_out, put_command
from evermirror.edge.rpc.convert_parts import held_out, relay_in, relay_out, role_in, role_out
from evermirror.edge.rpc.convert_reports import (
    held_list_in,
    progress_in,
    progress_out,
    report_in,
    report_out,
)
from evermirror.edge.rpc.convert_status import status_in, status_out
from evermirror.edge.rpc.convert_values import (
    BODY_BYTES_MAX,
    FrameInvalid,
    bounded,
    count,
    counts,
    finite,
    key,
    keys,
    maybe,
    maybe_name,
    name,
    text_in,
    text_out,
    words,
)
from evermirror.edge.rpc.generated import fleet_pb2 as pb
from evermirror.model.relay import NodeId
from evermirror.model.wire import (
    UNREACHED_MAX,
    Access,
    Accused,
    Answer,
    AskHolders,
    AskSource,
    Beat,
    Changes,
    Compare,
    Compared,
    Doubted,
    Down,
    Follow,
    Followed,
    Have,
    Hello,
    Holders,
    Holding,
    Lack,
    Numbered,
    Obeyed,
    Ordered,
    Passing,
    Question,
    Rejected,
    Taken,
    Up,
    Welcomed,
)

FRAME_BYTES_MAX = 8 * 1024 * 1024

M = TypeVar("M", bound=Message)


def up_to_bytes(frame: Up) -> bytes:
    return _serialised(_up_out(frame), type(frame).__name__)


def up_of_bytes(raw: bytes) -> Up:
    return _up_in(_parsed(pb.Up(), raw))


def down_to_bytes(frame: Down) -> bytes:
    return _serialised(_down_out(frame), type(frame).__name__)


def down_of_bytes(raw: bytes) -> Down:
    return _down_in(_parsed(pb.Down(), raw))


def _serialised(m: Message, what: str) -> bytes:
    raw = m.SerializeToString()
    if len(raw) > FRAME_BYTES_MAX:
        raise FrameInvalid(f"{what} has {len(raw)} bytes, more than {FRAME_BYTES_MAX}")
    return raw


def _parsed(m: M, raw: bytes) -> M:
    if len(raw) > FRAME_BYTES_MAX:
        raise FrameInvalid(f"a frame of {len(raw)} bytes, more than {FRAME_BYTES_MAX}")
    try:
        m.ParseFromString(raw)
    except DecodeError:
        raise FrameInvalid("these bytes are no frame") from None
    return m


def _up_out(frame: Up) -> pb.Up:
    match frame:
        case Hello():
            return pb.Up(hello=_hello_out(frame))
        case Beat(status, unreached):
            nodes = bounded(unreached, "Beat.unreached", items_max=UNREACHED_MAX)
            return pb.Up(beat=pb.Beat(status=status_out(status), unreached=nodes))
        case Holding(items, last):
            return pb.Up(holding=pb.Holding(items=[held_out(item) for item in items], last=last))
        case Numbered():
            return pb.Up(numbered=_numbered_out(frame))
        case Passing(progress):
            return pb.Up(passing=pb.Passing(progress=[progress_out(p) for p in progress]))
        case Obeyed(seq):
            return pb.Up(obeyed=pb.Obeyed(seq=count(seq, "Obeyed.seq")))
        case AskSource(wanted):
            return pb.Up(ask_source=pb.AskSource(key=name(wanted, "AskSource.key")))
        case Compared(ranges, items):
            told = pb.Compared(
                ranges=counts(ranges, "Compared.ranges"), items=[held_out(item) for item in items]
            )
            return pb.Up(compared=told)
        case Answer():
            return pb.Up(answer=_answer_out(frame))
        case _:
            return _up_of_aggregator_out(frame)


def _up_of_aggregator_out(
    frame: Follow | Followed | Have | Lack | AskHolders | Doubted | Accused,
) -> pb.Up:
    match frame:
        case Follow(since):
            return pb.Up(follow=pb.Follow(since=count(since, "Follow.since")))
        case Followed(upto):
            return pb.Up(followed=pb.Followed(upto=count(upto, "Followed.upto")))
        case Have(items):
            return pb.Up(have=pb.Have(items=[held_out(item) for item in items]))
        case Lack(lost):
            return pb.Up(lack=pb.Lack(keys=keys(lost, "Lack.keys")))
        case AskHolders():
            return pb.Up(ask_holders=ask_out(frame))
        case Doubted():
            return pb.Up(doubted=doubted_out(frame))
        case Accused():
            return pb.Up(accused=accused_out(frame))


def _up_in(m: pb.Up) -> Up:
    match m.WhichOneof("frame"):
        case "hello":
            return _hello_in(m.hello)
        case "beat":
            if not m.beat.HasField("status"):
                raise FrameInvalid("Beat.status is missing")
            nodes = bounded(m.beat.unreached, "Beat.unreached", items_max=UNREACHED_MAX)
            return Beat(status_in(m.beat.status), tuple(NodeId(name(n, "Beat.unreached")) for n in nodes))
        case "holding":
            return Holding(held_list_in(m.holding.items, "Holding.items"), m.holding.last)
        case "numbered":
            return _numbered_in(m.numbered)
        case "passing":
            return Passing(tuple([progress_in(p) for p in bounded(m.passing.progress, "Passing.progress")]))
        case "obeyed":
            return Obeyed(count(m.obeyed.seq, "Obeyed.seq"))
        case "compared":
            ranges = counts(m.compared.ranges, "Compared.ranges")
            return Compared(ranges, held_list_in(m.compared.items, "Compared.items"))
        case "answer":
            return _answer_in(m.answer)
        case "ask_source":
            return AskSource(key(m.ask_source.key, "AskSource.key"))
        case "follow":
            return Follow(count(m.follow.since, "Follow.since"))
        case "followed":
            return Followed(count(m.followed.upto, "Followed.upto"))
        case "have":
            return Have(held_list_in(m.have.items, "Have.items"))
        case "lack":
            return Lack(keys(m.lack.keys, "Lack.keys"))
        case "ask_holders":
            return ask_in(m.ask_holders)
        case "doubted":
            return doubted_in(m.doubted)
        case "accused":
            return accused_in(m.accused)
        case None:
            raise FrameInvalid("a frame that is none known here")


def _down_out(frame: Down) -> pb.Down:
    match frame:
        case Welcomed():
            return pb.Down(welcomed=_welcomed_out(frame))
        case Rejected(reason, final):
            return pb.Down(rejected=pb.Rejected(reason=text_out(reason), final=final))
        case Ordered(seq, command):
            down = pb.Down()
            down.ordered.seq = count(seq, "Ordered.seq")
            put_command(command, down.ordered.command)
            return down
        case Taken(generation, seq):
            taken = pb.Taken(generation=count(generation, "Taken.generation"), seq=count(seq, "Taken.seq"))
            return pb.Down(taken=taken)
        case Compare():
            return pb.Down(
                compare=pb.Compare(
                    seq=count(frame.seq, "Compare.seq"), digests=words(frame.digests, "Compare.digests")
                )
            )
        case Question():
            return pb.Down(question=_question_out(frame))
        case Access():
            return pb.Down(access=access_out(frame))
        case Changes():
            return pb.Down(changes=changes_out(frame))
        case Holders():
            return pb.Down(holders=holders_out(frame))


def _down_in(m: pb.Down) -> Down:
    match m.WhichOneof("frame"):
        case "welcomed":
            return _welcomed_in(m.welcomed)
        case "rejected":
            return Rejected(text_in(m.rejected.reason, "Rejected.reason"), m.rejected.final)
        case "ordered":
            if not m.ordered.HasField("command"):
                raise FrameInvalid("Ordered.command is missing")
            return Ordered(count(m.ordered.seq, "Ordered.seq"), command_in(m.ordered.command))
        case "taken":
            generation = count(m.taken.generation, "Taken.generation")
            return Taken(generation, count(m.taken.seq, "Taken.seq"))
        case "compare":
            seq = count(m.compare.seq, "Compare.seq")
            return Compare(seq, words(m.compare.digests, "Compare.digests"))
        case "question":
            return _question_in(m.question)
        case "access":
            return access_in(m.access)
        case "changes":
            return changes_in(m.changes)
        case "holders":
            return holders_in(m.holders)
        case None:
            raise FrameInvalid("a frame that is none known here")


def _hello_out(frame: Hello) -> pb.Hello:
    return pb.Hello(
        protocol=count(frame.protocol, "Hello.protocol"),
        version=maybe_name(frame.version, "Hello.version"),
        name=maybe_name(frame.name, "Hello.name"),
        boot=count(frame.boot, "Hello.boot"),
        generation=count(frame.generation, "Hello.generation"),
        epoch=count(frame.epoch, "Hello.epoch"),
        seen=count(frame.seen, "Hello.seen"),
        weight=finite(frame.weight, "Hello.weight"),
        capacity=maybe(count, frame.capacity, "Hello.capacity"),
        relay=None if frame.relay is None else relay_out(frame.relay),
        role=role_out(frame.role, "Hello.role"),
        limits=None if frame.limits is None else limits_out(frame.limits),
        refs_extra=[name(prefix, "Hello.refs_extra") for prefix in frame.refs_extra],
        trial=frame.trial,
        http_url=maybe_name(frame.http_url, "Hello.http_url"),
    )


def _hello_in(m: pb.Hello) -> Hello:
    return Hello(
        protocol=count(m.protocol, "Hello.protocol"),
        version=maybe_name(m.version, "Hello.version"),
        name=maybe_name(m.name, "Hello.name"),
        boot=count(m.boot, "Hello.boot"),
        generation=count(m.generation, "Hello.generation"),
        epoch=count(m.epoch, "Hello.epoch"),
        seen=count(m.seen, "Hello.seen"),
        weight=finite(m.weight, "Hello.weight"),
        capacity=count(m.capacity, "Hello.capacity") if m.HasField("capacity") else None,
        relay=relay_in(m.relay) if m.HasField("relay") else None,
        role=role_in(m.role, "Hello.role"),
        limits=limits_in(m.limits) if m.HasField("limits") else None,
        refs_extra=tuple([name(p, "Hello.refs_extra") for p in bounded(m.refs_extra, "Hello.refs_extra")]),
        trial=m.trial,
        http_url=maybe_name(m.http_url, "Hello.http_url"),
    )


def _numbered_out(frame: Numbered) -> pb.Numbered:
    return pb.Numbered(
        generation=count(frame.generation, "Numbered.generation"),
        first=count(frame.first, "Numbered.first"),
        reports=[report_out(report) for report in frame.reports],
    )


def _numbered_in(m: pb.Numbered) -> Numbered:
    return Numbered(
        generation=count(m.generation, "Numbered.generation"),
        first=count(m.first, "Numbered.first"),
        reports=tuple([report_in(report) for report in bounded(m.reports, "Numbered.reports")]),
    )


def _answer_out(frame: Answer) -> pb.Answer:
    # A JSON document that was cut would be none: one that is too long is refused instead.
    body = text_in(text_out(frame.body, bytes_max=FRAME_BYTES_MAX), "Answer.body", bytes_max=BODY_BYTES_MAX)
    return pb.Answer(number=count(frame.number, "Answer.number"), body=body, error=text_out(frame.error))


def _answer_in(m: pb.Answer) -> Answer:
    return Answer(
        number=count(m.number, "Answer.number"),
        body=text_in(m.body, "Answer.body", bytes_max=BODY_BYTES_MAX),
        error=text_in(m.error, "Answer.error"),
    )


def _welcomed_out(frame: Welcomed) -> pb.Welcomed:
    return pb.Welcomed(
        worker=count(frame.worker, "Welcomed.worker"),
        epoch=count(frame.epoch, "Welcomed.epoch"),
        resumed=frame.resumed,
        heartbeat_s=finite(frame.heartbeat_s, "Welcomed.heartbeat_s"),
        http_url=maybe_name(frame.http_url, "Welcomed.http_url"),
        redial_s=finite(frame.redial_s, "Welcomed.redial_s"),
        grace_s=finite(frame.grace_s, "Welcomed.grace_s"),
        name=maybe_name(frame.name, "Welcomed.name"),
    )


def _welcomed_in(m: pb.Welcomed) -> Welcomed:
    return Welcomed(
        worker=count(m.worker, "Welcomed.worker"),
        epoch=count(m.epoch, "Welcomed.epoch"),
        resumed=m.resumed,
        heartbeat_s=finite(m.heartbeat_s, "Welcomed.heartbeat_s"),
        http_url=maybe_name(m.http_url, "Welcomed.http_url"),
        redial_s=finite(m.redial_s, "Welcomed.redial_s"),
        grace_s=finite(m.grace_s, "Welcomed.grace_s"),
        name=maybe_name(m.name, "Welcomed.name"),
    )


def _question_out(frame: Question) -> pb.Question:
    return pb.Question(
        number=count(frame.number, "Question.number"),
        what=name(frame.what, "Question.what"),
        key=name(frame.key, "Question.key"),
    )


def _question_in(m: pb.Question) -> Question:
    return Question(
        number=count(m.number, "Question.number"),
        what=name(m.what, "Question.what"),
        key=key(m.key, "Question.key"),
    )
