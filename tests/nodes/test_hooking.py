"""Hooks over real HTTP to a real all-in-one: what they lead to at a real git server, and what they do not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from evermirror.core.hooks import spacing
from evermirror.errors import Unavailable
from evermirror.model.task import TaskRecord, TaskStatus, Trigger
from evermirror.nodes.coordinator.hooks import hook_additions
from evermirror.nodes.coordinator.hooks import hooking as hooking_module
from evermirror.nodes.service import RepoFilter
from tests.support.gitrepo import UpstreamRepo
from tests.support.sent_hooks import HOOKS_PATH, SentHook, push_of, rename_of, sent
from tests.support.stage import Running, Stage
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.timeout(120)

SECRET = "the forge and we know this"


class Hooked:
    """A node that takes hooks, and repos that nobody polls meanwhile."""

    def __init__(self, up: Running) -> None:
        self.up = up

    async def mirrored(self, name: str) -> UpstreamRepo:
        """Synced once; the next poll is an hour away."""
        repo = self.up.stage.upstream.create(name)
        await self.up.add(repo.url, interval="1h")
        await self.up.until_status(name, "active")
        return repo

    async def send(self, hook: SentHook, **params: str) -> httpx2.Response:
        return await self.up.client.post(HOOKS_PATH, content=hook.body, headers=hook.headers, params=params)

    async def push(self, repo: UpstreamRepo, **params: str) -> dict:
        """A hook that is taken."""
        answer = await self.send(push_of(repo.url, SECRET), **params)
        assert answer.status_code == 202, answer.text
        return answer.json()

    async def tasks(self, name: str) -> tuple[TaskRecord, ...]:
        """Of hooks, newest first."""
        tasks = await self.up.node.coordinator.list_tasks(self.up.key(name), 1000)
        return tuple(task for task in tasks if task.trigger is Trigger.WEBHOOK)

    async def until_ended(self, name: str, at_least: int = 1) -> tuple[TaskRecord, ...]:
        async def ended() -> bool:
            tasks = await self.tasks(name)
            return len(tasks) >= at_least and all(task.status.ended for task in tasks)

        await self.up.until(ended)
        return await self.tasks(name)

    async def until_same(self, repo: UpstreamRepo) -> None:
        async def same() -> bool:
            return self.up.refs(repo.name) == repo.public_refs()

        await self.up.until(same)


def counts(tasks: Iterable[TaskRecord]) -> dict[TaskStatus, int]:
    ends = [task.status for task in tasks]
    return {end: ends.count(end) for end in set(ends)}


def adding(stage: Stage) -> dict[str, object]:
    """Settings with which hooks add repos of the stage's own host."""
    return {"secrets": {stage.upstream.host: SECRET}, "unknown": "add"}


SETTINGS: dict[str, dict[str, object]] = {"webhooks": {"github_secret": SECRET}}


async def test_a_push_that_a_hook_tells_of_is_here_at_once(stage: Stage) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/one")
        repo.commit()
        began = time.monotonic()
        assert await hooked.push(repo) == {"status": "accepted", "repo": up.key("team/one"), "reason": None}
        await hooked.until_same(repo)
        assert time.monotonic() - began < 30  # it is polled in an hour
        task = (await hooked.until_ended("team/one"))[0]
        assert (task.status, task.user) == (TaskStatus.SUCCESS, "github")


async def test_the_hooks_own_address_says_which_repo_whatever_the_body_calls_it(stage: Stage) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/one")
        repo.commit()
        hook = push_of("https://inside.example.org/team/one.git", SECRET)
        answer = await hooked.send(hook, repo=up.key("team/one"))
        assert answer.json()["status"] == "accepted"
        await hooked.until_same(repo)


async def test_of_a_renamed_repository_the_body_names_the_one_that_is_told(stage: Stage) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/new")
        await hooked.mirrored("team/old")
        repo.commit()
        hook = push_of(repo.url, SECRET)  # at the forge it is still registered with the name of before
        answer = await hooked.send(hook, repo=up.key("team/old"))
        assert answer.json() == {"status": "accepted", "repo": up.key("team/new"), "reason": None}
        await hooked.until_same(repo)
        asked = await hooked.until_ended("team/new")
        assert [task.user for task in asked] == ["github"]
        assert await hooked.tasks("team/old") == (), "nothing moved at the old name"
        unknown = push_of(repo.url.replace("new", "newer"), SECRET)
        answer = await hooked.send(unknown, repo=up.key("team/old"))
        assert (answer.json()["status"], answer.json()["repo"]) == ("accepted", up.key("team/old"))


async def test_a_burst_is_one_sync(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooking_module, "ANSWER_S", 20.0)  # 200 at once take their time on a busy machine
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/one")
        repo.commit()
        began = time.monotonic()
        answers = await asyncio.gather(*(hooked.push(repo) for _ in range(200)))
        looks_max = 2 + int(time.monotonic() - began)  # one a second, where sending takes longer
        ends = [answer["status"] for answer in answers]
        assert set(ends) <= {"accepted", "merged"}
        assert 1 <= ends.count("accepted") <= looks_max
        await hooked.until_same(repo)
        await asyncio.sleep(1.2)  # the look for those that came after the first
        tasks = await hooked.until_ended("team/one")
        assert counts(tasks)[TaskStatus.SUCCESS] == 1
        assert len(tasks) <= looks_max


async def test_a_push_between_two_hooks_of_a_burst_is_not_missed(stage: Stage) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/one")
        for _ in range(5):
            repo.commit()
            await hooked.push(repo)
        await hooked.until_same(repo)


async def test_the_same_hook_sent_again_leads_to_no_look(stage: Stage) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/one")
        repo.commit()
        hook = push_of(repo.url, SECRET, delivery="72d3162e-cc78-11e3-81ab-4c9367dc0958")
        first, again = await asyncio.gather(hooked.send(hook), hooked.send(hook))
        await hooked.until_ended("team/one")
        late = await hooked.send(hook)
        assert sorted(a.json()["status"] for a in (first, again, late)) == ["accepted", "merged", "merged"]
        assert late.json()["reason"] == "it was here before"
        await asyncio.sleep(1.2)
        assert len(await hooked.tasks("team/one")) == 1


async def test_a_flood_for_one_repo_with_nothing_new_is_a_few_looks(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooking_module, "ANSWER_S", 20.0)  # on a busy machine it takes longer
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/one")
        before = len(stage.upstream.requests)
        began = time.monotonic()
        until = began + 5
        sent_hooks = 0
        while time.monotonic() < until or sent_hooks < 200:  # on a busy machine it takes longer
            await asyncio.gather(*(hooked.push(repo) for _ in range(20)))
            sent_hooks += 20
        assert sent_hooks >= 200
        tasks = await hooked.until_ended("team/one")
        took_s = time.monotonic() - began  # looks after 0, 1, 3, 7 … seconds, and one for what came last
        looks_max = 1 + sum(2**n - 1 <= took_s for n in range(10))
        assert len(tasks) <= looks_max
        assert len(stage.upstream.requests) - before <= 2 * looks_max


async def test_a_hook_that_comes_before_the_change_can_be_seen_is_looked_at_again(stage: Stage) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/one")
        await hooked.push(repo)
        assert [t.status for t in await hooked.until_ended("team/one")] == [TaskStatus.SKIPPED]
        repo.commit()  # now all of the forge's machines know
        await hooked.until_same(repo)
        tasks = await hooked.until_ended("team/one", 2)
        assert (tasks[0].status, tasks[0].user) == (TaskStatus.SUCCESS, "webhook")
        looks_s = tasks[0].scheduled_at - (tasks[1].completed_at or 0)
        assert 2.5 < looks_s < 12  # the first of the two looks again: the other one comes after 15


@pytest.mark.parametrize(
    ("why", "spoil"),
    [
        ("another secret", lambda h: push_of("http://x/y.git", "another")),
        (
            "no signature",
            lambda h: replace(h, headers={k: v for k, v in h.headers.items() if "Sig" not in k}),
        ),
        ("another body", lambda h: replace(h, body=h.body.replace(b"main", b"evil"))),
        ("cut short", lambda h: replace(h, body=h.body[:-5])),
    ],
)
async def test_what_is_not_signed_as_it_should_be_changes_nothing(
    stage: Stage, why: str, spoil: Callable[[SentHook], SentHook]
) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/one")
        answer = await hooked.send(spoil(push_of(repo.url, SECRET)))
        assert answer.status_code in (400, 403), why
        assert not await hooked.tasks("team/one")
        assert up.node.lead.hooks.figures().ends == {
            key: 1 for key in up.node.lead.hooks.figures().ends if key[1] == "refused"
        }


async def test_nobody_unsigned_learns_which_repos_there_are(stage: Stage) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/one")
        ours = await hooked.send(push_of(repo.url, "wrong"))
        others = await hooked.send(push_of(repo.url.replace("one", "two"), "wrong"))
        assert ours.status_code == others.status_code == 403
        assert {**ours.json(), "request_id": ""} == {**others.json(), "request_id": ""}


async def test_a_repos_own_secret_is_the_only_one_for_it(stage: Stage) -> None:
    own = "only for team/one"
    key = f"{stage.upstream.host}/team/one"
    webhooks = {"github_secret": SECRET, "secrets": {key: own}}
    async with stage.up(webhooks=webhooks) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/one")
        assert (await hooked.send(push_of(repo.url, SECRET))).status_code == 403
        assert (await hooked.send(push_of("http://else/x.git", SECRET), repo=key)).status_code == 403
        assert (await hooked.send(push_of(repo.url, own))).status_code == 202


async def test_hooks_of_repos_that_are_not_ours_are_taken_and_ignored(stage: Stage) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = stage.upstream.create("team/new")
        answer = await hooked.push(repo)
        assert (answer["status"], answer["reason"]) == ("ignored", "it is not in the catalog")
        assert not await up.node.coordinator.list_repos(RepoFilter())


async def test_hooks_add_repos_where_that_is_set_and_the_rules_for_urls_hold(stage: Stage) -> None:
    async with stage.up(webhooks=adding(stage)) as up:
        hooked = Hooked(up)
        repo = stage.upstream.create("team/new")
        assert (await hooked.push(repo))["status"] == "added"
        await up.until_status("team/new", "active")
        for bad in ("ftp://x/y.git", "http://169.254.169.254/latest/meta", "file:///etc/passwd"):
            answer = await hooked.send(push_of(bad, SECRET))
            assert answer.json()["status"] == "ignored", bad
        assert len(await up.node.coordinator.list_repos(RepoFilter())) == 1


async def test_a_forges_secret_alone_adds_nothing_at_a_host_that_we_do_not_know(stage: Stage) -> None:
    async with stage.up(webhooks={"github_secret": SECRET, "unknown": "add"}) as up:
        hooked = Hooked(up)
        new = stage.upstream.create("team/new")
        assert (await hooked.push(new))["reason"] == "hooks of this forge add nothing at its host"
        await hooked.mirrored("team/one")  # now we do
        assert (await hooked.push(new))["status"] == "added"


async def test_what_was_ignored_and_is_sent_again_counts(stage: Stage) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = stage.upstream.create("team/one")
        hook = push_of(repo.url, SECRET, delivery="72d3162e-cc78-11e3-81ab-4c9367dc0958")
        assert (await hooked.send(hook)).json()["status"] == "ignored"
        await up.add(repo.url, interval="1h")
        await up.until_status("team/one", "active")
        repo.commit()
        assert (await hooked.send(hook)).json()["status"] == "accepted"
        await hooked.until_same(repo)


async def test_hooks_add_so_many_at_once_and_no_more(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_additions, "ADDED_BURST", 3)
    monkeypatch.setattr(hook_additions, "ADDED_RATE", 0.001)
    async with stage.up(webhooks=adding(stage)) as up:
        hooked = Hooked(up)
        urls = [stage.upstream.url(f"team/n{n}.git") for n in range(6)]
        ends = [(await hooked.send(push_of(url, SECRET))).json()["status"] for url in urls]
        assert ends == ["added"] * 3 + ["ignored"] * 3


async def test_disabled_and_removed_repos_are_left_alone(stage: Stage) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        off, gone = await hooked.mirrored("team/off"), await hooked.mirrored("team/gone")
        await up.add(off.url, enabled=False)
        await up.node.coordinator.remove_repo(gone.url, actor="test")
        for repo in (off, gone):
            repo.commit()
        first, second = await hooked.push(off), await hooked.push(gone)
        assert (first["status"], first["reason"]) == ("ignored", "it is disabled")
        assert (second["status"], second["reason"]) == ("ignored", "it was removed from the catalog")
        assert not await hooked.tasks("team/off")


async def test_a_renamed_repository_is_told_of_once_and_nothing_is_added(stage: Stage) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        await hooked.mirrored("team/old")
        new = stage.upstream.url("team/new.git")
        for _ in range(3):
            answer = await hooked.send(rename_of(new, "old", SECRET))
            assert answer.status_code == 202
            assert answer.json()["repo"] == up.key("team/old")
        lead = up.node.lead
        stands = lead.alerting.stands(frozenset({"repo-renamed"}))
        assert [(alert.about, alert.facts["to"]) for alert in stands] == [(up.key("team/old"), new)]
        await lead.recorder.flush()
        page = await lead.store.events_after(0, 1000)
        told = [event for event in page.events if event.type == "repo.renamed"]
        assert [(event.repo, dict(event.data)) for event in told] == [
            (up.key("team/old"), {"from": up.key("team/old"), "to": new})
        ]
        assert len(await up.node.coordinator.list_repos(RepoFilter())) == 1


async def test_a_ping_is_answered_and_what_moves_no_ref_is_ignored(stage: Stage) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/one")
        about = {"repository": {"clone_url": repo.url}}
        ping = await hooked.send(sent("ping", SECRET, {"zen": "x", **about}))
        assert (ping.status_code, ping.json()["status"]) == (200, "pong")
        star = await hooked.send(sent("star", SECRET, {"action": "created", **about}))
        assert (star.status_code, star.json()["status"]) == (202, "ignored")
        assert not await hooked.tasks("team/one")


async def test_figures_say_what_became_of_hooks(stage: Stage) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/one")
        await hooked.push(repo)
        await hooked.send(push_of(repo.url, "wrong"))
        text = (await up.client.get("/metrics")).text
        assert 'evermirror_hooks_total{forge="github",result="accepted"} 1.0' in text
        assert 'evermirror_hooks_total{forge="github",result="refused"} 1.0' in text
        assert "evermirror_hooks_waiting 0.0" in text


async def test_with_the_database_away_forges_are_told_in_time_and_the_same_hook_counts_later(
    stage: Stage,
) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/one")
        repo.commit()
        hook = push_of(repo.url, SECRET)
        async with up.node.lead.store._db.write():  # another writer that does not end
            began = time.monotonic()
            answers = await asyncio.gather(hooked.send(hook), *(hooked.send(hook) for _ in range(5)))
            assert time.monotonic() - began < 20  # two by its own clock; the other writer never ends
            assert {a.status_code for a in answers} == {503}
            assert all(int(a.headers["Retry-After"]) > 0 for a in answers)
        answer = await hooked.send(hook)
        assert answer.status_code == 202
        await hooked.until_same(repo)


async def test_the_inbox_is_bounded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooking_module, "WAITING_MAX", 10)
    monkeypatch.setattr(hooking_module, "ANSWER_S", 60.0)
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/one")
        async with up.node.lead.store._db.write():
            hooking, taken = up.node.lead.hooking, asyncio.Event()
            take = hooking._take

            async def noted(batch: Sequence[Any]) -> None:
                taken.set()
                await take(batch)

            monkeypatch.setattr(hooking, "_take", noted)
            first = asyncio.create_task(hooked.send(push_of(repo.url, SECRET)))
            await asyncio.wait_for(taken.wait(), 20)
            many = [asyncio.create_task(hooked.send(push_of(repo.url, SECRET))) for _ in range(30)]
            async with asyncio.timeout(30):
                while sum(task.done() for task in many) < 20:
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.2)
            refused = [task.result() for task in many if task.done()]
            assert [answer.status_code for answer in refused] == [503] * 20
        answers = await asyncio.gather(first, *many)
        assert sorted(a.status_code for a in answers) == [202] * 11 + [503] * 20


async def held(hooked: Hooked, repo: UpstreamRepo) -> bool:
    """A hook comes within the gap after a look that found nothing: it is held for a later look. False: this
    machine was too slow for that."""
    began = time.monotonic()
    before = len(await hooked.tasks(repo.name))
    await hooked.push(repo)
    await hooked.until_ended(repo.name, before + 1)
    repo.commit()
    assert (await hooked.push(repo))["status"] == "accepted"
    return time.monotonic() - began < 2 * spacing.GAP_S[0] - 0.5


async def test_a_stop_in_the_middle_answers_everybody_and_what_was_taken_is_looked_at_after_the_start(
    stage: Stage,
) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/one")
        for _ in range(5):
            if await held(hooked, repo):
                break
            await hooked.until_same(repo)
            await asyncio.sleep(2 * spacing.GAP_S[0])
        else:
            pytest.fail("no hook came within the gap")
        assert (await hooked.tasks("team/one"))[0].status is TaskStatus.PENDING
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        await hooked.until_same(repo)
        tasks = await hooked.until_ended("team/one", 2)
        assert tasks[0].status is TaskStatus.SUCCESS


async def test_after_the_end_nobody_waits(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooking_module, "ANSWER_S", 600.0)  # who waited would wait for long
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/one")
        service = up.node.lead.hooks
    hook = push_of(repo.url, SECRET)
    with pytest.raises(Unavailable):
        await asyncio.wait_for(
            service.received(
                hooking_module.Forge.GITHUB, {k.lower(): v for k, v in hook.headers.items()}, hook.body, None
            ),
            30,
        )


async def test_secrets_are_changed_without_a_restart_and_two_are_good_at_a_time(stage: Stage) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        repo = await hooked.mirrored("team/one")
        new = "the one of next year"
        assert (await hooked.send(push_of(repo.url, new))).status_code == 403
        up.node.reload(lambda: stage.config(webhooks={"github_secret": f"{new}\n{SECRET}"}))
        assert (await hooked.send(push_of(repo.url, new))).status_code == 202
        assert (await hooked.send(push_of(repo.url, SECRET))).status_code == 202


async def test_a_project_is_pulled_and_pushed_on_when_a_hook_tells(
    stage: Stage, upstream: UpstreamServer
) -> None:
    async with stage.up(**SETTINGS) as up:
        hooked = Hooked(up)
        source, target = upstream.create("team/src"), upstream.create("team/dst", commits=0)
        target.git("config", "http.receivepack", "true")
        body = {
            "project_key": "src",
            "source_url": source.url,
            "targets": [{"url": target.url}],
            "sync_interval": 86_400,
        }
        answer = await up.client.post("/api/pull/projects", json=body)
        assert answer.status_code == 201, answer.text

        async def pushed() -> bool:
            return target.public_refs() == source.public_refs()

        await up.until(pushed)
        for _ in range(3):  # the second and third within the gap
            source.commit()
            await hooked.push(source)
            await up.until(pushed)
        tasks = await hooked.until_ended("team/src", 2)
        assert {task.status for task in tasks} <= {TaskStatus.SUCCESS, TaskStatus.SKIPPED}
        off = await up.client.put("/api/pull/projects/src/config", json={"enabled": False})
        assert off.status_code == 200, off.text
        assert (await hooked.push(source))["reason"] == "its pull mirroring is disabled"


def test_the_looks_again_are_3_and_15_seconds_after() -> None:
    assert (spacing.AGAIN_S[0], sum(spacing.AGAIN_S)) == (3.0, 15.0)
