"""Any frame that the model can hold: hypothesis strategies, one for each kind."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st

from evermirror.edge.rpc.convert_values import TIME_MAX, TIME_MIN
from evermirror.model.access import Role
from evermirror.model.activity import NO_RHYTHM, Activity, Rhythm
from evermirror.model.changes import Change, HolderReport, RepoHolders
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.kept import KeptTip, Why
from evermirror.model.messages import (
    ApplySettings,
    AssignRepos,
    Declined,
    Deferred,
    Excused,
    Failed,
    HandedBack,
    HeldRepo,
    HostState,
    Kept,
    LookAt,
    Progress,
    Refused,
    Released,
    ReleaseRepos,
    Restored,
    RestoreTip,
    RunningSync,
    Started,
    Synced,
    SyncNow,
    Verified,
    WorkerStatus,
)
from evermirror.model.push import Pushed, PushedRef, PushTo, RefOutcome
from evermirror.model.refs import RefChange
from evermirror.model.relay import Denial, RelayAddress, Source
from evermirror.model.repo import Mode, Priority, RepoKey, RepoSpec
from evermirror.model.wire import (
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
    Welcomed,
)

T = TypeVar("T")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
counts = st.integers(0, 2**63 - 1)
words = st.integers(0, 2**64 - 1)
numbers = st.floats(TIME_MIN, TIME_MAX)
hexes = st.binary(min_size=20, max_size=20) | st.binary(min_size=32, max_size=32)
oids = hexes.map(bytes.hex)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
# Any bytes that git allows, as the model holds them.
refs = (
    st.binary(min_size=1, max_size=20)
    .filter(lambda raw: b"\0" not in raw)
    .map(lambda raw: raw.decode("utf-8", "surrogateescape"))
)


def many(items: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(items, max_size=3).map(tuple)


def maybe(items: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.none() | items


waves = st.complex_numbers(max_magnitude=1.0, allow_nan=False, allow_infinity=False)
rhythms = st.just(NO_RHYTHM) | st.builds(Rhythm, st.floats(1.0, 1e6), waves, waves)
fading = st.floats(0.0, TIME_MAX)
activities = st.builds(Activity, st.tuples(fading, fading, fading), numbers, numbers, rhythms)
failures = st.builds(
    Failure,
    st.sampled_from(FailureKind),
    texts,
    hint=texts,
    retry_after_s=maybe(numbers),
    git_command=texts,
    stdout=texts,
    stderr=texts,
    corrupt=st.booleans(),
    context=st.dictionaries(texts, texts, max_size=3),
)
changes = st.builds(RefChange, refs, maybe(oids), maybe(oids))
tips = st.builds(KeptTip, refs, refs, numbers, st.sampled_from(Why), oids, maybe(oids))
held = st.builds(HeldRepo, names, maybe(digests), maybe(numbers))
specs = st.builds(
    RepoSpec,
    names,
    names,
    names,
    st.sampled_from(Priority),
    maybe(numbers),
    st.sampled_from(Mode),
    st.booleans(),
    maybe(names),
    many(names),
    st.booleans(),
    st.booleans(),
    many(names),
)
targets = st.builds(PushTo, counts, names, maybe(names), maybe(digests), st.booleans())
pushed_refs = st.builds(PushedRef, refs, maybe(oids), maybe(oids), st.sampled_from(RefOutcome), texts)
pushes = st.builds(
    Pushed,
    counts,
    maybe(digests),
    maybe(oids),
    many(pushed_refs),
    counts,
    counts,
    counts,
    counts,
    numbers,
    numbers,
    maybe(failures),
    texts,
)


seals = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40)
sources = st.builds(Source, names, names, seals, st.booleans())
relays = st.builds(RelayAddress, names, digests)
holders = st.builds(
    HolderReport,
    names,
    st.just("") | names,
    st.booleans(),
    st.just("") | names,
    st.booleans(),
    maybe(digests),
    maybe(numbers),
)
repo_changes = st.builds(
    Change,
    counts,
    specs,
    maybe(names),
    st.booleans(),
    maybe(digests),
    maybe(numbers),
    maybe(numbers),
    counts,
    st.booleans(),
    many(holders),
    st.booleans(),
)


def _assignments(repos: tuple[RepoSpec, ...]) -> st.SearchStrategy[AssignRepos]:
    parallel = st.tuples(*[maybe(activities) for _ in repos])
    return st.builds(
        AssignRepos,
        st.just(repos),
        st.just(()) | parallel,
        st.booleans(),
        st.frozensets(names, max_size=3),
        st.frozensets(names, max_size=3),
        many(sources),
    )


def _releases(keys: tuple[RepoKey, ...]) -> st.SearchStrategy[ReleaseRepos]:
    parallel = st.tuples(*[words for _ in keys])
    return st.builds(ReleaseRepos, st.just(keys), st.booleans(), st.just(()) | parallel)


limits = st.builds(
    ApplySettings, maybe(numbers), maybe(numbers), maybe(counts), many(st.tuples(names, numbers)), numbers
)
COMMANDS = {
    AssignRepos: many(specs).flatmap(_assignments),
    ReleaseRepos: many(names).flatmap(_releases),
    SyncNow: st.builds(
        SyncNow,
        names,
        counts,
        st.booleans(),
        maybe(oids),
        maybe(st.sampled_from(Priority)),
        st.booleans(),
        many(targets),
        st.booleans(),
    ),
    LookAt: st.builds(LookAt, many(names), many(sources)),
    RestoreTip: st.builds(RestoreTip, names, counts, refs, maybe(refs)),
    ApplySettings: limits,
}
commands = st.one_of(*COMMANDS.values())

progresses = st.builds(Progress, names, many(counts), texts, maybe(numbers), counts, numbers)
statuses = st.builds(
    WorkerStatus,
    counts,
    counts,
    numbers,
    counts,
    counts,
    many(st.builds(RunningSync, names, texts, maybe(numbers), counts, numbers)),
    counts,
    many(st.builds(HostState, names, counts, texts, maybe(numbers), texts)),
    counts,
    counts,
    st.booleans(),
    many(texts),
    numbers,
)
REPORTS = {
    Started: st.builds(Started, names, many(counts), numbers),
    Progress: progresses,
    Synced: st.builds(
        Synced,
        names,
        many(counts),
        digests,
        maybe(oids),
        counts,
        many(changes),
        counts,
        counts,
        counts,
        counts,
        st.booleans(),
        numbers,
        numbers,
        numbers,
        activities,
        many(st.tuples(texts, numbers)),
        many(tips),
        counts,
        many(pushes),
        maybe(numbers),
        st.booleans(),
    ),
    Restored: st.builds(Restored, names, many(counts), refs, oids, numbers, numbers),
    Failed: st.builds(
        Failed, names, many(counts), failures, st.booleans(), counts, numbers, numbers, maybe(numbers)
    ),
    Refused: st.builds(Refused, names, many(counts), failures, numbers, numbers),
    Excused: st.builds(Excused, many(names)),
    Verified: st.builds(Verified, many(st.tuples(names, numbers))),
    Released: st.builds(Released, many(names)),
    Kept: st.builds(Kept, many(held)),
    Declined: st.builds(Declined, many(held)),
    HandedBack: st.builds(HandedBack, many(names), texts),
    Deferred: st.builds(Deferred, many(names)),
    WorkerStatus: statuses,
}
reports = st.one_of(*REPORTS.values())

UPS = {
    Hello: st.builds(
        Hello,
        counts,
        names,
        names,
        counts,
        counts,
        counts,
        counts,
        numbers,
        maybe(counts),
        maybe(relays),
        maybe(st.sampled_from([Role.WORKER, Role.AGGREGATOR])),
        maybe(limits),
        many(names),
    ),
    Beat: st.builds(Beat, statuses, st.lists(names, max_size=3).map(tuple)),
    Holding: st.builds(Holding, many(held), st.booleans()),
    Numbered: st.builds(Numbered, counts, counts, many(reports)),
    Passing: st.builds(Passing, many(progresses)),
    Obeyed: st.builds(Obeyed, counts),
    Compared: st.builds(Compared, many(counts), many(held)),
    Answer: st.builds(Answer, counts, texts, texts),
    Follow: st.builds(Follow, counts),
    Followed: st.builds(Followed, counts),
    Have: st.builds(Have, many(held)),
    Lack: st.builds(Lack, many(names)),
    AskHolders: st.builds(AskHolders, counts, many(names)),
    AskSource: st.builds(AskSource, names),
    Doubted: st.builds(Doubted, many(names)),
    Accused: st.builds(Accused, names, names, texts, texts),
}
ups = st.one_of(*UPS.values())

DOWNS = {
    Welcomed: st.builds(
        Welcomed, counts, counts, st.booleans(), numbers, st.just("") | names, numbers, numbers
    ),
    Rejected: st.builds(Rejected, texts, st.booleans()),
    Ordered: st.builds(Ordered, counts, commands),
    Taken: st.builds(Taken, counts, counts),
    Compare: st.builds(Compare, counts, many(words)),
    Question: st.builds(Question, counts, names, names),
    Access: st.builds(
        Access,
        names,
        seals,
        numbers,
        st.binary(min_size=32, max_size=32),
        many(relays),
        st.booleans(),
        many(st.builds(Denial, names, numbers)),
    ),
    Changes: st.builds(Changes, many(repo_changes), counts),
    Holders: st.builds(Holders, counts, many(st.builds(RepoHolders, names, many(holders)))),
}
downs = st.one_of(*DOWNS.values())
