"""The OpenAPI document is complete and true: what it says is what happens, whatever is sent."""

from __future__ import annotations

import asyncio

import hypothesis
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.faces.api.conftest import House
from tests.faces.api.fake import FakeCoordinator

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
]


class Impatient(FakeCoordinator):
    """Nobody works on tasks here, so nobody waits for them."""

    async def wait_task(self, task_id, timeout_s):
        return self.tasks[task_id]


def _app():
    house = House(Impatient())
    for url in ("https://github.com/o/r", "https://gitee.com/o/r"):
        asyncio.run(house.service.add_url(url, None, actor="test"))
    for name in ("devops/core", "failed", "0"):
        house.pull.add(name)
    record = house.alerts.raised()
    house.alerts.noticed(record, sent_at=record.raised_at)
    app = house.app()

    async def local(scope, receive, send):
        """The test client says it is "testclient" at "testserver"; we let in who is on this machine."""
        if scope["type"] == "http":
            headers = [(k, b"127.0.0.1" if k == b"host" else v) for k, v in scope["headers"]]
            scope = {**scope, "client": ("127.0.0.1", 1), "headers": headers}
        await app(scope, receive, send)

    return local


schema = schemathesis.openapi.from_asgi("/openapi.json", _app())


@schema.parametrize()
@hypothesis.settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
def test_every_answer_is_as_documented(case):
    case.call_and_validate(checks=CHECKS)


async def test_the_document_names_every_operation_and_no_other_host(client):
    document = (await client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    operations = {(m.upper(), p) for p, item in document["paths"].items() for m in item}
    assert operations >= {
        ("POST", "/api/tasks"), ("GET", "/api/tasks/{task_id}"), ("POST", "/api/git_urls"),
        ("GET", "/api/git_urls"), ("GET", "/api/git_urls/{key}"), ("DELETE", "/api/git_urls/{key}"),
        ("GET", "/api/repos/{key}"), ("GET", "/api/repos/{key}/-/refs"), ("GET", "/api/repos/{key}/-/tasks"),
        ("GET", "/api/repos/{key}/-/holders"), ("GET", "/api/overview"), ("GET", "/api/version"),
        ("GET", "/api/repos/{key}/-/history"), ("POST", "/api/repos/{key}/-/restore"),
        ("POST", "/api/repos/{key}/-/confirm"), ("POST", "/api/repos/{key}/-/undelete"),
        ("POST", "/api/repos/{key}/-/pause"), ("POST", "/api/repos/{key}/-/resume"),
        ("GET", "/api/fleet"), ("GET", "/api/fleet/workers/{name}"),
        ("POST", "/api/fleet/workers/{name}/drain"), ("POST", "/api/fleet/workers/{name}/resume"),
        ("POST", "/api/fleet/workers/{name}/retire"), ("POST", "/api/fleet/workers/{name}/quarantine"),
        ("POST", "/api/fleet/brake/overrule"), ("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/metrics"),
        ("GET", "/api/pull/strategy"), ("PUT", "/api/pull/strategy"),
        ("GET", "/api/pull/progress/overview"), ("GET", "/api/pull/progress/by-priority"),
        ("GET", "/api/pull/progress/course"), ("GET", "/api/pull/report"),
        ("GET", "/api/pull/projects"), ("POST", "/api/pull/projects"),
        ("POST", "/api/pull/projects/batch-update-priority"), ("GET", "/api/pull/projects/failed"),
        ("GET", "/api/pull/projects/{key}"), ("DELETE", "/api/pull/projects/{key}"),
        ("GET", "/api/pull/projects/{key}/config"), ("PUT", "/api/pull/projects/{key}/config"),
        ("DELETE", "/api/pull/projects/{key}/config"), ("GET", "/api/pull/projects/{key}/tasks"),
        ("GET", "/api/pull/projects/{key}/errors"), ("POST", "/api/pull/projects/{key}/trigger"),
        ("POST", "/api/pull/projects/{key}/reset-failures"),
        ("POST", "/api/pull/projects/{key}/targets/adopt"), ("POST", "/api/pull/trigger/batch"),
        ("GET", "/api/pull/tasks"), ("GET", "/api/pull/tasks/{task_id}"), ("GET", "/api/pull/errors"),
        ("GET", "/api/pull/errors/statistics"), ("GET", "/api/alerts"), ("GET", "/api/alerts/{alert_id}"),
        ("GET", "/api/alerts/channels"), ("POST", "/api/alerts/test"), ("GET", "/api/alerts/silences"),
        ("POST", "/api/alerts/silences"), ("DELETE", "/api/alerts/silences/{silence_id}"),
        ("GET", "/api/event_hooks"), ("GET", "/api/event_hooks/letters"),
        ("POST", "/api/event_hooks/{name}/test"), ("POST", "/api/event_hooks/{name}/retry"),
        ("POST", "/api/event_hooks/{name}/forget"),
    }  # fmt: skip
    for item in document["paths"].values():
        for operation in item.values():
            assert operation["summary"]
            assert "HTTPValidationError" not in str(operation)
