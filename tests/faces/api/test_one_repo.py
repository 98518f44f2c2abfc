"""One repo's reasoning, pushes and targets; repos on the move."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from evermirror.core.fleet.events import CatalogRepo
from evermirror.errors import BadAnswer
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.figures import PushDay, PushHistory, PushSeen
from evermirror.model.plan import PollPlan, Step, StepCode
from evermirror.model.pull import Target, TargetSpec
from evermirror.model.push import RefStanding, RefState, TargetId
from evermirror.model.refs import Oid, RefsDigest
from evermirror.model.repo import RepoKey
from evermirror.model.report import DAY_S
from evermirror.nodes.pull_service import TargetState

URL, KEY = "https://github.com/o/r", "github.com/o/r"
INSIDE = "https://gitlab.corp/mirrors/r"
HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\udcff"
ONE, TWO = Oid("1" * 40), Oid("2" * 40)


@pytest.fixture(autouse=True)
async def repo(api_service):
    await api_service.add_url(URL, None, actor="test")


async def test_the_plan_has_its_reasoning(client, api_service):
    at = time.time() + 60
    api_service.plan_told = PollPlan(
        at, "its turn", 600.0, None, policy="adaptive", pushes_per_day=2.5, min_gap_s=60.0, max_gap_s=900.0,
        steps=(Step(StepCode.POLICY_GAP, 600.0, None, "x"), Step("turn", None, at, HOSTILE)), worker="wörker",
    )  # fmt: skip
    plan = (await client.get(f"/api/repos/{KEY}")).json()["plan"]
    assert (plan["policy"], plan["pushes_per_day"], plan["min_gap_s"], plan["max_gap_s"], plan["worker"]) == (
        "adaptive", 2.5, 60.0, 900.0, "wörker",
    )  # fmt: skip
    gap, turn = plan["steps"]
    assert gap == {"code": "policy_gap", "s": 600.0, "at": None, "detail": "x"}
    assert turn["at"] == plan["next_poll_at"]
    assert turn["detail"].endswith("\N{REPLACEMENT CHARACTER}")


@pytest.mark.parametrize(("asked", "path"), [("refs", "/-/refs"), ("plan", ""), ("history", "/-/history")])
async def test_an_answer_of_a_worker_that_cannot_be_read_is_502(client, api_service, asked, path):
    async def refuse(*args):
        raise BadAnswer("the worker that holds it gave an answer that cannot be read", hint="Upgrade it")

    setattr(api_service, asked, refuse)
    answer = await client.get(f"/api/repos/{KEY}{path}")
    assert (answer.status_code, answer.json()["type"]) == (502, "/problems/bad-answer")


async def test_what_a_worker_of_the_version_before_tells_is_shown_too(client):
    plan = (await client.get(f"/api/repos/{KEY}")).json()["plan"]
    assert (plan["policy"], plan["pushes_per_day"], plan["steps"], plan["gap_s"]) == ("", None, [], 600.0)


async def test_a_project_is_looked_at_when_the_coordinator_says(client, api_service, pull):
    api_service.plan_told = replace(api_service.plan_told, source_url="https://b.example/r", worker="w")
    pull.plans[KEY] = PollPlan(
        5.0, "its interval", 300.0, 1.0, policy="pull", steps=(Step("due", None, 5.0),)
    )
    repo = (await client.get(f"/api/repos/{KEY}")).json()
    assert (repo["plan"]["policy"], repo["plan"]["gap_s"], repo["plan"]["worker"]) == ("pull", 300.0, "w")
    assert repo["source_url"] == "https://b.example/r", "as its worker knows it"


async def test_a_project_that_no_worker_has_is_told_no_time(client, api_service, pull):
    api_service.plan_told = PollPlan.without_time(StepCode.NOT_PLACED, "not assigned")
    steps = (Step(StepCode.PROJECT, 300.0), Step(StepCode.DUE, None, 5.0))
    pull.plans[KEY] = PollPlan(5.0, "its interval", 300.0, 1.0, policy="pull", steps=steps)
    plan = (await client.get(f"/api/repos/{KEY}")).json()["plan"]
    assert (plan["next_poll_at"], plan["worker"], plan["reason"]) == (None, None, "not assigned")
    assert [step["code"] for step in plan["steps"]] == ["not_placed"]
    assert (plan["policy"], plan["gap_s"], plan["last_poll_at"]) == ("pull", 300.0, "1970-01-01T00:00:01Z")


async def test_pushes_are_given_for_every_day_up_to_today(client, api_service):
    now = time.time()
    today = int(now // DAY_S)
    api_service.push_history = PushHistory(
        (PushDay(today - 2, 3, 40), PushDay(today, 1, 0)), (PushSeen(now - 5, 0, 2),), now - 3600
    )
    told = (await client.get(f"/api/repos/{KEY}/-/pushes?days=4")).json()
    day = datetime.now(UTC).date()
    assert [d["day"] for d in told["days"]] == [str(day - timedelta(n)) for n in (3, 2, 1, 0)]
    assert [(d["pushes"], d["commits"]) for d in told["days"]] == [(0, 0), (3, 40), (0, 0), (1, 0)]
    assert (told["recent"][0]["refs"], told["recent"][0]["commits"]) == (2, 0)
    record = await api_service.find_repo(KEY)
    since = datetime.fromisoformat(told["since"]).timestamp()
    assert since == pytest.approx(max(record.created_at, now - 3600), abs=1)
    assert api_service.pushes_since == (today - 3) * DAY_S
    assert len((await client.get(f"/api/repos/{KEY}/-/pushes")).json()["days"]) == 30
    for days in ("0", "91", "x"):
        refused = await client.get(f"/api/repos/{KEY}/-/pushes?days={days}")
        assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")


def state(target, *refs, total=3, equal=2):
    return TargetState(target, refs, total, equal, seen_at=50.0)


def target(**more):
    return Target(TargetId(1), INSIDE, "corp-token", RefsDigest("d"), put_at=40.0, **more)


BEHIND = RefStanding("refs/heads/a", RefState.BEHIND, TWO, ONE)
FOREIGN = RefStanding(HOSTILE, RefState.FOREIGN, TWO, ONE, f"{HOSTILE} says no")
CONFLICT = Failure(FailureKind.CONFLICT, "1 ref could not be put")
DENIED = Failure(FailureKind.PERMISSION_DENIED, f"you may not: {HOSTILE}", "Ask")


async def test_targets_are_told_ref_by_ref_without_the_credentials_name(client, pull):
    pull.target_states[KEY] = (state(target(last_failure=DENIED, last_failure_at=45.0), FOREIGN, BEHIND),)
    answer = await client.get(f"/api/repos/{KEY}/-/targets")
    told = answer.json()
    one = told["targets"][0]
    assert (told["total"], one["url"], one["credential"], one["status"]) == (1, INSIDE, True, "conflict")
    assert (one["refs_total"], one["refs_equal"], one["last_error"]["error_type"]) == (
        3, 2, "PERMISSION_DENIED",
    )  # fmt: skip
    assert one["last_push_at"] < one["checked_at"]
    assert [(r["state"], r["ours"], r["theirs"]) for r in one["refs"]] == [
        ("foreign", TWO, ONE), ("behind", TWO, ONE),
    ]  # fmt: skip
    assert "corp-token" not in answer.text
    assert one["refs"][0]["name"].endswith("\N{REPLACEMENT CHARACTER}")


@pytest.mark.parametrize(
    ("given", "status", "error"),
    [
        (state(target(), equal=3), "equal", False),
        (state(target(last_failure=DENIED), equal=3), "equal", False),
        (state(target(), BEHIND), "behind", False),
        (state(target(), total=None, equal=None), "unknown", False),
        (state(target(), FOREIGN, total=None, equal=None), "conflict", False),
        (state(Target(TargetId(1), INSIDE), total=None, equal=None), "new", False),
        (state(target(), total=0, equal=0), "equal", False),
        (state(target(), total=5, equal=None), "behind", False),
        (state(target(failures=2, last_failure=DENIED), BEHIND), "failing", True),
        (state(target(failures=1, last_failure=CONFLICT), FOREIGN), "conflict", True),
        (state(target(paused="PERMISSION_DENIED", last_failure=DENIED), FOREIGN), "paused", True),
        (state(Target(TargetId(1), INSIDE), total=5, equal=0), "new", False),
    ],
)
async def test_a_targets_state_in_one_word(given, status, error, client, pull):
    pull.target_states[KEY] = (given,)
    one = (await client.get(f"/api/repos/{KEY}/-/targets")).json()["targets"][0]
    assert (one["status"], one["last_error"] is not None) == (status, error)


async def test_the_public_hears_how_many_targets_there_are_and_nothing_of_private_repos(house, api_service):
    house.pull.add("core", URL, targets=(TargetSpec(INSIDE), TargetSpec(f"{INSIDE}2")))
    house.pull.target_states[KEY] = (state(target(), FOREIGN),)
    app = house.with_tokens().app()
    async with house.client(app=app) as anybody, house.client("em_reader", app=app) as reader:
        answer = await anybody.get(f"/api/repos/{KEY}/-/targets")
        assert answer.json() == {"targets": [], "total": 2}
        assert house.pull.planned == house.pull.targets_asked == 0, "no worker is asked for that"
        assert len((await reader.get(f"/api/repos/{KEY}/-/targets")).json()["targets"]) == 1
        record = api_service.repos[KEY]
        api_service.repos[KEY] = replace(record, spec=replace(record.spec, private=True))
        for what in ("pushes", "targets"):
            assert (await anybody.get(f"/api/repos/{KEY}/-/{what}")).status_code == 404
            assert (await reader.get(f"/api/repos/{KEY}/-/{what}")).status_code == 200


async def test_without_pull_mirroring_there_are_no_targets(house):
    house.pull = None
    async with house.client() as client:
        assert (await client.get(f"/api/repos/{KEY}/-/targets")).json() == {"targets": [], "total": 0}
        assert (await client.get(f"/api/repos/{KEY}")).json()["plan"]["gap_s"] == 600.0


async def test_moves_name_who_gives_and_who_gets_and_hide_private_repos(house):
    crew = house.fleet.crew
    crew.catalog(CatalogRepo(RepoKey("h/secret"), trusted_only=True), "h/e")
    crew.run()
    app = house.with_tokens().app()
    async with (
        house.client(app=app) as anybody,
        house.client("em_reader", app=app) as reader,
        house.client("em_operator", app=app) as operator,
    ):
        assert (await reader.get("/api/fleet/moves")).json() == {"items": [], "total": 0}
        for name in ("own", "third"):
            assert (await operator.post(f"/api/fleet/workers/{name}/drain")).status_code == 200
        moves = (await reader.get("/api/fleet/moves")).json()
        totals = (await reader.get("/api/fleet")).json()["totals"]
        assert moves["total"] == len(moves["items"]) == totals["moving"] > 0
        for move in moves["items"]:
            assert move.keys() == {"repo", "from", "to", "state", "reason"}
            assert move["from"][0] in ("own", "third")
            assert move["to"] == ["wörker 2"]
            assert move["state"] in ("planned", "asked")
            assert move["reason"] == "the worker that had it is being drained"
        few = (await reader.get("/api/fleet/moves?limit=1")).json()
        assert (few["items"], few["total"]) == (moves["items"][:1], moves["total"])
        assert "h/secret" not in (await anybody.get("/api/fleet/moves")).text
        assert (await reader.get("/api/fleet/moves?limit=1001")).status_code == 422
    house.fleet = None
    async with house.client() as client:
        assert (await client.get("/api/fleet/moves")).status_code == 404
