"""Through an aggregator every answer is as the OpenAPI document says, also while the coordinator is away."""

from __future__ import annotations

import asyncio
import threading

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from evermirror.model.access import Role
from tests.faces.api.fake import FakeCoordinator
from tests.faces.pass_on.pair import Pair

THERE = [
    not_a_server_error,
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
]
AWAY = [content_type_conformance, response_schema_conformance, status_code_conformance]
OWN = ("/healthz", "/readyz", "/metrics")  # an aggregator answers these itself
HEADERS = {"Authorization": "Bearer em_admin"}


class Impatient(FakeCoordinator):
    """Nobody works on tasks here, so nobody waits for them."""

    async def wait_task(self, task_id, timeout_s):
        return self.tasks[task_id]


@pytest.fixture(scope="module")
def running():
    """A pair in a thread of its own, and the loop to reach it by."""
    pair = Pair(service=Impatient())
    pair.tokens.add("em_admin", Role.ADMIN)
    loop = asyncio.new_event_loop()
    started, stop = threading.Event(), asyncio.Event()

    async def live():
        await pair.service.add_url("https://github.com/o/r", None, actor="test")
        async with pair.running():
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(live(),))
    thread.start()
    assert started.wait(20)
    yield pair, loop
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


@pytest.fixture(scope="module")
def operations(running):
    found = schemathesis.openapi.from_url(f"{running[0].url}/openapi.json").get_all_operations()
    return [operation for operation in (each.ok() for each in found) if operation.path not in OWN]


def try_all(operations, checks, statuses=None):
    for operation in operations:
        for mode in GenerationMode:
            if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
                continue  # nothing can be wrong about it

            @hypothesis.settings(
                max_examples=8,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(hypothesis.HealthCheck),
            )
            @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
            def ask(case):
                answer = case.call_and_validate(checks=checks, headers=HEADERS)
                assert statuses is None or answer.status_code in statuses, answer.text

            ask()


def test_every_answer_is_as_documented(operations):
    assert len(operations) > 20
    try_all(operations, THERE)


def test_while_the_coordinator_is_away_too(running, operations):
    pair, loop = running
    asyncio.run_coroutine_threadsafe(pair.stop(), loop).result(20)
    try:
        try_all(operations, AWAY, statuses={200, 400, 404, 503})
    finally:
        asyncio.run_coroutine_threadsafe(pair.start(), loop).result(20)
