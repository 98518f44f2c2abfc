"""Alerts over HTTP: who may see them, what a list shows, channels tried, silences made and ended."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from evermirror.faces.api.alert_metrics import AlertCollector, CredentialCollector
from evermirror.faces.api.auth import AuthSettings
from evermirror.model.alert import Level, Turn
from evermirror.nodes.alert_service import NoticeEnd
from tests.faces.api.fake_alerts import NOW

READS = ("/api/alerts", "/api/alerts/1", "/api/alerts/channels", "/api/alerts/silences")
WRITES = (
    ("POST", "/api/alerts/test", {}),
    ("POST", "/api/alerts/silences", {"for_s": 60}),
    ("DELETE", "/api/alerts/silences/2", None),
)


async def test_alerts_are_never_public_also_where_reading_is(house, alerts):
    alerts.raised()
    app = replace(house.with_tokens(), auth=AuthSettings(public_reads=True)).app()
    async with house.client(app=app, address="203.0.113.9") as anybody:
        for path in READS:
            answer = await anybody.get(path)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert "none was given" in answer.json()["detail"]
            assert answer.headers["content-type"] == "application/problem+json"
            assert "devops/core" not in answer.text
    async with house.client(app=app, token="em_reader") as reader:
        assert {path: (await reader.get(path)).status_code for path in READS} == dict.fromkeys(READS, 200)


@pytest.mark.parametrize(("role", "allowed"), [("reader", False), ("submitter", False), ("operator", True)])
async def test_channels_are_tried_and_silences_made_by_operators_only(house, alerts, role, allowed):
    alerts.raised()
    await alerts.silence("*", "*", 60, "", actor="me")
    app = house.with_tokens().app()
    async with house.client(app=app, token=f"em_{role}") as client:
        for method, path, body in WRITES:
            answer = await client.request(method, path, json=body)
            assert (answer.status_code < 300) is allowed, (path, answer.text)
            assert answer.status_code != 403 or "operator" in answer.json()["detail"]


async def test_a_list_shows_what_stands_newest_first_and_says_all_there_is_to_know(client, alerts):
    first = alerts.raised(text="it failed 3 times", facts={"failures": "3"})
    over = alerts.raised("worker-down", "w7", Level.WARNING)
    alerts.ended(over)
    alerts.raised("repo-held", "x", Level.WARNING)
    await alerts.silence("project-*", "devops/*", 3600, "", actor="me")
    shown = (await client.get("/api/alerts")).json()
    assert (shown["total"], shown["page"], shown["size"]) == (2, 1, 50)
    assert [item["kind"] for item in shown["items"]] == ["repo-held", "project-failing"]
    item = shown["items"][1]
    assert {name: item[name] for name in ("id", "level", "about", "text", "standing", "facts")} == {
        "id": first.id, "level": "error", "about": "devops/core", "text": "it failed 3 times",
        "standing": True, "facts": {"failures": "3"},
    }  # fmt: skip
    assert (item["raised_at"], item["ended_at"]) == ("2025-12-13T23:55:00Z", None)
    assert item["silenced_by"] is not None
    everything = (await client.get("/api/alerts?state=all")).json()
    assert everything["total"] == 3
    gone = (await client.get("/api/alerts?state=over")).json()["items"]
    assert [(g["standing"], g["ended_at"], g["end_text"]) for g in gone] == [
        (False, "2025-12-13T23:56:00Z", "it works again")
    ]


async def test_titles_and_texts_are_told_in_the_language_asked_for(client, alerts):
    facts = {"project": "devops/core", "failures": "3"}
    record = alerts.raised(text="devops/core failed 3 times in a row", facts=facts)
    item = (await client.get("/api/alerts")).json()["items"][0]
    assert (item["title"], item["text"]) == ("Project fails", "devops/core failed 3 times in a row")
    for path in ("/api/alerts?language=zh", f"/api/alerts/{record.id}?language=zh"):
        told = (await client.get(path)).json()
        item = told["items"][0] if "items" in told else told
        assert (item["title"], item["text"]) == ("项目同步失败", "devops/core 连续失败 3 次")


async def test_what_is_asked_for_reaches_the_service(client, alerts):
    query = "level=error&kind=worker-down&about=w&from=2025-12-13T00:00:00Z&to=2025-12-14&page=2&limit=7"
    assert (await client.get(f"/api/alerts?state=all&{query}")).status_code == 200
    asked = alerts.asked[-1]
    assert (asked.standing, asked.level, asked.kind, asked.about) == (None, Level.ERROR, "worker-down", "w")
    assert (asked.begin, asked.end, asked.page, asked.size) == (1765584000.0, 1765670400.0, 2, 7)


@pytest.mark.parametrize(
    "query",
    ["state=gone", "level=fatal", "size=0", "size=1001", "page=0", "from=yesterday", "kind=%00",
     "from=2025-12-14&to=2025-12-13", "language=fr"],
)  # fmt: skip
async def test_a_list_that_cannot_be_is_refused_by_name(client, query):
    answer = await client.get(f"/api/alerts?{query}")
    assert answer.status_code == 422
    assert query.partition("=")[0] in answer.json()["detail"]


async def test_one_alert_says_who_was_told_of_it_and_who_not(client, alerts):
    record = alerts.raised()
    alerts.noticed(record, "ops", sent_at=NOW + 1, attempts=2, error="busy")
    alerts.noticed(record, "mail", given_up_at=NOW + 9, attempts=40, error="550 no such user")
    alerts.noticed(record, "hook", Turn.WORSE, attempts=1, not_before=NOW + 30, error="503")
    notices = (await client.get(f"/api/alerts/{record.id}")).json()["notices"]
    assert [(n["channel"], n["turn"], n["state"], n["error"]) for n in notices] == [
        ("ops", "raised", "sent", ""),
        ("mail", "raised", "given-up", "550 no such user"),
        ("hook", "worse", "waiting", "503"),
    ]
    assert [n["next_attempt_at"] for n in notices] == [None, None, "2025-12-13T23:55:30Z"]


@pytest.mark.parametrize("number", ["7", "0", "-1", "x", "1e3", "9" * 30, "%20", "\u0661"])
async def test_an_alert_or_silence_that_is_not_there_is_404(client, alerts, number):
    alerts.raised()
    for answer in (
        await client.get(f"/api/alerts/{number}"),
        await client.delete(f"/api/alerts/silences/{number}"),
    ):
        assert answer.status_code == 404
        assert answer.json()["type"] == "/problems/not-found"


async def test_channels_say_how_they_are(client, alerts):
    alerts.states["hook"] = replace(
        alerts.states["ops"], name="hook", type="webhook", failing_since=NOW - 5, error="it answers 502"
    )
    items = (await client.get("/api/alerts/channels")).json()["items"]
    assert [(c["name"], c["type"], c["state"], c["waiting"], c["error"]) for c in items] == [
        ("ops", "dingtalk", "fine", 2, ""),
        ("mail", "mail", "unused", 0, ""),
        ("hook", "webhook", "failing", 2, "it answers 502"),
    ]


async def test_a_test_tells_of_each_channel_whether_it_took_the_message(client, alerts):
    alerts.refuses["mail"] = "it says errcode 310000: sign not match"
    everything = (await client.post("/api/alerts/test")).json()["items"]
    assert everything == [
        {"channel": "ops", "sent": True, "error": ""},
        {"channel": "mail", "sent": False, "error": "it says errcode 310000: sign not match"},
    ]
    one = (await client.post("/api/alerts/test", json={"channel": "ops"})).json()["items"]
    assert [c["channel"] for c in one] == ["ops"]
    assert alerts.audit == [("local", "test", "all"), ("local", "test", "ops")]
    unknown = await client.post("/api/alerts/test", json={"channel": "nobody"})
    assert (unknown.status_code, "nobody" in unknown.json()["detail"]) == (404, True)
    alerts.states = {}
    none = await client.post("/api/alerts/test", json={})
    assert (none.status_code, none.json()["type"]) == (409, "/problems/conflict")
    assert "channels" in none.json()["hint"]


async def test_a_silence_is_made_listed_and_ended(client, alerts):
    body = {"kind": "project-*", "about": "devops/*", "for_s": 7200, "reason": "moving house"}
    made = await client.post("/api/alerts/silences", json=body)
    assert made.status_code == 201
    shown = made.json()
    assert {k: shown[k] for k in ("kind", "about", "until", "by", "reason")} == {
        "kind": "project-*", "about": "devops/*", "until": "2025-12-14T01:55:00Z", "by": "local",
        "reason": "moving house",
    }  # fmt: skip
    assert (await client.get("/api/alerts/silences")).json()["items"] == [shown]
    ended = await client.delete(f"/api/alerts/silences/{shown['id']}")
    assert ended.json() == {"id": shown["id"], "status": "removed"}
    assert (await client.get("/api/alerts/silences")).json()["items"] == []
    assert [what for _, what, _ in alerts.audit] == ["silence", "unsilence"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"for_s": 0},
        {"for_s": 1e-300},
        {"for_s": 0.9},
        {"for_s": -5},
        {"for_s": 400 * 86400},
        {"for_s": "2h"},
        {"for_s": 60, "kind": ""},
        {"for_s": 60, "kind": "a\nb"},
        {"for_s": 60, "kind": "[a"},
        {"for_s": 60, "about": "x" * 301},
        {"for_s": 60, "forever": True},
        {"for_s": 60, "reason": "r" * 501},
    ],
)
async def test_a_silence_that_cannot_be_changes_nothing(client, alerts, body):
    answer = await client.post("/api/alerts/silences", json=body)
    assert answer.status_code == 422
    assert answer.json()["type"] == "/problems/invalid-input"
    assert alerts.in_force == {}


@pytest.mark.parametrize(
    ("method", "path", "listed_at"),
    [("DELETE", "/api/alerts/silences/x", "/api/alerts/silences"), ("GET", "/api/alerts/x", "/api/alerts")],
)
async def test_an_id_that_is_no_number_is_answered_with_where_they_are_listed(
    client, method, path, listed_at
):
    answer = await client.request(method, path)
    assert (answer.status_code, answer.json()["hint"]) == (404, f"Ids are numbers: GET {listed_at}")


async def test_a_silence_of_no_kind_that_there_is_says_which_there_are(client, alerts):
    answer = await client.post("/api/alerts/silences", json={"for_s": 60, "kind": "project-failng"})
    assert (answer.status_code, alerts.in_force) == (422, {})
    assert "'project-failng' matches no kind" in answer.json()["detail"]
    assert "project-failing" in answer.json()["hint"]


async def test_a_list_of_no_kind_that_there_is_says_which_there_are(client):
    answer = await client.get("/api/alerts?kind=project-failng")
    assert answer.status_code == 422
    assert "'project-failng' is no kind" in answer.json()["detail"]
    assert "project-failing" in answer.json()["hint"]


async def test_a_server_without_alerts_says_whom_to_ask(house):
    app = replace(house, alerts=None).app()
    async with house.client(app=app) as client:
        for method, path in [("GET", path) for path in READS] + [(m, p) for m, p, _ in WRITES]:
            answer = await client.request(method, path, json={"for_s": 60} if "sil" in path else None)
            assert answer.status_code == 404, path
            assert "coordinator" in answer.json()["hint"]


async def test_a_hostile_name_is_answered_as_plain_text(client, alerts):
    alerts.raised(about="a\udcffb", text="<script>\udc80\u202e")
    item = (await client.get("/api/alerts")).json()["items"][0]
    assert (item["about"], item["text"]) == ("a\ufffdb", "<script>\ufffd\u202e")


# Prometheus


def samples(text: str) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


async def test_figures_of_alerts_and_credentials_are_for_readers(house, alerts):
    alerts.raised()
    alerts.raised("worker-down", "w7", Level.CRITICAL)
    alerts.states["ops"] = replace(alerts.states["ops"], failing_since=NOW)
    alerts.counted["ops", NoticeEnd.SENT] = 5
    alerts.counted["ops", NoticeEnd.FAILED] = 2
    house.metrics.inside.register(AlertCollector(alerts.figures))
    house.metrics.inside.register(CredentialCollector(lambda: {"corp-token": NOW}))
    app = house.with_tokens().app()
    async with house.client(app=app, token="em_reader") as reader:
        told = samples((await reader.get("/metrics")).text)
    assert [told[f"evermirror_alerts_standing{{level={level.value}}}"] for level in Level] == [0, 1, 1]
    assert told["evermirror_alert_notices_total{channel=ops,result=sent}"] == 5
    assert told["evermirror_alert_notices_total{channel=ops,result=failed}"] == 2
    assert told["evermirror_alert_notices_total{channel=mail,result=given-up}"] == 0
    assert told["evermirror_alert_notices_waiting{channel=ops}"] == 2
    assert told["evermirror_alert_channel_failing{channel=ops}"] == 1
    assert told["evermirror_alert_channel_failing{channel=mail}"] == 0
    assert told["evermirror_credential_expires_timestamp_seconds{credential=corp-token}"] == NOW
    assert told["evermirror_repos_fresh{}"] == 0
    async with house.client(app=app, address="203.0.113.9") as anybody:
        public = await anybody.get("/metrics")
    assert public.status_code == 200
    assert "evermirror_repos_fresh" in public.text
    for word in ("corp-token", "ops", "alert"):
        assert word not in public.text
