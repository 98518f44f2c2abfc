"""Frames to bytes and back: total, strict, and open to a newer side."""

from __future__ import annotations

import dataclasses
import math
import re
import typing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evermirror.edge.rpc.convert import (
    FRAME_BYTES_MAX,
    down_of_bytes,
    down_to_bytes,
    up_of_bytes,
    up_to_bytes,
)
from evermirror.edge.rpc.convert_reports import progress_in, progress_out
from evermirror.edge.rpc.convert_values import ITEMS_MAX, TEXT_BYTES_MAX, FrameInvalid
from evermirror.edge.rpc.generated import fleet_pb2 as pb
from evermirror.model.access import Role
from evermirror.model.activity import Activity
from evermirror.model.changes import Change, HolderReport, RepoHolders
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.kept import KeptTip
from evermirror.model.messages import (
    AssignRepos,
    Command,
    Failed,
    HandedBack,
    HeldRepo,
    HostState,
    Kept,
    LookAt,
    Progress,
    Refused,
    Report,
    RunningSync,
    Synced,
    SyncNow,
)
from evermirror.model.push import PUSHES_MAX, Pushed, PushedRef, PushTo, RefOutcome, TargetId
from evermirror.model.refs import RefChange
from evermirror.model.relay import NodeId, RelayAddress, Source
from evermirror.model.repo import Host, RepoKey, RepoSpec
from evermirror.model.task import TaskId
from evermirror.model.wire import (
    Answer,
    Compare,
    Down,
    Hello,
    Holding,
    Numbered,
    Obeyed,
    Ordered,
    Question,
    Rejected,
    Up,
)
from tests.edge.rpc import frames

KEY = "example.org/team/a"
UNKNOWN_FIELD = b"\xc2\x3e\x05newer"  # number 1000, five bytes


@pytest.mark.parametrize(
    ("union", "known", "message"),
    [
        (Up, frames.UPS, pb.Up),
        (Down, frames.DOWNS, pb.Down),
        (Command, frames.COMMANDS, pb.Command),
        (Report, frames.REPORTS, pb.Report),
    ],
)
def test_every_kind_has_its_place_on_the_wire_and_is_tried_here(union, known, message):
    kinds = typing.get_args(union)
    assert set(kinds) == set(known)
    snake = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower() for kind in kinds}
    assert snake == set(message.DESCRIPTOR.oneofs[0].fields and [f.name for f in message.DESCRIPTOR.fields])


def test_the_percentage_of_a_phase_that_an_older_node_tells_is_not_taken_for_the_whole():
    older = pb.Progress(key="a/b", phase="counting", percent=100.0)
    assert progress_in(older).percent == pytest.approx(2.0)
    assert progress_in(pb.Progress(key="a/b", phase="receiving", percent=50.0)).percent == pytest.approx(37.5)
    assert progress_in(pb.Progress(key="a/b", phase="writing", percent=50.0)).percent is None
    ours = progress_out(Progress(RepoKey("a/b"), (), "counting", 1.5, 0, 1.0))
    assert (ours.whole_percent, ours.HasField("percent")) == (1.5, False), "it keeps its meaning there too"


def test_every_field_of_the_model_has_its_place_on_the_wire():
    """A field with a default would else be left out unnoticed."""
    parts = [Activity, Failure, KeptTip, RefChange, RepoSpec, HeldRepo, RunningSync, HostState]
    relayed = [Source, RelayAddress, HolderReport, Change, RepoHolders]
    pushed = [PushTo, Pushed, PushedRef]
    for kind in (*frames.UPS, *frames.DOWNS, *frames.COMMANDS, *frames.REPORTS, *parts, *relayed, *pushed):
        model = {field.name.removesuffix("_s") for field in dataclasses.fields(kind)}
        fields = {f.name for f in getattr(pb, kind.__name__).DESCRIPTOR.fields}
        if kind is Progress:  # its `percent` there is what older nodes tell
            fields.remove("whole_percent")
        wire = {name.removesuffix("_s") for name in fields}
        assert model == wire, kind.__name__


@given(frames.ups)
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
def test_what_a_worker_says_arrives_as_it_was(frame):
    assert up_of_bytes(up_to_bytes(frame)) == frame


@given(frames.downs)
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
def test_what_a_coordinator_says_arrives_as_it_was(frame):
    assert down_of_bytes(down_to_bytes(frame)) == frame


@given(st.binary(max_size=300))
@settings(max_examples=500)
def test_any_bytes_are_a_frame_or_refused(raw):
    for read in (up_of_bytes, down_of_bytes):
        try:
            read(raw)
        except FrameInvalid as e:
            assert str(e)  # noqa: PT017


@given(frames.ups.map(up_to_bytes) | frames.downs.map(down_to_bytes), st.data())
@settings(max_examples=500, suppress_health_check=[HealthCheck.too_slow])
def test_a_damaged_frame_is_a_frame_or_refused(raw, data):
    damaged = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged)))
        damaged[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    for read in (up_of_bytes, down_of_bytes):
        try:
            read(bytes(damaged))
        except FrameInvalid as e:
            assert str(e)  # noqa: PT017


def test_a_newer_sides_fields_are_left_out():
    hello = pb.Hello(protocol=1, name="w", boot=1, generation=1, weight=1)
    newer = hello.SerializeToString() + UNKNOWN_FIELD
    raw = b"\x0a" + bytes([len(newer)]) + newer + UNKNOWN_FIELD
    assert up_of_bytes(raw) == Hello(1, "", "w", 1, 1)


def test_a_newer_sides_kind_of_failure_is_an_unknown_one():
    failure = pb.Failure(message="odd", context={"a": "b"})
    raw = failure.SerializeToString() + b"\x08\x63"
    told = pb.Failure.FromString(raw)
    report = pb.Report(refused=pb.Refused(key=KEY, failure=told))
    frame = up_of_bytes(pb.Up(numbered=pb.Numbered(reports=[report])).SerializeToString())
    assert frame.reports[0].failure == Failure(FailureKind.UNKNOWN, "odd", context={"a": "b"})


def numbered(report: pb.Report) -> pb.Up:
    return pb.Up(numbered=pb.Numbered(generation=1, first=1, reports=[report]))


def synced(**other: object) -> pb.Up:
    good: dict[str, object] = {
        "key": KEY,
        "digest": bytes(32),
        "activity": pb.Activity(counts=[0, 0, 0]),
    }
    return numbered(pb.Report(synced=pb.Synced(**(good | other))))


def sync_now(*push: pb.PushTo) -> pb.Down:
    command = pb.Command(sync_now=pb.SyncNow(key=KEY, task_id=1, push=push))
    return pb.Down(ordered=pb.Ordered(seq=1, command=command))


SPEC = pb.RepoSpec(key=KEY, url="https://example.org/a", host="example.org", priority=3, mode=1)
BROKEN_UPS = {
    "Synced.started_at is -1.7e+308, which is no time": synced(started_at=-1.7e308),
    "Synced.verified_at is 253402300800.0, which is no time": synced(verified_at=253_402_300_800.0),
    "a frame that is none": pb.Up(),
    "Beat.status is missing": pb.Up(beat=pb.Beat()),
    "HeldRepo.key is missing": pb.Up(holding=pb.Holding(items=[pb.HeldRepo()])),
    "HeldRepo.digest has 3 bytes": pb.Up(holding=pb.Holding(items=[pb.HeldRepo(key=KEY, digest=b"abc")])),
    "HeldRepo.digest has 0 bytes": pb.Up(holding=pb.Holding(items=[pb.HeldRepo(key=KEY, digest=b"")])),
    "HeldRepo.verified_at is nan": pb.Up(
        holding=pb.Holding(items=[pb.HeldRepo(key=KEY, verified_at=math.nan)])
    ),
    "HeldRepo.key holds NUL": pb.Up(holding=pb.Holding(items=[pb.HeldRepo(key="a\0b")])),
    "HeldRepo.key has 3000 bytes": pb.Up(holding=pb.Holding(items=[pb.HeldRepo(key="é" * 1500)])),
    "Report is none": numbered(pb.Report()),
    "Synced.key is missing": synced(key=""),
    "Synced.digest has 0 bytes": synced(digest=b""),
    "Synced.activity is missing": numbered(pb.Report(synced=pb.Synced(key=KEY, digest=bytes(32)))),
    "Activity.counts has 2 items": synced(activity=pb.Activity(counts=[1, 2])),
    "Activity.counts is -0.5, which is less than none": synced(activity=pb.Activity(counts=[1, 2, -0.5])),
    "Activity.counts is inf": synced(activity=pb.Activity(counts=[1, 2, math.inf])),
    "Activity.rhythm has 3 items": synced(activity=pb.Activity(counts=[1, 2, 3], rhythm=[1, 0, 0])),
    "Activity.rhythm is nan": synced(activity=pb.Activity(counts=[1, 2, 3], rhythm=[1, 0, 0, 0, math.nan])),
    "waves that are higher": synced(activity=pb.Activity(counts=[1, 2, 3], rhythm=[1, 0, 2, 0, 0])),
    "waves that are higher than": synced(activity=pb.Activity(counts=[1, 2, 3], rhythm=[-20, 0, 0, 0, 0])),
    "Synced.head_commit has 19 bytes": synced(head_commit=bytes(19)),
    "Synced.commits is -1": synced(commits=-1),
    "RefChange.name is missing": synced(changes=[pb.RefChange()]),
    "RefChange.name holds NUL": synced(changes=[pb.RefChange(name=b"refs/heads/\0")]),
    "RefChange.name has 70000 bytes": synced(changes=[pb.RefChange(name=b"x" * 70_000)]),
    "KeptTip.why is missing": synced(kept=[pb.KeptTip(name=b"a", ref=b"b", old=bytes(20))]),
    "Synced.look_s is nan": synced(look_s=math.nan),
    "Synced.pushes has 101 items": synced(pushes=[pb.Pushed(target=1)] * (PUSHES_MAX + 1)),
    "Pushed.target is -1": synced(pushes=[pb.Pushed(target=-1)]),
    "Pushed.put has 5 bytes": synced(pushes=[pb.Pushed(target=1, put=b"abcde")]),
    "Pushed.commit has 0 bytes": synced(pushes=[pb.Pushed(target=1, commit=b"")]),
    "Pushed.sent_bytes is -4": synced(pushes=[pb.Pushed(target=1, sent_bytes=-4)]),
    "Pushed.ended_at is inf": synced(pushes=[pb.Pushed(target=1, ended_at=math.inf)]),
    "Pushed.refs has 100001 items": synced(
        pushes=[pb.Pushed(target=1, refs=[pb.PushedRef()] * (ITEMS_MAX + 1))]
    ),
    "PushedRef.name is missing": synced(pushes=[pb.Pushed(target=1, refs=[pb.PushedRef(outcome=1)])]),
    "PushedRef.outcome is missing": synced(
        pushes=[pb.Pushed(target=1, refs=[pb.PushedRef(name=b"refs/heads/main")])]
    ),
    "PushedRef.old has 3 bytes": synced(
        pushes=[pb.Pushed(target=1, refs=[pb.PushedRef(name=b"r", outcome=1, old=b"abc")])]
    ),
    "Failed.failure is missing": numbered(pb.Report(failed=pb.Failed(key=KEY))),
    "Refused.failure is missing": numbered(pb.Report(refused=pb.Refused(key=KEY))),
    "Failure.kind is missing": numbered(pb.Report(refused=pb.Refused(key=KEY, failure=pb.Failure()))),
    "Failure.stderr is longer": numbered(
        pb.Report(refused=pb.Refused(key=KEY, failure=pb.Failure(kind=1, stderr="x" * 70_000)))
    ),
    "Started.task_ids is -3": numbered(pb.Report(started=pb.Started(key=KEY, task_ids=[1, -3]))),
    "Hello.weight is nan": pb.Up(hello=pb.Hello(weight=math.nan)),
    "Hello.name has": pb.Up(hello=pb.Hello(name="n" * 5000)),
    "Obeyed.seq is -1": pb.Up(obeyed=pb.Obeyed(seq=-1)),
    "Answer.body is longer": pb.Up(answer=pb.Answer(body="x" * 7_000_000)),
    "RelayAddress.address is missing": pb.Up(
        hello=pb.Hello(relay=pb.RelayAddress(fingerprint=bytes(32))),
    ),
    "RelayAddress.fingerprint has 20 bytes": pb.Up(
        hello=pb.Hello(relay=pb.RelayAddress(address="relay:9473", fingerprint=bytes(20)))
    ),
    "Follow.since is -1": pb.Up(follow=pb.Follow(since=-1)),
    "Followed.upto is -1": pb.Up(followed=pb.Followed(upto=-1)),
    "HeldRepo.digest has 4 bytes": pb.Up(have=pb.Have(items=[pb.HeldRepo(key=KEY, digest=b"abcd")])),
    "Lack.keys is missing": pb.Up(lack=pb.Lack(keys=[""])),
    "AskHolders.keys has 501 items": pb.Up(ask_holders=pb.AskHolders(keys=["k"] * 501)),
    "Doubted.keys has 501 items": pb.Up(doubted=pb.Doubted(keys=["k"] * 501)),
    "Accused.node is missing": pb.Up(accused=pb.Accused(key=KEY)),
    "Accused.key is missing": pb.Up(accused=pb.Accused(node="worker/1")),
    "Accused.evidence is longer": pb.Up(
        accused=pb.Accused(node="worker/1", key=KEY, evidence="x" * 70_000),
    ),
    "Excused.keys has 100001 items": numbered(pb.Report(excused=pb.Excused(keys=["k"] * (ITEMS_MAX + 1)))),
}
BROKEN_DOWNS = {
    "a frame that is none": pb.Down(),
    "Ordered.command is missing": pb.Down(ordered=pb.Ordered(seq=1)),
    "Command is none": pb.Down(ordered=pb.Ordered(seq=1, command=pb.Command())),
    "RepoSpec.priority or mode": pb.Down(
        ordered=pb.Ordered(
            command=pb.Command(
                assign_repos=pb.AssignRepos(repos=[pb.RepoSpec(key=KEY, url="u", host="h", priority=3)])
            )
        )
    ),
    "1 activities for 0 repos": pb.Down(
        ordered=pb.Ordered(command=pb.Command(assign_repos=pb.AssignRepos(activities=[pb.KnownActivity()])))
    ),
    "1 digests for 2 keys": pb.Down(
        ordered=pb.Ordered(
            command=pb.Command(release_repos=pb.ReleaseRepos(keys=["a", "b"], delete=True, digests=[1]))
        )
    ),
    "SyncNow.key is missing": pb.Down(ordered=pb.Ordered(command=pb.Command(sync_now=pb.SyncNow(task_id=1)))),
    "PushTo.url is missing": sync_now(pb.PushTo(target=1)),
    "PushTo.target is -7": sync_now(pb.PushTo(target=-7, url="https://t/x")),
    "PushTo.put has 20 bytes": sync_now(pb.PushTo(target=1, url="https://t/x", put=bytes(20))),
    "SyncNow.push has 101 items": sync_now(*[pb.PushTo(target=1, url="https://t/x")] * (PUSHES_MAX + 1)),
    "Question.key is missing": pb.Down(question=pb.Question(what="plan")),
    "Source.holder is missing": pb.Down(
        ordered=pb.Ordered(
            command=pb.Command(assign_repos=pb.AssignRepos(sources=[pb.Source(key=KEY, ticket="t")]))
        )
    ),
    "Access.seal_key has 3 bytes": pb.Down(access=pb.Access(node="worker/1", pass_="p", seal_key=b"abc")),
    "Access.pass_ has 17000 bytes": pb.Down(access=pb.Access(node="worker/1", pass_="p" * 17_000)),
    "Access.pass_ is not sealed": pb.Down(access=pb.Access(node="worker/1", pass_="é")),
    "Access.until is nan": pb.Down(access=pb.Access(node="worker/1", until=math.nan)),
    "Change.spec is missing": pb.Down(changes=pb.Changes(items=[pb.Change(seq=1)])),
    "Change.digest has 0 bytes": pb.Down(changes=pb.Changes(items=[pb.Change(spec=SPEC, digest=b"")])),
    "HolderReport.node is missing": pb.Down(
        changes=pb.Changes(items=[pb.Change(spec=SPEC, holders=[pb.HolderReport()])])
    ),
    "RepoHolders.key is missing": pb.Down(holders=pb.Holders(items=[pb.RepoHolders()])),
    "Welcomed.heartbeat_s is inf": pb.Down(welcomed=pb.Welcomed(heartbeat_s=math.inf)),
    "Welcomed.redial_s is nan": pb.Down(welcomed=pb.Welcomed(redial_s=math.nan)),
    "Welcomed.grace_s is inf": pb.Down(welcomed=pb.Welcomed(grace_s=math.inf)),
}


@pytest.mark.parametrize("words", BROKEN_UPS)
def test_a_worker_that_breaks_the_contract_is_told_where(words):
    with pytest.raises(FrameInvalid, match=re.escape(words)):
        up_of_bytes(BROKEN_UPS[words].SerializeToString())


@pytest.mark.parametrize("words", BROKEN_DOWNS)
def test_a_coordinator_that_breaks_the_contract_is_told_where(words):
    with pytest.raises(FrameInvalid, match=re.escape(words)):
        down_of_bytes(BROKEN_DOWNS[words].SerializeToString())


def test_a_role_that_is_none_is_refused():
    raw = pb.Hello.FromString(pb.Hello(weight=1).SerializeToString() + b"\x58\x63")
    with pytest.raises(FrameInvalid, match=r"Hello\.role is 99"):
        up_of_bytes(pb.Up(hello=raw).SerializeToString())
    with pytest.raises(FrameInvalid, match=r"Hello\.role is admin"):
        up_to_bytes(Hello(1, "", "w", 1, 1, role=Role.ADMIN))


def test_a_priority_that_is_none_is_refused():
    raw = pb.Command(sync_now=pb.SyncNow(key=KEY)).sync_now.SerializeToString() + b"\x28\x63"
    order = pb.Ordered(seq=1, command=pb.Command(sync_now=pb.SyncNow.FromString(raw)))
    with pytest.raises(FrameInvalid, match=r"SyncNow\.priority is 99"):
        down_of_bytes(pb.Down(ordered=order).SerializeToString())


@pytest.mark.parametrize(
    "frame",
    [
        Question(1, "plan", RepoKey("a\ud800")),
        Question(1, "plan", RepoKey("")),
        Ordered(-1, LookAt(())),
        Ordered(2**63, LookAt(())),
        Compare(1, (2**64,)),
        Compare(1, (-1,)),
        Ordered(1, LookAt((RepoKey("k" * 2100),))),
        Ordered(1, LookAt((RepoKey("k" * 2000),) * 5000)),
        Ordered(1, SyncNow(RepoKey(KEY), TaskId(1), push=(PushTo(TargetId(1), "u"),) * (PUSHES_MAX + 1))),
        Ordered(1, AssignRepos((), sources=(Source(RepoKey(KEY), NodeId("worker/1"), "t" * 17_000),))),
    ],
)
def test_what_the_wire_cannot_carry_is_not_sent(frame):
    with pytest.raises(FrameInvalid):
        down_to_bytes(frame)


def test_a_frame_that_is_too_large_is_not_sent_and_not_read():
    with pytest.raises(FrameInvalid):
        up_to_bytes(Answer(1, "x" * (FRAME_BYTES_MAX + 1)))
    with pytest.raises(FrameInvalid, match="more than"):
        up_of_bytes(bytes(FRAME_BYTES_MAX + 1))


def test_hostile_text_for_people_arrives_readable():
    told = down_of_bytes(down_to_bytes(Rejected("a\ud800b\udcff\0é", final=False)))
    assert told.reason == "a?b?\0é"


@given(st.text(min_size=1, max_size=3), st.integers(20_000, 70_000))
@settings(max_examples=50)
def test_long_text_is_cut_to_what_the_other_side_takes(piece, times):
    reason = piece * times
    told = up_of_bytes(up_to_bytes(Numbered(1, 1, (HandedBack((), reason),))))
    assert len(told.reports[0].reason.encode()) <= TEXT_BYTES_MAX
    assert told.reports[0].reason.removesuffix("…") in reason.encode("utf-8", "replace").decode()


def test_a_failure_of_the_largest_size_is_carried():
    large = "\x1b[31m" + "é" * TEXT_BYTES_MAX
    failure = Failure(FailureKind.UNKNOWN, large, large, None, large, large, large, context={"cause": large})
    for report in (
        Refused(RepoKey(KEY), (), failure, 0, 0),
        Failed(RepoKey(KEY), (), failure, True, 1, 0, 0, None),
    ):
        assert up_of_bytes(up_to_bytes(Numbered(1, 1, (report,)))).reports[0].failure.kind is failure.kind


def test_empty_lists_stay_empty_lists():
    assert up_of_bytes(up_to_bytes(Holding((), last=True))) == Holding((), last=True)
    assert down_of_bytes(down_to_bytes(Ordered(1, AssignRepos(())))) == Ordered(1, AssignRepos(()))
    assert up_of_bytes(up_to_bytes(Numbered(1, 1, (Kept(()),)))) == Numbered(1, 1, (Kept(()),))
    assert up_of_bytes(up_to_bytes(Obeyed(0))) == Obeyed(0)


def test_what_an_older_side_does_not_know_is_left_out_and_the_rest_arrives():
    """A worker of protocol 2 polls by itself, and answers without pushes."""
    spec = RepoSpec(RepoKey(KEY), "https://example.org/a", Host("example.org"), pulled=True)
    (told,) = down_of_bytes(_as_protocol_2(down_to_bytes(Ordered(1, AssignRepos((spec,)))))).command.repos
    assert (told.key, told.pulled) == (KEY, False)
    command = SyncNow(RepoKey(KEY), TaskId(5), force=True, push=(PushTo(TargetId(1), "https://t/x"),))
    asked = down_of_bytes(_as_protocol_2(down_to_bytes(Ordered(2, command)))).command
    assert (asked.task_id, asked.force, asked.push) == (5, True, ())


def _as_protocol_2(raw: bytes) -> bytes:
    """What is left of a frame for who does not know the newer fields."""
    frame = pb.Down.FromString(raw)
    match frame.ordered.command.WhichOneof("command"):
        case "assign_repos":
            frame.ordered.command.assign_repos.repos[0].ClearField("pulled")
        case "sync_now":
            frame.ordered.command.sync_now.ClearField("push")
    return frame.SerializeToString()


def test_an_answer_of_an_older_worker_has_no_pushes():
    (report,) = up_of_bytes(synced().SerializeToString()).reports
    assert isinstance(report, Synced)
    assert (report.pushes, report.look_s) == ((), None)


def test_the_largest_report_of_a_push_is_carried():
    """A hundred targets that failed with all that a failure may hold."""
    large = "x" * 8192
    failure = Failure(FailureKind.CONFLICT, large, large, None, large, large, large)
    ref = PushedRef("refs/heads/" + "x" * 200, None, "1" * 40, RefOutcome.CONFLICT, "stale info")
    pushed = tuple(
        Pushed(TargetId(n), None, refs=(ref,) * 10, waiting_total=500, failure=failure)
        for n in range(PUSHES_MAX)
    )
    report = dataclasses.replace(_synced(), pushes=pushed)
    assert up_of_bytes(up_to_bytes(Numbered(1, 1, (report,)))).reports == (report,)


def _synced() -> Synced:
    (report,) = up_of_bytes(synced().SerializeToString()).reports
    assert isinstance(report, Synced)
    return report


def test_texts_of_a_failure_that_are_too_long_are_cut():
    endless = "x" * 60_000
    context = {f"word {n}": endless for n in range(100)}
    failure = Failure(FailureKind.UNKNOWN, endless, endless, None, endless, endless, endless, context=context)
    pushed = Pushed(TargetId(1), None, failure=failure, warning=endless)
    report = dataclasses.replace(_synced(), pushes=(pushed,))
    (told,) = up_of_bytes(up_to_bytes(Numbered(1, 1, (report,)))).reports[0].pushes
    found = told.failure
    assert [len(t) for t in (found.message, found.hint, found.git_command, told.warning)] == [8_192] * 4
    assert (len(found.stdout), len(found.stderr), found.message[-1]) == (16_384, 16_384, "…")
    assert len(found.context) == 64
    assert {len(text) for text in found.context.values()} == {8_192}
