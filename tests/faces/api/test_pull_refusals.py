"""What /api/pull refuses, how it names things, and who may do what."""

from __future__ import annotations

import pytest

from evermirror.model.failure import Failure, FailureKind
from evermirror.model.task import TaskStatus
from tests.faces.api.fake_pull import NOW

SPELLINGS = [
    "devops/core",
    "devops%2Fcore",
    "devops%2fcore",
    "git.example.org/devops/core",
    "git.example.org%2Fdevops%2Fcore",
    "git.example.org/devops/core.git",
    "https://git.example.org/devops/core.git",
    "https%3A%2F%2Fgit.example.org%2Fdevops%2Fcore",
]
PROJECT = {
    "project_key": "devops/new",
    "source_url": "https://gitlab.example.org/devops/new",
    "targets": [{"url": "https://target.example.org/devops/new"}],
}


def is_problem(answer, status, where=""):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["type"].startswith("/problems/")
    assert where in told["detail"], told
    return told


# Names


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_project_goes_by_any_of_its_names(client, pull, spelling):
    pull.add("devops/core")
    base = f"/api/pull/projects/{spelling}"
    for path in (base, f"{base}/config"):
        assert (await client.get(path)).json()["project_key"] == "devops/core"
    for path in (f"{base}/tasks", f"{base}/errors"):
        assert (await client.get(path)).json()["items"] == []
    assert (await client.put(f"{base}/config", json={"max_retries": 4})).json()["max_retries"] == 4
    assert (await client.post(f"{base}/trigger")).status_code == 200
    assert (await client.post(f"{base}/reset-failures")).status_code == 200
    assert (await client.post(f"{base}/targets/adopt")).status_code == 200
    assert (await client.delete(f"{base}/config")).status_code == 200
    assert (await client.delete(base)).json()["project_key"] == "devops/core"
    assert not pull.views


async def test_projects_named_like_addresses_break_none_of_them(client, pull):
    names = ["failed", "batch-update-priority", "config", "team", "team/config", "team/tasks", "team/trigger"]
    for name in names:
        pull.add(name)
    assert (await client.get("/api/pull/projects/failed")).json()["items"] == []
    body = {"projects": names, "priority": "high"}
    done = await client.post("/api/pull/projects/batch-update-priority", json=body)
    assert done.json()["updated"] == len(names)
    for name in names:
        for spelling in (name, name.replace("/", "%2F")):
            shown = (await client.get(f"/api/pull/projects/{spelling}/config")).json()
            assert shown["project_key"] == name
            assert (await client.post(f"/api/pull/projects/{spelling}/trigger")).status_code == 200
        # The whole, by the repo's key:
        whole = f"/api/pull/projects/git.example.org%2F{name.replace('/', '%2F')}"
        assert (await client.get(whole)).json()["project_key"] == name
    assert (await client.get("/api/pull/projects/config")).json()["project_key"] == "config"
    assert (await client.get("/api/pull/projects/team%2Fconfig")).json()["project_key"] == "team/config"
    assert (await client.get("/api/pull/projects/team/config")).json()["project_key"] == "team"
    assert (await client.delete("/api/pull/projects/team%2Ftasks")).json()["project_key"] == "team/tasks"


async def test_a_parts_address_is_never_taken_for_a_project(client, pull):
    pull.add("team")
    pull.add("team/tasks")
    pull.add("failed")
    for method, path, allowed in (
        ("DELETE", "team/tasks", "GET, HEAD"),
        ("GET", "team/trigger", "POST"),
        ("DELETE", "team/reset-failures", "POST"),
        ("GET", "team/targets/adopt", "POST"),
        ("DELETE", "failed", "GET, HEAD"),
        ("GET", "batch-update-priority", "POST"),
        ("PUT", "team%2Fconfig", "DELETE, GET, HEAD"),
        ("POST", "team/config", "DELETE, GET, HEAD, PUT"),
    ):
        answer = await client.request(method, f"/api/pull/projects/{path}")
        is_problem(answer, 405)
        assert answer.headers["allow"] == allowed, (method, path)
    assert len(pull.views) == 3


@pytest.mark.parametrize(
    "key",
    ["no/such", "x", "%00", "%1b%5bm", "%ff%fe", "a" * 5000, "", "%2e%2e", "a%2F..%2Fb", "-", "é"],
)
async def test_unknown_and_impossible_projects_are_4xx(client, pull, key):
    base = f"/api/pull/projects/{key}"
    asked = [("GET", ""), ("DELETE", ""), ("GET", "/config"), ("PUT", "/config"), ("DELETE", "/config")]
    asked += [("GET", "/tasks"), ("GET", "/errors"), ("POST", "/trigger"), ("POST", "/reset-failures")]
    for method, part in [*asked, ("POST", "/targets/adopt")]:
        answer = await client.request(method, base + part, json={} if method == "PUT" else None)
        assert answer.status_code in (404, 405, 422), (method, part)
        assert answer.headers["content-type"] == "application/problem+json"
    assert not pull.audit


async def test_an_unknown_project_is_named_in_the_refusal(client):
    told = is_problem(await client.get("/api/pull/projects/no/such/tasks"), 404, "no/such")
    assert told["type"] == "/problems/not-found"


@pytest.mark.parametrize("task_id", ["0", "7", "-1", "x", "1e3", "9" * 19, "9" * 30, "١", "1.0", "%00"])
async def test_unknown_and_impossible_tasks_are_404(client, task_id):
    is_problem(await client.get(f"/api/pull/tasks/{task_id}"), 404)


# Values


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("peak_hours_start", 25), ("peak_hours_start", 24), ("peak_hours_end", 25),
        ("peak_hours_end", -1), ("peak_hours_end", "18"),
        ("peak_hours_end", 9.5), ("max_concurrent_pulls", 0), ("max_concurrent_pulls", 10**9),
        ("max_concurrent_pulls", True), ("max_concurrent_pulls", "5"), ("peak_max_concurrent", -3),
        ("off_peak_max_concurrent", 1.5), ("enable_adaptive", "yes"), ("enable_peak_avoidance", 1),
        ("enabled", []), ("strategy_name", ""), ("strategy_name", "a\u0000b"), ("strategy_name", "x" * 200),
        ("night_hours_start", 24), ("night_max_concurrent", 0), ("max_concurent", 3), ("time_zone", "UTC"),
    ],
)  # fmt: skip
async def test_a_wrong_strategy_is_422_and_names_the_field(client, pull, field, value):
    answer = await client.put("/api/pull/strategy", json={"enable_adaptive": True, field: value})
    told = is_problem(answer, 422, field)
    assert told["errors"][0]["where"] == f"body.{field}"
    assert not pull.audit, "nothing was changed"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", "urgent"), ("priority", 3), ("priority", "HIGH"), ("sync_interval", -5),
        ("sync_interval", 0), ("sync_interval", "10"), ("sync_interval", "ten"), ("sync_interval", True),
        ("sync_interval", 0.1), ("sync_interval", 10**9), ("enabled", "true"), ("max_retries", -1),
        ("max_retries", 2.5), ("max_retries", 101), ("retry_delay", -1), ("retry_delay", 0),
        ("retry_delay", 10**6), ("targets", "https://x.example.org/y"), ("targets", [{"url": 5}]),
        ("targets", [{"uri": "https://x.example.org/y"}]), ("targets", [{"url": "a\u0007b"}]),
        ("targets", [{"url": "https://x.example.org/y"}] * 17), ("consecutive_failures", 0),
    ],
)  # fmt: skip
async def test_a_wrong_configuration_is_422_and_names_the_field(client, pull, field, value):
    pull.add("devops/core")
    answer = await client.put("/api/pull/projects/devops/core/config", json={field: value})
    told = is_problem(answer, 422, field)
    assert told["errors"][0]["where"].startswith(f"body.{field}")
    assert not pull.audit


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_numbers_that_are_none_are_refused(client, pull, number):
    pull.add("devops/core")
    content = b'{"sync_interval": %s}' % number.encode()
    headers = {"Content-Type": "application/json"}
    answer = await client.put("/api/pull/projects/devops/core/config", content=content, headers=headers)
    assert answer.status_code in (400, 422)
    assert not pull.audit


@pytest.mark.parametrize(
    "key",
    [
        "",
        "..",
        "a/../b",
        "a b",
        "a\u0000",
        "a\nb",
        "-a",
        "a//b",
        "/a",
        "a/",
        "a.git",
        "a%2Fb",
        "x" * 3000,
        5,
        None,
    ],
)
async def test_odd_project_keys_are_422(client, pull, key):
    answer = await client.post("/api/pull/projects", json={**PROJECT, "project_key": key})
    is_problem(answer, 422, "project_key")
    assert not pull.views


@pytest.mark.parametrize("field", ["project_key", "source_url"])
async def test_what_a_project_must_have_is_named(client, field):
    body = {k: v for k, v in PROJECT.items() if k != field}
    is_problem(await client.post("/api/pull/projects", json=body), 422, field)


async def test_a_refused_url_says_which(client, pull):
    told = is_problem(await client.post("/api/pull/projects", json={**PROJECT, "source_url": "ftp:x"}), 422)
    assert told["type"] == "/problems/invalid-url"
    pull.add("devops/core")
    targets = [{"url": "https://fine.example.org/x"}, {"url": "nonsense"}]
    answer = await client.put("/api/pull/projects/devops/core/config", json={"targets": targets})
    assert is_problem(answer, 422, "targets.1.url")["type"] == "/problems/invalid-url"


async def test_a_project_may_have_no_targets(client):
    body = {k: v for k, v in PROJECT.items() if k != "targets"}
    assert (await client.post("/api/pull/projects", json=body)).json()["targets"] == []


async def test_batches_are_bounded_and_not_empty(client, pull):
    pull.add("devops/core")
    many = ["devops/core", *(f"p{n}" for n in range(9_999))]
    path = "/api/pull/projects/batch-update-priority"
    done = await client.post(path, json={"projects": many, "priority": "low"})
    assert (done.json()["updated"], len(done.json()["not_found"])) == (1, 9_999)
    told = await client.post(path, json={"projects": [*many, "one-more"], "priority": "low"})
    is_problem(told, 422, "projects")
    for body in (
        {"projects": [], "priority": "low"}, {"projects": ["x"]}, {"priority": "low"},
        {"projects": "x", "priority": "low"}, {"projects": [""], "priority": "low"},
        {"projects": ["a\u0000"], "priority": "low"}, {"projects": ["devops/core"], "priority": "urgent"},
    ):  # fmt: skip
        is_problem(await client.post(path, json=body), 422)
    batch = "/api/pull/trigger/batch"
    is_problem(await client.post(batch, json={"project_keys": [*many, "one-more"]}), 422, "project_keys")
    for body in ({}, {"project_keys": []}, {"project_keys": None}, {"priority": "urgent"}, {"force": True}):
        is_problem(await client.post(batch, json=body), 422)
    is_problem(await client.post(batch, json={"project_keys": ["x", "y"]}), 404, "'x', 'y'")
    is_problem(await client.post(batch, json={"project_keys": ["x"]}), 404, "'x'")
    assert [what for _, what, _ in pull.audit] == ["priority", "batch", "batch"]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("errors/statistics?hours=0", "hours"), ("errors/statistics?hours=-1", "hours"),
        ("errors/statistics?hours=nan", "hours"), ("errors/statistics?hours=inf", "hours"),
        ("errors/statistics?hours=100000", "hours"), ("errors/statistics?hours=day", "hours"),
        ("projects/failed?consecutive_failures_gte=0", "consecutive_failures_gte"),
        ("projects/failed?consecutive_failures_gte=x", "consecutive_failures_gte"),
        ("projects/failed?consecutive_failures_gte=99999999999999999999", "consecutive_failures_gte"),
        ("projects?limit=0", "limit"), ("projects?limit=1001", "limit"), ("projects?size=x", "size"),
        ("projects?page=0", "page"), ("projects?page=99999999999999999999", "page"),
        ("projects?priority=urgent", "priority"), ("projects?search=%00", "search"),
        ("projects/team/tasks?limit=-1", "limit"), ("projects/team/tasks?page=1.5", "page"),
        ("projects/team/errors?type=OTHER", "type"), ("projects/team/errors?from=yesterday", "from"),
        ("errors?to=2025-13-01", "to"), ("errors?from=2025-12-13T23:50:00+08:00", "from"),
        ("errors?from=1969-12-31T23:59:59Z", "from"), ("errors?from=0001-01-01T00:00:00%2B14:00", "from"),
        ("errors?from=" + "2" * 50, "from"), ("errors?from=2025-12-14&to=2025-12-13", "from"),
        ("errors?from=2025-12-14&to=2025-12-14", "from"), ("progress/overview?from=now", "from"),
        ("progress/by-priority?to=", "to"), ("progress/course?from=2020-01-01&to=2025-12-14", "from"),
    ],
)  # fmt: skip
async def test_wrong_queries_are_422_and_name_the_field(client, pull, path, field):
    pull.add("team")
    is_problem(await client.get(f"/api/pull/{path}"), 422, f"query.{field}")


async def test_bodies_that_are_no_json_are_told_so(client, pull):
    pull.add("team")
    headers = {"Content-Type": "application/json"}
    for method, path in (
        ("PUT", "strategy"), ("PUT", "projects/team/config"), ("POST", "projects"),
        ("POST", "projects/batch-update-priority"), ("POST", "trigger/batch"),
        ("POST", "projects/team/trigger"), ("POST", "projects/team/targets/adopt"),
    ):  # fmt: skip
        answer = await client.request(method, f"/api/pull/{path}", content=b"{nonsense", headers=headers)
        is_problem(answer, 400)
        assert (await client.request(method, f"/api/pull/{path}", json=[1])).status_code == 422
    assert not pull.audit


async def test_a_server_without_pull_mirroring_says_so(house):
    house.pull = None
    async with house.client() as client:
        for path in ("strategy", "projects", "projects/x", "projects/failed", "progress/overview", "tasks/1"):
            is_problem(await client.get(f"/api/pull/{path}"), 404)


# Who may do what


WRITES = [
    ("PUT", "strategy", {}, "operator"),
    ("POST", "projects", PROJECT, "operator"),
    ("PUT", "projects/team/config", {}, "operator"),
    ("DELETE", "projects/team/config", None, "operator"),
    ("POST", "projects/batch-update-priority", {"projects": ["team"], "priority": "low"}, "operator"),
    ("POST", "projects/team/reset-failures", None, "operator"),
    ("POST", "projects/team/targets/adopt", {}, "operator"),
    ("POST", "trigger/batch", {"project_keys": ["team"]}, "operator"),
    ("POST", "projects/team/trigger", {}, "submitter"),
    ("DELETE", "projects/team", None, "operator"),
]
ROLES = ["reader", "submitter", "operator", "admin"]


@pytest.mark.parametrize(("method", "path", "body", "least"), WRITES)
async def test_a_write_needs_its_role(house, pull, method, path, body, least):
    house.with_tokens()
    app = house.app()
    for role in [None, "worker", "aggregator", *ROLES]:
        pull.views.clear()
        pull.add("team")
        pull.audit.clear()
        async with house.client(token=role and f"em_{role}", app=app) as client:
            answer = await client.request(method, f"/api/pull/{path}", json=body)
        if role in ROLES[ROLES.index(least) :]:
            assert answer.status_code in (200, 201), (role, answer.text)
            assert pull.audit[0][0] == f"{role}-1", "under whose name it is remembered"
        else:
            is_problem(answer, 403 if role else 401)
            assert not pull.audit


READS = ["strategy", "projects", "projects/team", "projects/team/config", "projects/team/tasks",
         "projects/team/errors", "projects/failed", "progress/overview", "progress/by-priority",
         "progress/course", "errors", "errors/statistics", "tasks/1"]  # fmt: skip


@pytest.mark.parametrize("public", [True, False])
async def test_reading_is_public_or_not_by_setting(house, pull, public):
    pull.add("team")
    pull.put_task("team", 1, TaskStatus.SUCCESS)
    house.with_tokens()
    house.auth = type(house.auth)(public_reads=public)
    app = house.app()
    async with house.client(app=app) as anybody, house.client(token="em_reader", app=app) as reader:
        for path in READS:
            assert (await anybody.get(f"/api/pull/{path}")).status_code == (200 if public else 401), path
            assert (await reader.get(f"/api/pull/{path}")).status_code == 200, path


async def test_private_projects_are_unknown_to_the_public_in_the_same_words(house, pull):
    pull.add("open", failures=3)
    pull.add("secret", private=True, failures=3)
    failure = Failure(FailureKind.UNKNOWN, "no")
    for n, name in enumerate(("open", "secret"), start=1):
        pull.put_task(name, n, TaskStatus.FAILED, completed_at=NOW, failure=failure)
    house.with_tokens()
    app = house.app()
    async with house.client(app=app) as anybody, house.client(token="em_reader", app=app) as reader:
        for part in ("", "/config", "/tasks", "/errors"):
            hidden = await anybody.get(f"/api/pull/projects/secret{part}")
            unknown = await anybody.get(f"/api/pull/projects/nobody{part}")
            is_problem(hidden, 404)
            assert hidden.text.replace("secret", "nobody") == unknown.text
            assert (await reader.get(f"/api/pull/projects/secret{part}")).status_code == 200
        hidden, unknown = await anybody.get("/api/pull/tasks/2"), await anybody.get("/api/pull/tasks/3")
        assert hidden.text.replace("2", "3") == unknown.text.replace("2", "3")
        assert (await reader.get("/api/pull/tasks/2")).status_code == 200
        for path in ("projects", "projects/failed", "errors"):
            shown, whole = [(await c.get(f"/api/pull/{path}")).json() for c in (anybody, reader)]
            assert [i["project_key"] for i in shown["items"]] == ["open"]
            assert (shown["total"], whole["total"]) == (1, 2)


async def test_the_public_sees_no_names_of_credentials_and_nothing_of_the_servers_inside(house, pull):
    view = pull.add("open")
    pull.set("open", record=view.record)
    failure = Failure(
        FailureKind.UNKNOWN, "no", git_command="git fetch", stdout="out", stderr="err",
        context={"git_version": "2.45.1", "traceback": "Traceback …"},
    )  # fmt: skip
    pull.put_task("open", 1, TaskStatus.FAILED, completed_at=NOW, failure=failure, user="boss")
    house.with_tokens()
    app = house.app()
    async with house.client(app=app, token="em_operator") as boss:
        body = {"targets": [{"url": "https://t.example.org/x", "credential": "gitlab-token"}]}
        shown = (await boss.put("/api/pull/projects/open/config", json=body)).json()
        assert shown["targets"][0]["credential"] == "gitlab-token"
        error = (await boss.get("/api/pull/errors")).json()["items"][0]
        assert (error["stderr"], error["traceback"]) == ("err", "Traceback …")
        assert (await boss.get("/api/pull/tasks/1")).json()["trigger_user"] == "boss"
    async with house.client(app=app) as anybody:
        shown = (await anybody.get("/api/pull/projects/open")).json()
        assert (shown["targets"], shown["targets_total"]) == ([], 1)
        error = (await anybody.get("/api/pull/errors")).json()["items"][0]
        assert (error["error_message"], error["git_command"]) == ("no", "git fetch")
        assert {error[k] for k in ("stdout", "stderr", "versions", "traceback")} == {None}
        task = (await anybody.get("/api/pull/tasks/1")).json()
        assert (task["trigger_user"], task["error"]["stderr"]) == (None, None)
