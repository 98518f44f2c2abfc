"""Alerts through an aggregator: as at the coordinator, and to nobody without a token."""

from __future__ import annotations


async def test_alerts_are_read_channels_tried_and_silences_made_through_an_aggregator(pair):
    record = pair.alerts.raised()
    async with pair.client("em_operator") as client:
        assert (await client.get("/api/alerts")).json()["items"][0]["id"] == record.id
        assert (await client.get(f"/api/alerts/{record.id}")).json()["about"] == "devops/core"
        tried = await client.post("/api/alerts/test", json={"channel": "ops"})
        assert tried.json()["items"] == [{"channel": "ops", "sent": True, "error": ""}]
        made = await client.post("/api/alerts/silences", json={"kind": "project-*", "for_s": 60})
        assert (made.status_code, made.json()["by"]) == (201, "operator-1")
        assert (await client.get("/api/alerts")).json()["items"][0]["silenced_by"] == made.json()["id"]
        await client.delete(f"/api/alerts/silences/{made.json()['id']}")
        assert (await client.get("/api/alerts")).json()["items"][0]["silenced_by"] is None


async def test_what_a_reader_was_told_is_not_told_to_the_public(pair):
    pair.alerts.raised()
    async with pair.client("em_reader") as reader, pair.client() as anybody:
        for path in ("/api/alerts", "/api/alerts/channels", "/api/alerts/silences"):
            assert (await reader.get(path)).status_code == 200
            assert (await anybody.get(path)).status_code == 401
            assert (await reader.get(path)).status_code == 200
        assert (await anybody.post("/api/alerts/test", json={})).status_code == 401
        assert (await reader.post("/api/alerts/test", json={})).status_code == 403
    assert pair.alerts.audit == []
