"""A real Prometheus with our configuration scrapes a real all-in-one: rules fire, the dashboard has its
figures."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from evermirror.edge.git.folder import DiskUsage
from evermirror.edge.store.collected import CollectedFigures
from evermirror.faces.api.aggregator_metrics import AggregatorCollector
from evermirror.model.access import Role
from evermirror.nodes.aggregator.collect_figures import CollectingFigures
from tests.deploy import dashboard
from tests.deploy.test_rules import rules
from tests.support.ports import free_port
from tests.support.prometheus import Prometheus
from tests.support.stage import Running, Stage
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.timeout(120)

SOON = (datetime.now(UTC) + timedelta(days=3)).date().isoformat()


async def projects(up: Running, upstream: UpstreamServer) -> None:
    """One that is verified equal at its target, and one whose source is not there."""
    source, target = upstream.create("team/good"), upstream.create("copy", commits=0)
    target.git("config", "http.receivepack", "true")
    for body in (
        {"project_key": "good", "source_url": source.url, "targets": [{"url": target.url}],
         "priority": "critical"},
        {"project_key": "bad", "source_url": upstream.url("team/none.git"), "targets": [{"url": target.url}]},
    ):  # fmt: skip
        answer = await up.client.post("/api/pull/projects", json=body)
        assert answer.status_code == 201, answer.text

    async def ended() -> bool:
        found = [(await up.client.get(f"/api/pull/projects/{name}/tasks")).json() for name in ("good", "bad")]
        states = [{task["status"] for task in one["items"]} for one in found]
        return states[0] == {"success"} and "failed" in states[1]

    await up.until(ended)


async def test_rules_fire_and_every_panel_of_the_dashboard_has_figures(tmp_path: Path, upstream):
    stage = Stage(tmp_path, upstream)
    sections = {
        "pull": {"demote_after": 1},
        "credentials": {"corp.token": "sesame", "corp.expires": SOON},
        "channels": {
            "ops.type": "webhook",
            "ops.url": f"http://127.0.0.1:{free_port()}/",
            "ops.secret": "of the hook, and long",
        },
        "event_hooks": {"ci.url": f"http://127.0.0.1:{free_port()}/", "ci.secret": "of the other, and long"},
    }
    with contextlib.ExitStack() as stack:
        async with stage.up(**sections) as up:
            await projects(up, upstream)
            token, _ = await up.node.lead.store.create_token("prometheus", Role.READER)
            jobs = {"evermirror": [up.node.url.removeprefix("http://")]}
            prometheus = Prometheus(tmp_path / "prometheus", jobs, token)
            await asyncio.to_thread(stack.enter_context, prometheus)
            await asyncio.to_thread(look, prometheus)
        down = lambda: "EvermirrorDown" in prometheus.firing()  # noqa: E731
        await asyncio.to_thread(prometheus.until, down, 15)


def look(prometheus: Prometheus) -> None:
    expected = {
        "PullFailureRate",  # one of two
        "PullProjectsFailing",  # one failure is often enough here
        "PullProjectsPaused",
        "PullNotEqual",  # the one that fails, in its class
        "EvermirrorCredentialExpiringSoon",
        "EvermirrorAlertChannelFailing",
    }
    prometheus.until(lambda: expected <= prometheus.firing().keys(), 20)
    firing = prometheus.firing()
    assert firing.keys() == expected
    assert [labels["priority"] for labels in firing["PullNotEqual"]] == ["normal"]
    assert [labels["credential"] for labels in firing["EvermirrorCredentialExpiringSoon"]] == ["corp"]
    assert [labels["channel"] for labels in firing["EvermirrorAlertChannelFailing"]] == ["ops"]
    groups = prometheus.asked("rules")["groups"]
    assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}
    equal = prometheus.query('pull_verified_equal_ratio{priority="critical"}')
    assert [float(one["value"][1]) for one in equal] == [1.0]
    named = {*prometheus.asked("label/__name__/values"), *of_an_aggregator()}
    assert named >= set().union(*(dashboard.metrics_in(rule["expr"]) for rule in rules()))
    for title, expression in dashboard.expressions():
        assert dashboard.metrics_in(expression) <= named, title
        found = prometheus.query(expression)
        assert found or "aggregator" in expression, (title, expression)


def of_an_aggregator() -> set[str]:
    """The names that an aggregator exports."""
    nothing = CollectingFigures(
        CollectedFigures(0, 0, 0, 0), {}, 0, {}, 0, 0, DiskUsage(1, 1), accepting=True
    )
    registry = CollectorRegistry()
    registry.register(AggregatorCollector(lambda: nothing, lambda: None, lambda: True))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {sample.name for family in families for sample in family.samples}
