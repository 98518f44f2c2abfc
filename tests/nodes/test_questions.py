"""What a worker answers is read by its types and within bounds; anything else is refused in words."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from evermirror.errors import BadAnswer, NotFound, Unavailable
from evermirror.model.kept import GuardMemory, GuardReason, KeptTip, Why
from evermirror.model.plan import PollPlan, Step
from evermirror.model.push import RefStanding, RefState, Standings, TargetId, TargetStanding
from evermirror.model.refs import Oid, RefsDigest, RefSnapshot
from evermirror.model.repo import RepoKey
from evermirror.model.wire import Answer
from evermirror.nodes.service import Upkeep
from evermirror.nodes.worker.questions import LARGE_CHARS, RemoteView

KEY = RepoKey("example.org/a/b")
ONE, DIGEST = Oid("1" * 40), RefsDigest("d" * 64)
TOLD = {
    "plan": PollPlan(5.0, "why", None, 1.0, steps=(Step("due", None, 5.0, "x"),)),
    "refs": RefSnapshot({"refs/heads/main": ONE, "refs/heads/\udcff": Oid("2" * 64)}, "refs/heads/main"),
    "guard": GuardMemory(GuardReason.EMPTIED, 5.0, 2, DIGEST, 7),
    "history": (KeptTip("refs/evermirror/kept/x", "refs/heads/x", 5.0, Why.DELETED, ONE, None),),
    "upkeep": Upkeep(1, 2, 3, 4, 5, True, None, 6.0),
    "standings": Standings(
        2,
        DIGEST,
        (TargetStanding(TargetId(3), "u", 1, (RefStanding("n", RefState.EXTRA, None, ONE),)),),
    ),
}


def written(value) -> str:
    plain = [asdict(one) for one in value] if isinstance(value, tuple) else asdict(value)
    return json.dumps(plain, default=lambda member: member.value)


def view_of(body: str, error: str = "", complaints=None) -> RemoteView:
    async def ask(what, key):
        return Answer(1, body, error)

    def complain(what, key, why):
        if complaints is not None:
            complaints.append((what, key, why))

    return RemoteView(ask, complain)


@pytest.mark.parametrize("what", TOLD)
async def test_what_is_told_arrives(what):
    assert await getattr(view_of(written(TOLD[what])), what)(KEY) == TOLD[what]


@pytest.mark.parametrize("what", ["guard", "upkeep"])
async def test_nothing_to_tell_arrives_too(what):
    assert await getattr(view_of("null"), what)(KEY) is None


async def test_a_large_answer_arrives():
    refs = RefSnapshot({f"refs/heads/{n}": ONE for n in range(10_000)})
    body = written(refs)
    assert len(body) > LARGE_CHARS
    assert await view_of(body).refs(KEY) == refs


NO_JSON = ["", "{", "[" * 100_000, "nul", "9" * 5_000, "\0"]
WRONG_SHAPES = ["7", '"text"', "true", "[7]", "[[]]", '{"refs": 7}', '{"refs": [], "head": 7}', "{}"]


@pytest.mark.parametrize("what", TOLD)
@pytest.mark.parametrize("body", [*NO_JSON, *WRONG_SHAPES])
async def test_an_answer_of_another_shape_is_refused_and_told(what, body):
    complaints = []
    with pytest.raises(BadAnswer, match="cannot be read"):
        await getattr(view_of(body, complaints=complaints), what)(KEY)
    assert [(w, k) for w, k, _ in complaints] == [(what, KEY)]


BAD_LEAVES = {
    "a number": [-1, 2**63, 1e400, float("nan"), 1e300, "1", None, True, [], {}],
    "a name": [7, None, [], {}, True, "x" * 100_000],
}


@pytest.mark.parametrize(
    ("what", "path", "values"),
    [
        ("plan", ("next_poll_at",), [1e400, -1e300, "soon", [], True]),
        ("plan", ("reason",), BAD_LEAVES["a name"]),
        ("plan", ("steps", 0, "code"), BAD_LEAVES["a name"]),
        ("plan", ("steps", 0, "at"), [1e300, 10**400, "x", {}]),
        ("refs", ("head",), [7, [], {}, True]),
        ("refs", ("refs", "refs/heads/main"), [7, None, "", "1" * 39, "g" * 40, "1" * 40 + "\n", []]),
        ("guard", ("reason",), ["other", 7, None, [], {}]),
        ("guard", ("sightings",), [*BAD_LEAVES["a number"], 1.5]),
        ("guard", ("digest",), ["x", 7, None]),
        ("history", (0, "why"), ["other", 7, None, []]),
        ("history", (0, "at"), [1e300, "1", None]),
        ("history", (0, "old"), ["", None, "x", 7]),
        ("upkeep", ("size_bytes",), [*BAD_LEAVES["a number"], 1.5]),
        ("upkeep", ("has_bitmap",), [0, 1, "yes", None]),
        ("standings", ("targets", 0, "equal"), [*BAD_LEAVES["a number"], 1.5]),
        ("standings", ("targets", 0, "refs", 0, "state"), ["other", 7, None]),
        ("standings", ("targets", 0, "refs"), [None, 7, {}, [None], [[]]]),
    ],
)
async def test_each_value_is_of_its_type_and_within_bounds(what, path, values):
    for value in values:
        told = json.loads(written(TOLD[what]))
        place = told
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        with pytest.raises(BadAnswer):
            await getattr(view_of(json.dumps(told)), what)(KEY)


@pytest.mark.parametrize("what", ["plan", "refs", "guard", "upkeep", "standings"])
async def test_what_is_missing_is_named_and_what_is_more_is_left_out(what):
    told = json.loads(written(TOLD[what]))
    assert await getattr(view_of(json.dumps(told | {"later": [1]})), what)(KEY) == TOLD[what]
    first = next(iter(told))
    del told[first]
    with pytest.raises(BadAnswer, match=f"{first} of it is missing"):
        await getattr(view_of(json.dumps(told)), what)(KEY)


async def test_a_workers_error_is_short_and_on_one_line():
    with pytest.raises(Unavailable) as told:
        await view_of("", "a\nb\x1b[31m" + "x" * 60_000).plan(KEY)
    assert told.value.message.startswith("the worker could not answer: a b\N{REPLACEMENT CHARACTER}[31mxx")
    assert len(told.value.message) < 400
    with pytest.raises(NotFound):
        await view_of("", "not-found").plan(KEY)
