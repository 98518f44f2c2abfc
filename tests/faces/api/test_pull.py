"""/api/pull as seed 003 has it, sections 4.1, 4.2 and 4.4: every example there, field by field."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from evermirror.faces import web
from evermirror.faces.api import pull_tasks
from evermirror.model.pull import PullConfig, TargetSpec, Wait, WaitReason
from evermirror.model.repo import Priority, RepoKey
from evermirror.model.task import SyncPhase, TaskId, TaskRecord, TaskStatus, Trigger
from tests.faces.api.fake_pull import MINUTE, NOW, timeout

# 4.1 The strategy


async def test_the_strategy_is_shown_and_changed_in_the_seeds_fields(client, pull):
    wanted = {
        "max_concurrent_pulls": 5,
        "enable_peak_avoidance": True,
        "peak_hours_start": 9,
        "peak_hours_end": 18,
        "peak_max_concurrent": 3,
        "off_peak_max_concurrent": 8,
        "enable_adaptive": True,
    }
    answer = await client.put("/api/pull/strategy", json=wanted)
    assert answer.status_code == 200
    assert wanted.items() <= answer.json().items()
    shown = (await client.get("/api/pull/strategy")).json()
    assert wanted.items() <= shown.items()
    assert (shown["strategy_name"], shown["enabled"], shown["time_zone"]) == (
        "default",
        True,
        "Asia/Shanghai",
    )
    assert (shown["in_peak"], shown["current_limit"], shown["running"]) == (True, 3, 2)
    assert shown["load"] == {"level": "normal", "reason": "cpu 55 %"}
    assert shown["updated_at"] == "2025-12-13T23:55:00Z"


async def test_a_part_of_the_strategy_leaves_the_rest(client, pull):
    await client.put("/api/pull/strategy", json={"max_concurrent_pulls": 7, "peak_hours_start": 22})
    await client.put("/api/pull/strategy", json={"peak_hours_end": 6})
    shown = (await client.get("/api/pull/strategy")).json()
    assert (shown["max_concurrent_pulls"], shown["peak_hours_start"], shown["peak_hours_end"]) == (7, 22, 6)
    assert shown["peak_max_concurrent"] == 3
    assert pull.audit == [
        ("local", "strategy", {"max_concurrent": 7, "peak_start": 22}),
        ("local", "strategy", {"peak_end": 6}),
    ]


async def test_null_takes_the_night_away_and_leaves_everything_else(client, pull):
    night = {"night_hours_start": 0, "night_hours_end": 6, "night_max_concurrent": 10}
    assert night.items() <= (await client.put("/api/pull/strategy", json=night)).json().items()
    nulls = {**dict.fromkeys(night), "max_concurrent_pulls": None, "enabled": None}
    shown = (await client.put("/api/pull/strategy", json=nulls)).json()
    assert {k: shown[k] for k in night} == dict.fromkeys(night)
    assert (shown["max_concurrent_pulls"], shown["enabled"]) == (5, True)


# 4.2 Projects


async def test_a_projects_configuration_has_the_seeds_fields(client, pull):
    config = PullConfig(Priority.HIGH, 15 * MINUTE)
    pull.add("devops/core", config=config, last_sync_at=NOW - 300, next_sync_at=NOW + 600)
    answer = await client.get("/api/pull/projects/devops/core/config")
    assert answer.status_code == 200
    expected = {
        "priority": "high",
        "sync_interval": 15,
        "enabled": True,
        "max_retries": 3,
        "retry_delay": 5,
        "last_sync_at": "2025-12-13T23:50:00Z",
        "next_sync_at": "2025-12-14T00:05:00Z",
        "consecutive_failures": 0,
    }
    assert expected.items() <= answer.json().items()
    assert '"sync_interval":15,' in answer.text, "whole minutes are whole"


async def test_a_configuration_is_changed_in_part_and_shown_as_overridden(client, pull):
    pull.add("devops/core", config=PullConfig(max_retries=7))
    wanted = {"priority": "critical", "sync_interval": 10, "enabled": True}
    shown = (await client.put("/api/pull/projects/devops/core/config", json=wanted)).json()
    assert wanted.items() <= shown.items()
    assert shown["max_retries"] == 7
    assert shown["overrides"] == ["enabled", "priority", "sync_interval"]
    shown = (await client.put("/api/pull/projects/devops/core/config", json={"retry_delay": 2.5})).json()
    assert (shown["priority"], shown["retry_delay"]) == ("critical", 2.5)
    shown = (await client.delete("/api/pull/projects/devops/core/config")).json()
    assert (shown["priority"], shown["overrides"]) == ("normal", [])
    assert [what for _, what, _ in pull.audit] == ["config", "config", "reset-config"]


async def test_priorities_are_changed_in_a_batch(client, pull):
    pull.add("devops/core")
    pull.add("devops/payment")
    body = {"projects": ["devops/core", "devops/payment", "devops/core"], "priority": "critical"}
    answer = await client.post("/api/pull/projects/batch-update-priority", json=body)
    assert answer.status_code == 200
    assert answer.json() == {"updated": 2, "priority": "critical", "not_found": []}
    for name in ("devops/core", "devops/payment"):
        shown = (await client.get(f"/api/pull/projects/{name}/config")).json()
        assert shown["priority"] == "critical"


async def test_a_batch_changes_what_it_knows_and_names_the_rest(client, pull):
    pull.add("devops/core")
    body = {"projects": ["devops/none", "devops/core"], "priority": "low"}
    answer = await client.post("/api/pull/projects/batch-update-priority", json=body)
    assert (answer.status_code, answer.json()["updated"]) == (200, 1)
    assert answer.json()["not_found"] == ["devops/none"]
    body["projects"] = ["devops/none", "x"]
    answer = await client.post("/api/pull/projects/batch-update-priority", json=body)
    assert answer.status_code == 404
    assert "devops/none" in answer.json()["detail"]


async def test_a_project_is_created_listed_shown_and_deleted(client, pull):
    body = {
        "project_key": "devops/core",
        "source_url": "https://gitlab.example.org/devops/core.git",
        "source_credential": "gitlab",
        "targets": [{"url": "https://target.example.org/devops/core.git", "credential": "target"}],
        "priority": "high",
        "sync_interval": 15,
        "max_retries": 2,
        "retry_delay": 1,
    }
    answer = await client.post("/api/pull/projects", json=body)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["project_key"], made["key"]) == ("devops/core", "gitlab.example.org/devops/core")
    assert (made["priority"], made["sync_interval"], made["max_retries"], made["retry_delay"]) == (
        "high",
        15,
        2,
        1,
    )
    (target,) = made["targets"]
    assert (target["url"], target["credential"]) == (body["targets"][0]["url"], "target")
    assert (target["paused"], target["failures"], target["last_error"]) == (None, 0, None)
    again = await client.post("/api/pull/projects", json=body)
    assert (again.status_code, again.json()["type"]) == (409, "/problems/conflict")
    shown = (await client.get("/api/pull/projects/devops/core")).json()
    assert shown == made
    listed = (await client.get("/api/pull/projects?search=devops")).json()
    assert listed == {"items": [made], "total": 1, "page": 1, "size": 50}
    assert (await client.get("/api/pull/projects?search=other")).json()["items"] == []
    gone = await client.delete("/api/pull/projects/devops/core")
    assert gone.json() == {"project_key": "devops/core", "status": "removed"}
    assert (await client.get("/api/pull/projects/devops/core")).status_code == 404


async def test_the_list_pages_by_limit_or_size(client, pull):
    for n in range(7):
        pull.add(f"team/p{n}", config=PullConfig(Priority.LOW if n % 2 else Priority.HIGH))
    for name in ("limit", "size"):
        page = (await client.get(f"/api/pull/projects?{name}=3&page=2")).json()
        assert [i["project_key"] for i in page["items"]] == ["team/p3", "team/p4", "team/p5"]
        assert (page["total"], page["page"], page["size"]) == (7, 2, 3)
    assert (await client.get("/api/pull/projects?limit=3&page=4")).json()["items"] == []
    low = (await client.get("/api/pull/projects?priority=low")).json()
    assert [i["project_key"] for i in low["items"]] == ["team/p1", "team/p3", "team/p5"]


# 4.4 Triggers


async def test_a_trigger_creates_a_task(client, pull):
    pull.add("devops/core")
    answer = await client.post("/api/pull/projects/devops/core/trigger", json={"force": False})
    assert answer.status_code == 200
    assert answer.json() == {
        "task_id": 12346,
        "status": "pending",
        "message": "Pull task created successfully",
    }
    assert pull.tasks_by_id[12346].trigger is Trigger.MANUAL
    assert pull.tasks_by_id[12346].user == "local"


async def test_a_trigger_needs_no_body_and_passes_force_on(client, pull):
    pull.add("devops/core")
    pull.add("devops/other")
    assert (await client.post("/api/pull/projects/devops/core/trigger")).status_code == 200
    assert (
        await client.post("/api/pull/projects/devops/other/trigger", json={"force": True})
    ).status_code == 200
    assert [force for _, what, force in pull.audit if what == "trigger"] == [False, True]


async def test_a_trigger_of_a_pending_project_answers_that_task(client, pull):
    pull.add("devops/core")
    first = (await client.post("/api/pull/projects/devops/core/trigger", json={})).json()
    second = (await client.post("/api/pull/projects/devops/core/trigger", json={})).json()
    assert second["task_id"] == first["task_id"]
    assert second["message"] != first["message"]


async def test_a_trigger_of_a_running_or_disabled_project_is_409(client, pull):
    pull.add("devops/core", task=77)
    pull.set("devops/core", running=True)
    pull.add("devops/off", config=PullConfig(enabled=False))
    for name, word in (("devops/core", "77"), ("devops/off", "disabled")):
        answer = await client.post(f"/api/pull/projects/{name}/trigger", json={})
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/conflict")
        assert word in answer.json()["detail"]


async def test_a_batch_trigger_by_names_skips_what_runs(client, pull):
    for n in range(8):
        pull.add(f"devops/p{n}")
    for n in range(2):
        pull.add(f"devops/busy{n}")
        pull.set(f"devops/busy{n}", running=True)
    pull.add("devops/off", config=PullConfig(enabled=False))
    keys = [view.project.name for view in pull.views.values()]
    answer = await client.post("/api/pull/trigger/batch", json={"project_keys": [*keys, "devops/none"]})
    assert answer.status_code == 200
    shown = answer.json()
    assert (shown["created_tasks"], shown["skipped_running"]) == (8, 2)
    assert len(set(shown["task_ids"])) == 8
    assert all(isinstance(task_id, int) for task_id in shown["task_ids"])
    assert (shown["not_found"], shown["disabled"]) == (["devops/none"], ["devops/off"])


async def test_a_batch_trigger_by_priority(client, pull):
    pull.add("devops/core", config=PullConfig(Priority.CRITICAL))
    pull.add("devops/other")
    shown = (await client.post("/api/pull/trigger/batch", json={"priority": "critical"})).json()
    assert shown["created_tasks"] == 1
    empty = await client.post("/api/pull/trigger/batch", json={"priority": "low"})
    assert (empty.status_code, empty.json()["created_tasks"]) == (200, 0)


async def test_a_triggered_task_is_shown_with_words_for_its_progress(client, pull):
    pull.add("devops/core", targets=[TargetSpec("https://t.example.org/x")])
    pull.put_task("devops/core", 12346, TaskStatus.RUNNING, started_at=NOW)

    async def shown(**changes):
        for name, value in changes.items():
            object.__setattr__(pull.tasks_by_id[12346], name, value)
        return (await client.get("/api/pull/tasks/12346")).json()

    task = await shown()
    expected = {
        "task_id": 12346,
        "project_key": "devops/core",
        "status": "running",
        "progress": "Pulling changes...",
        "started_at": "2025-12-13T23:55:00Z",
    }
    assert expected.items() <= task.items()
    assert (task["duration_seconds"], task["error"], task["pushes"]) == (None, None, [])
    assert (await shown(progress_phase="receiving", progress_percent=41.7))[
        "progress"
    ] == "Pulling changes... 42 %"
    told = SyncPhase.PUSHING.to("t.example.org:8443")
    assert (await shown(progress_phase=told, progress_percent=None))["progress"] == "Pushing changes..."
    assert (await shown(progress_phase=told, progress_percent=70.2))["progress"] == "Pushing changes... 70 %"
    assert (await shown(status=TaskStatus.PENDING))["progress"] == "Waiting for its turn"
    pushed = {"pushes": [{"target": 1, "put_total": 3, "refs": []}, {"target": 9, "put_total": 0}]}
    ended = await shown(status=TaskStatus.SUCCESS, completed_at=NOW + 2, result=pushed)
    assert (ended["progress"], ended["duration_seconds"]) == ("Done", 2.0)
    assert [(p["target_url"], p["put_total"]) for p in ended["pushes"]] == [
        ("https://t.example.org/x", 3),
        (None, 0),
    ]
    failed = await shown(status=TaskStatus.FAILED, failure=timeout())
    assert (failed["progress"], failed["error_type"]) == ("Failed", "NETWORK_TIMEOUT")
    assert failed["error"]["git_command"] == "git remote update"


@pytest.mark.parametrize("phase", SyncPhase)
def test_every_phase_that_is_told_has_its_words(phase):
    words = {SyncPhase.PUSHING: "Pushing changes...", SyncPhase.SEARCHING: "Waiting for the commit"}
    for told in (phase.value, phase.to("t.example.org")):
        assert SyncPhase.of(told) is phase
        task = TaskRecord(TaskId(1), RepoKey("h/x"), TaskStatus.RUNNING, Trigger.MANUAL, progress_phase=told)
        assert pull_tasks._progress(task, None) == words.get(phase, "Pulling changes...")


@pytest.mark.parametrize("phase", SyncPhase)
def test_the_page_has_each_phase_in_both_languages(phase):
    words = Path(web.__file__).with_name("static") / "words" / "common.js"
    name = f"ph_{phase.value}" if phase.value.isidentifier() else f'"ph_{phase.value}"'
    assert len(re.findall(rf"[ {{]{re.escape(name)}: ", words.read_text("utf-8"))) == 2


# Ours


async def test_failures_are_reset_and_targets_adopted(client, pull):
    urls = ["https://one.example.org/x", "https://two.example.org/x"]
    pull.add(
        "devops/core", config=PullConfig(enabled=False), failures=5, paused="failed",
        targets=[TargetSpec(url) for url in urls],
    )  # fmt: skip
    shown = (await client.post("/api/pull/projects/devops/core/reset-failures")).json()
    assert (shown["enabled"], shown["consecutive_failures"], shown["paused"]) == (True, 0, None)
    adopt = "/api/pull/projects/devops/core/targets/adopt"
    shown = (await client.post(adopt, json={"url": urls[1]})).json()
    assert [t["adopt"] for t in shown["targets"]] == [False, True]
    shown = (await client.post(adopt)).json()
    assert [t["adopt"] for t in shown["targets"]] == [True, True]
    assert (await client.post(adopt, json={"url": "https://no.example.org/x"})).status_code == 422
    assert [(what, of) for _, what, of in pull.audit] == [
        ("reset-failures", "git.example.org/devops/core"), ("adopt", urls[1]), ("adopt", None),
    ]  # fmt: skip


PEAK = Wait(WaitReason.PEAK, "waits until 18:00: only critical and high run in peak hours", NOW + 60, "18:00")
SHOWN = {
    "reason": "peak",
    "text": "waits until 18:00: only critical and high run in peak hours",
    "until": "2025-12-13T23:56:00Z",
    "clock": "18:00",
}


async def test_what_a_pull_waits_for_is_in_the_answers_to_a_batch_a_task_and_a_project(client, pull):
    view = pull.add("devops/core")
    pull.views[view.record.key] = replace(view, wait=PEAK)
    made = (await client.post("/api/pull/trigger/batch", json={"priority": "normal"})).json()
    assert made["waiting"] == [{**SHOWN, "count": 1}]
    (task_id,) = made["task_ids"]
    task = (await client.get(f"/api/pull/tasks/{task_id}")).json()
    assert (task["status"], task["waiting"]) == ("pending", SHOWN)
    assert task["progress"] == "Waits until 18:00: only critical and high run in peak hours"
    project = (await client.get("/api/pull/projects/devops/core/config")).json()
    assert project["waiting"] == SHOWN
    pull.views[view.record.key] = replace(pull.views[view.record.key], wait=None)
    assert (await client.get("/api/pull/projects/devops/core/config")).json()["waiting"] is None


async def test_a_project_that_counts_as_a_lower_class_says_so_everywhere(client, pull):
    view = pull.add("devops/core", config=PullConfig(Priority.CRITICAL), failures=3)
    pull.views[view.record.key] = replace(view, effective_priority=Priority.HIGH)
    config = (await client.get("/api/pull/projects/devops/core/config")).json()
    listed = (await client.get("/api/pull/projects")).json()["items"][0]
    failed = (await client.get("/api/pull/projects/failed?consecutive_failures_gte=3")).json()["items"][0]
    for told in (config, listed, failed):
        assert (told["priority"], told["effective_priority"]) == ("critical", "high")


async def test_the_strategy_tells_the_expected_delay_of_each_class(client, pull):
    told = (await client.put("/api/pull/strategy", json={"enable_peak_avoidance": True})).json()
    delays = {p: (d["usual_minutes"], d["worst_minutes"]) for p, d in told["expected_delay"].items()}
    assert delays == {"critical": (10, 10), "high": (30, 30), "normal": (120, 660), "low": (360, 900)}
    assert (await client.put("/api/pull/strategy", json={"enabled": False})).json()["expected_delay"] is None
