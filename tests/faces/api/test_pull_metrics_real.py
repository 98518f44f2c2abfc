"""Lag and verified-equal of a real project whose target is served, falls behind, and is served again."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.stage import Running, Stage

pytestmark = pytest.mark.timeout(120)


async def figures(up: Running) -> dict[str, float]:
    """Those of the class critical."""
    text = (await up.client.get("/metrics")).text
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("priority") == "critical"
    }


async def test_the_share_of_equal_projects_is_that_of_what_is_at_their_targets(tmp_path: Path, upstream):
    source, target = upstream.create("source"), upstream.create("target", commits=0)
    target.git("config", "http.receivepack", "true")
    stage = Stage(tmp_path, upstream)

    def served() -> bool:
        return target.refs() == source.public_refs()

    async def pulled(up: Running) -> None:
        task = (await up.client.post("/api/pull/projects/x/trigger", json={})).json()["task_id"]

        async def ended() -> bool:
            status = (await up.client.get(f"/api/pull/tasks/{task}")).json()["status"]
            return status in ("success", "failed", "skipped")

        await up.until(ended)

    async def until_equal(up: Running, share: float) -> None:
        async def holds() -> bool:
            return (await figures(up))["pull_verified_equal_ratio"] == share

        await up.until(holds)

    async with stage.up() as up:
        assert (await figures(up))["pull_projects_with_targets"] == 0
        body = {"project_key": "x", "source_url": source.url, "priority": "critical"}
        made = await up.client.post("/api/pull/projects", json={**body, "targets": [{"url": target.url}]})
        assert made.status_code == 201, made.text
        assert (await figures(up))["pull_projects_with_targets"] == 1

        async def equal() -> bool:
            return served() and (await figures(up))["pull_projects_verified_equal"] == 1

        await up.until(equal)
        told = await figures(up)
        assert 0 <= told["pull_lag_seconds"] <= told["pull_lag_worst_seconds"] < 60
        target.git("config", "http.receivepack", "false")
        source.commit()
        await pulled(up)
        assert not served()
        await until_equal(up, 0.0)
    async with stage.up() as up:
        await until_equal(up, 0.0)
        target.git("config", "http.receivepack", "true")
        await up.client.post("/api/pull/projects/x/reset-failures", json={})
        await until_equal(up, 1.0)
        assert served()
    async with stage.up() as up:
        await until_equal(up, 1.0)
        await up.client.put("/api/pull/projects/x/config", json={"enabled": False})
        told = await figures(up)
        assert (told["pull_projects_enabled"], told["pull_projects_with_targets"]) == (0, 0)
