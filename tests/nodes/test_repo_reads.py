"""What is told of one repo by the coordinator and its worker together: its plan, its targets ref by ref."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from evermirror.core.schedule.views import Explanation
from evermirror.errors import Unavailable
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.plan import PollPlan, Step, StepCode
from evermirror.model.push import (
    Pushed,
    PushedRef,
    RefOutcome,
    RefStanding,
    RefState,
    Standings,
    TargetStanding,
)
from evermirror.model.refs import Oid, RefsDigest
from evermirror.model.wire import Answer
from evermirror.nodes.worker.questions import RemoteView
from tests.nodes.pull_house import PUT, key_of
from tests.nodes.test_pull_reads import house as house  # the fixture

TARGET, OTHER = "https://target.example.org/core.git", "https://other.example.org/core.git"
MAIN, TAG = "refs/heads/main", "refs/tags/v1"
ONE, TWO = Oid("1" * 40), Oid("2" * 40)
DOWN = Failure(FailureKind.NETWORK_TIMEOUT, "no answer")
CONFLICT = Failure(FailureKind.CONFLICT, "1 ref could not be put")


def says(house, **answers):
    """What the worker answers from now on; another question is none that it knows."""
    usual = house.worker.answer
    house.worker.answer = lambda what, key: answers[what] if what in answers else usual(what, key)


def standings(target, *refs, equal=1, digest="0" * 64):
    told = TargetStanding(target.id, target.url, equal, refs)
    plain = asdict(Standings(2, RefsDigest(digest), (told,)))
    for one in plain["targets"]:
        for ref in one["refs"]:
            ref["state"] = ref["state"].value
    return plain


async def test_a_projects_targets_are_what_the_worker_knows_and_what_the_last_push_found(house):
    view = await house.create("core", TARGET, OTHER)
    first, second = view.project.targets
    sync = await house.one_sync()
    found = PushedRef(MAIN, TWO, ONE, RefOutcome.CONFLICT, "something else is there")
    pushes = (
        Pushed(first.id, None, refs=(found,), waiting_total=1, failure=CONFLICT, ended_at=house.clock.now),
        Pushed(second.id, PUT, put_total=2, ended_at=house.clock.now),
    )
    await house.did(sync, pushes=pushes)
    says(house, standings=standings(first, RefStanding(TAG, RefState.MISSING, ONE, None), digest=PUT))
    one, two = await house.admin.targets(key_of("core"))
    assert [(r.name, r.state, r.reason) for r in one.refs] == [
        (MAIN, RefState.FOREIGN, "something else is there"),
        (TAG, RefState.MISSING, ""),
    ]
    assert (one.total, one.equal, one.seen_at) == (2, 0, pushes[0].ended_at)
    assert (two.refs, two.total, two.equal) == ((), 2, 2), "put there by another worker, as the digest says"

    await house.later(48 * 3600)
    again = await house.one_sync()
    down = tuple(Pushed(to.target, None, failure=DOWN) for to in again.push)
    await house.did(again, moved=False, pushes=down)
    one, _ = await house.admin.targets(key_of("core"))
    assert one.refs[0].state is RefState.FOREIGN, "a push that did not get there says nothing"
    assert one.target.last_failure == DOWN


async def test_without_a_word_of_the_worker_the_last_push_is_what_is_known(house):
    view = await house.create("core", TARGET)
    (target,) = view.project.targets
    refused = PushedRef(MAIN, None, ONE, RefOutcome.REFUSED, "protected")
    push = Pushed(target.id, None, refs=(refused,), waiting_total=1, failure=CONFLICT)
    await house.did(await house.one_sync(), pushes=(push,))
    (state,) = await house.admin.targets(key_of("core"))  # it answers something that is not understood
    assert (state.total, state.equal) == (None, None)
    assert [(r.state, r.ours, r.reason) for r in state.refs] == [(RefState.REFUSED, ONE, "protected")]
    await house.add(alias="plain/repo")
    assert await house.admin.targets((await house.repo()).key) == ()


async def test_a_project_tells_its_own_plan_and_a_plain_repo_its_workers(house):
    await house.create("core", TARGET)
    await house.did(await house.one_sync())
    told = await house.admin.plan(key_of("core"))
    assert (told.policy, told.steps[-1].code) == ("pull", StepCode.DUE)
    assert told.next_poll_at == (await house.project("core")).next_sync_at
    await house.add(alias="plain/repo")
    key = (await house.repo()).key
    assert await house.admin.plan(key) is None
    plan = await house.it.plan(key)
    assert (plan.worker, plan.steps, plan.policy) == ("here", (), ""), "a worker that tells no steps"
    step = {"code": "turn", "s": None, "at": 5.0, "detail": "x", "of_later": 1}
    says(house, plan={**asdict(PollPlan(5.0, "x", 1.0, None)), "steps": [step], "of_later": True})
    assert (await house.it.plan(key)).steps == (Step("turn", None, 5.0, "x"),)
    says(house, plan=["nonsense"])
    with pytest.raises(Unavailable):
        await house.it.plan(key)


async def test_every_field_of_a_plan_travels():
    told = Explanation(
        "k", None, "why", 9.0, 2.0, 1.0, 0, None, 3.0, "adaptive", 60.0, 900.0, (Step("due", 1.0, 9.0, "d"),)
    ).plan("https://a.example/k")
    assert None not in (told.policy or None, told.pushes_per_day, told.min_gap_s, told.max_gap_s)

    async def ask(what, key):
        return Answer(1, json.dumps(asdict(told)))

    assert await RemoteView(ask).plan("k") == told
