"""What hooks teach: with a real store and a clock that is moved; then in a real all-in-one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from evermirror.core.hooks import trust as rules
from evermirror.core.watch.kinds import HOOK_KINDS
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import RepoSynced
from evermirror.model.activity import Activity
from evermirror.model.alert import Alert
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.forge import Forge
from evermirror.model.hook import HookMemory, HookRegistration, HookTrust, RegistrationState
from evermirror.model.messages import Synced, Verified
from evermirror.model.repo import Host, RepoKey, RepoRecord, RepoSpec
from evermirror.model.task import TaskId, Trigger
from evermirror.model.worker import WorkerId
from evermirror.nodes.coordinator.hooks import hook_trust as module
from evermirror.nodes.coordinator.hooks.hook_trust import HookLearning, Surroundings
from evermirror.nodes.hook_service import HookSelection
from tests.support.gitrepo import UpstreamRepo
from tests.support.sent_hooks import HOOKS_PATH, push_of
from tests.support.stage import Running, Stage

pytestmark = pytest.mark.timeout(120)

T0 = 1_700_000_000.0
MINE, OTHER = WorkerId(1), WorkerId(2)
HOOK, POLL, ASKED, PULL = (
    frozenset({Trigger.WEBHOOK}),
    frozenset(),
    frozenset({Trigger.API}),
    frozenset({Trigger.SCHEDULE}),
)


def key(name: str) -> RepoKey:
    return RepoKey(f"h.org/{name}")


class Alerts:
    """Takes what is told."""

    def __init__(self) -> None:
        self.standing: dict[str, Alert] = {}
        self.calls = 0

    def told(self, alert: Alert) -> None:
        raise AssertionError("all of them stand, or none")

    def stand(self, kinds, alerts) -> None:
        assert kinds == HOOK_KINDS
        self.standing = {alert.about: alert for alert in alerts}
        self.calls += 1

    def stands(self, kinds) -> tuple[Alert, ...]:
        return ()


class House:
    def __init__(self, store: Store) -> None:
        self.store, self.now, self.alerts = store, T0, Alerts()
        self.told: list[set[RepoKey]] = []
        self.triggers: frozenset[Trigger] = POLL
        self.primary, self.changes = MINE, 0
        self.learning = self.made()

    def made(self) -> HookLearning:
        async def tell_again(keys) -> None:
            self.told.append(set(keys))

        around = Surroundings(lambda key: self.primary, lambda ids: self.triggers, tell_again)
        return HookLearning(self.store, self.alerts, around, lambda: self.now)

    async def restart(self) -> None:
        self.learning = self.made()
        await self.learning.load()
        self.now += 60

    def changed(
        self, name: str, by: frozenset[Trigger], worker=MINE, *, first=False, changes=1, digest=None
    ) -> None:
        self.triggers = by
        self.changes += 1
        digest = digest or f"{self.changes:016x}" + 48 * "0"
        report = Synced(
            key(name), (TaskId(7),), digest, None, 1, (), changes, 1, 0, 0, first, self.now, self.now,
            self.now, Activity(),
        )  # fmt: skip
        self.learning.reported(worker, report)

    async def round(self, later_s: float = 600.0) -> None:
        self.now += later_s
        await self.learning.round()

    async def tell(self, name: str, times: int = 1) -> None:
        for _ in range(times):
            self.learning.heard(key(name), self.now)
            self.changed(name, HOOK)
            await self.round()

    async def miss(self, name: str, times: int = 1) -> None:
        for _ in range(times):
            self.changed(name, POLL)
            await self.round()

    async def has_refs(self, name: str, digest: str) -> None:
        """As the report that told of them was stored."""
        synced = RepoSynced(key(name), digest, None, 1, 1, self.now, self.now, Activity())
        await self.store.apply([synced])

    async def hooked(self, name: str) -> bool:
        return (await self.store.specs_of([key(name)]))[0].spec.hooked

    async def trust(self, name: str) -> HookTrust | None:
        memory = (await self.learning.hooks_of(key(name))).memory
        return memory.trust if memory is not None else None

    async def news(self) -> list[tuple[str, str | None]]:
        page = await self.store.events_after(0, 1000)
        return [(e.type, e.repo) for e in page.events if e.type.startswith("hooks.")]


@pytest.fixture
async def house(tmp_path) -> AsyncIterator[House]:
    store = await Store.open(f"sqlite:///{tmp_path}/store.db")
    names = ["a", "b", "c"]
    await store.upsert_repos(
        [RepoRecord(RepoSpec(key(n), f"https://{key(n)}", Host("h.org")), source="api") for n in names]
    )
    house = House(store)
    await house.learning.load()
    yield house
    await store.close()


async def test_reliable_hooks_are_stored_told_to_the_fleet_and_to_followers(house):
    await house.tell("a", 4)
    assert not await house.hooked("a")
    assert house.told == []
    await house.tell("a")
    assert await house.hooked("a")
    assert house.told == [{key("a")}]
    assert await house.news() == [("hooks.reliable", key("a"))]
    assert house.learning.counts()[HookTrust.RELIABLE] == 1
    await house.tell("a", 3)
    assert len(house.told) == 1, "said once"


async def test_a_miss_takes_it_back_and_the_next_is_flagged_for_the_host(house):
    await house.tell("a", 5)
    await house.miss("a")
    assert not await house.hooked("a")
    assert house.told == [{key("a")}, {key("a")}]
    assert house.alerts.standing == {}
    await house.miss("a")
    await house.tell("b")
    await house.miss("b", 2)
    assert await house.news() == [
        ("hooks.reliable", key("a")), ("hooks.silent", key("a")), ("hooks.silent", key("b")),
    ]  # fmt: skip
    assert set(house.alerts.standing) == {"h.org"}
    alert = house.alerts.standing["h.org"]
    assert alert.facts == {"count": "2", "example": key("a")}
    assert "2 repos, such as h.org/a" in alert.text
    await house.tell("a", 2)
    assert house.alerts.standing["h.org"].facts == {"count": "1", "example": key("b")}
    house.learning.expect([key("b")])
    await house.round()
    assert house.alerts.standing == {}, "a hook made anew"


async def test_a_host_that_is_not_heard_at_all_is_polled_as_before(house):
    await house.store.upsert_repos(
        [RepoRecord(RepoSpec(key("d"), f"https://{key('d')}", Host("h.org")), source="api")]
    )
    for name in "abcd":
        await house.tell(name, 5)
    for name in "abc":
        await house.miss(name)
    assert not await house.hooked("d"), "it missed none itself"
    assert await house.trust("d") is HookTrust.UNPROVEN
    assert house.alerts.standing == {}
    await house.tell("d")
    assert await house.hooked("d")


async def test_what_followers_of_the_primary_report_later_is_no_change_of_its_own(house):
    await house.tell("a", 5)
    for _ in range(5):
        house.changed("a", POLL, worker=OTHER)
        await house.round()
    assert await house.hooked("a")


async def test_an_outage_of_the_forge_during_which_hooks_came_is_not_held_against_them(house):
    for name in "abc":
        await house.tell(name, 5)
    for _ in range(2):
        for name in "abc":
            house.learning.heard(key(name), house.now)
        await house.round(900)
        for name in "abc":
            house.changed(name, POLL)
        await house.round()
    assert house.learning.counts()[HookTrust.RELIABLE] == 3
    assert house.alerts.standing == {}


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_new_primary_that_catches_up_with_what_was_known_is_no_miss(house, restarted):
    known = "7" * 64
    await house.tell("a", 5)
    house.learning.heard(key("a"), house.now)
    house.changed("a", HOOK, digest=known)
    await house.round()
    if restarted:
        await house.has_refs("a", known)
        await house.restart()
    house.learning.reported(MINE, Verified(((key("a"), house.now),)))
    house.primary = OTHER
    house.changed("a", POLL, worker=OTHER, digest=known)
    await house.round()
    assert await house.hooked("a")
    house.changed("a", POLL, worker=OTHER)
    await house.round()
    assert not await house.hooked("a")


async def test_a_poll_that_verified_the_repo_since_the_start_leaves_nothing_to_excuse(house):
    await house.tell("a", 5)
    await house.restart()
    house.learning.reported(OTHER, Verified(((key("a"), house.now),)))
    house.learning.reported(MINE, Verified(((key("b"), house.now), (key("a"), house.now))))
    await house.miss("a")
    assert not await house.hooked("a")


@pytest.mark.parametrize("about", [{"first": True}, {"changes": 0}])
async def test_a_first_clone_and_a_look_that_found_nothing_count_for_nothing(house, about):
    await house.tell("a", 5)
    for _ in range(3):
        house.changed("a", POLL, **about)
        await house.round()
    assert await house.hooked("a")


async def test_what_people_asked_for_is_no_miss_and_what_a_projects_schedule_found_is(house):
    await house.tell("a", 5)
    for _ in range(5):
        house.changed("a", ASKED)
        await house.round()
    assert await house.hooked("a")
    house.changed("a", PULL)
    await house.round()
    assert not await house.hooked("a")


async def test_repos_without_hooks_are_not_remembered(house):
    await house.miss("a", 5)
    assert await house.trust("a") is None
    assert await house.learning.hooks(HookSelection()) == ()


async def test_all_is_known_after_a_restart_and_what_stood_stands_again(house):
    await house.tell("a", 5)
    await house.tell("b")
    await house.miss("b", 2)
    await house.restart()
    assert house.learning.counts() == {
        HookTrust.UNPROVEN: 0, HookTrust.RELIABLE: 1, HookTrust.SILENT: 1,
    }  # fmt: skip
    house.alerts.standing.clear()
    await house.round()
    assert house.alerts.standing["h.org"].facts["count"] == "1"
    await house.miss("a")
    assert await house.hooked("a"), "its push may have come while nobody listened"
    await house.miss("a")
    assert not await house.hooked("a")


async def test_a_repo_that_left_is_forgotten_and_starts_anew(house):
    await house.tell("a", 5)
    await house.tell("b")
    await house.miss("b", 2)
    await house.store.remove_repos([key("a"), key("b")], house.now)
    house.learning.forget([key("a"), key("b"), key("never")])
    await house.round()
    assert house.alerts.standing == {}
    assert sum(house.learning.counts().values()) == 0
    await house.store.restore_repo(key("a"), house.now)
    assert not await house.hooked("a")
    assert await house.trust("a") is None
    await house.tell("a", 5)
    assert await house.hooked("a")


async def test_ours_removed_at_the_forge_is_forgotten_and_polled_as_before(house):
    await house.tell("a", 5)
    house.learning.forget([key("a")])
    await house.round()
    assert not await house.hooked("a")
    assert house.told[-1] == {key("a")}
    await house.miss("a", 3)
    assert house.alerts.standing == {}


async def test_a_database_that_is_away_loses_nothing(house, monkeypatch):
    real, refusals = house.store.save_hooks, []

    async def refused(*args, **kwargs):
        refusals.append(1)
        raise FailureError(Failure(FailureKind.UNKNOWN, "the database is away"))

    monkeypatch.setattr(house.store, "save_hooks", refused)
    await house.tell("a", 5)
    await house.tell("b")
    assert len(refusals) == 6
    monkeypatch.setattr(house.store, "save_hooks", real)
    await house.round()
    assert await house.hooked("a")
    assert await house.news() == [("hooks.reliable", key("a"))]
    page = await house.learning.hooks(HookSelection())
    assert [(v.key, v.memory.received) for v in page] == [(key("a"), 5), (key("b"), 1)]
    assert house.told == [{key("a")}]


async def test_a_fleet_that_cannot_be_told_is_told_later(house, monkeypatch):
    async def refused(keys):
        raise FailureError(Failure(FailureKind.UNKNOWN, "away"))

    around = house.learning._around
    house.learning._around = Surroundings(around.primary_of, around.triggers_of, refused)
    await house.tell("a", 5)
    house.learning._around = around
    await house.round()
    assert house.told == [{key("a")}]


async def test_many_are_told_some_at_a_time(house, monkeypatch):
    monkeypatch.setattr(module, "TELL_MAX", 2)
    monkeypatch.setattr(module, "SAVE_MAX", 1)
    for _ in range(5):
        for name in "abc":
            house.learning.heard(key(name), house.now)
            house.changed(name, HOOK)
        await house.round()
    assert [len(told) for told in house.told] == [2]
    await house.round()
    assert set().union(*house.told) == {key(n) for n in "abc"}


async def test_lists_show_memories_and_registrations_as_of_now(house):
    registration = HookRegistration(key("b"), Forge.GITHUB, RegistrationState.MISSING, checked_at=1.0)
    await house.store.put_registrations([registration])
    house.learning.heard(key("a"), house.now)
    found = await house.learning.hooks(HookSelection())
    assert [(v.key, v.memory is not None, v.registration) for v in found] == [
        (key("a"), True, None), (key("b"), False, registration),
    ]  # fmt: skip
    assert await house.learning.hooks(HookSelection(trust=HookTrust.SILENT)) == ()
    one = await house.learning.hooks_of(key("b"))
    assert (one.memory, one.registration) == (None, registration)
    assert (await house.learning.hooks_of(key("c"))).registration is None


async def test_what_was_learnt_last_is_on_the_disk_after_a_stop(house):
    running = asyncio.create_task(house.learning.run())
    await asyncio.sleep(0.1)
    house.learning.heard(key("a"), house.now)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    stored = [m async for chunk in house.store.load_hook_memories() for m in chunk]
    assert stored == [(HookMemory(key("a"), since=T0, received=1, last_at=T0), None)]


# In one process, with a real upstream and hooks over HTTP

SECRET = "the forge and we know this"
NAME = "team/one"


SETTINGS = {"webhooks": {"github_secret": SECRET}, "schedule": {"min_gap": "1s", "max_gap": "4s"}}


class Scene:
    """A repo that is polled every second, or every four where its hooks are reliable."""

    def __init__(self, up: Running) -> None:
        self.up = up
        self.repo: UpstreamRepo = up.stage.upstream.create(NAME)

    async def start(self) -> None:
        await self.up.add(self.repo.url)
        await self.up.until_status(NAME, "active")

    async def here(self) -> None:
        async def same() -> bool:
            return self.up.refs(NAME) == self.repo.public_refs()

        await self.up.until(same)

    async def push(self, *, hook: bool) -> None:
        self.repo.commit()
        if hook:
            sent = push_of(self.repo.url, SECRET)
            answer = await self.up.client.post(HOOKS_PATH, content=sent.body, headers=sent.headers)
            assert answer.status_code == 202, answer.text
        await self.here()
        await asyncio.sleep(1.2)  # the next hook is looked at on its own

    async def get(self, path: str) -> dict:
        answer = await self.up.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def shown(self) -> dict:
        return await self.get(f"/api/repos/{self.up.key(NAME)}")

    async def until_trust(self, trust: str) -> dict:
        async def holds() -> bool:
            return ((await self.shown())["hooks"] or {}).get("trust") == trust

        await self.up.until(holds)
        return await self.shown()

    async def until_gap(self, gap_s: float) -> dict:
        async def holds() -> bool:
            return (await self.shown())["plan"]["gap_s"] == gap_s

        await self.up.until(holds)
        return await self.shown()

    async def events(self) -> list[str]:
        page = await self.up.node.lead.store.events_after(0, 1000)
        return [e.type for e in page.events if e.type.startswith("hooks.")]


async def test_hooks_prove_themselves_fall_silent_and_are_mended(stage: Stage, monkeypatch) -> None:
    monkeypatch.setattr(rules, "TOLERANCE_S", 1.5)
    async with stage.up(**SETTINGS) as up:
        scene = Scene(up)
        await scene.start()
        assert (await scene.shown())["hooks"] is None
        assert (await scene.shown())["plan"]["gap_s"] == 1.0
        for _ in range(5):
            await scene.push(hook=True)
        assert (await scene.until_trust("reliable"))["hooks"]["told"] == 5
        plan = (await scene.until_gap(4.0))["plan"]
        assert plan["reason"].endswith("; its hooks have proved reliable: polled less")
        listed = await scene.get("/api/hooks?trust=reliable")
        assert [item["repo"] for item in listed["items"]] == [up.key(NAME)]

        await scene.push(hook=False)
        shown = await scene.until_gap(1.0)
        assert "hooks" not in shown["plan"]["reason"]
        await scene.push(hook=False)
        hooks = (await scene.until_trust("silent"))["hooks"]
        assert (hooks["missed"], hooks["needed"]) == (2, 10)

        async def flagged() -> bool:
            items = (await scene.get("/api/alerts?kind=hooks-silent"))["items"]
            return [item["about"] for item in items] == [stage.upstream.host]

        await up.until(flagged)
        assert await scene.events() == ["hooks.reliable", "hooks.silent"]
        metrics = (await up.client.get("/metrics")).text
        assert 'evermirror_hooked_repos{trust="silent"} 1.0' in metrics

        for _ in range(2):
            await scene.push(hook=True)
        await scene.until_trust("unproven")

        async def over() -> bool:
            return not (await scene.get("/api/alerts?kind=hooks-silent"))["items"]

        await up.until(over)


async def test_reliability_survives_a_restart_and_a_removal_ends_it(stage: Stage) -> None:
    async with stage.up(**SETTINGS) as up:
        scene = Scene(up)
        await scene.start()
        for _ in range(5):
            await scene.push(hook=True)
        await scene.until_gap(4.0)
    async with stage.up(**SETTINGS) as up:
        scene.up = up
        assert (await scene.until_trust("reliable"))["hooks"]["received"] == 5
        await scene.until_gap(4.0)
        answer = await up.client.delete(f"/api/git_urls/{up.key(NAME)}")
        assert answer.status_code == 200, answer.text
        assert (await scene.get("/api/hooks"))["items"] == []
        await scene.start()
        shown = await scene.until_gap(1.0)
        assert shown["hooks"] is None
