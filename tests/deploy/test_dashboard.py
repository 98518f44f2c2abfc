"""The Grafana dashboard that we ship: its shape, and what it asks."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import combinations
from pathlib import Path

import pytest

from evermirror.model.hook import HookTrust
from evermirror.model.pull import LoadLevel
from evermirror.model.repo import RepoStatus
from tests.deploy import dashboard


def test_it_has_what_grafana_10_reads():
    found = dashboard.load()
    assert found["schemaVersion"] >= 38  # Grafana 10's
    assert (found["uid"], found["title"]) == ("evermirror", "evermirror")
    assert "id" not in found  # the importing Grafana gives it one
    variables = {one["name"]: one["type"] for one in found["templating"]["list"]}
    assert variables == {"datasource": "datasource", "instance": "query"}


def test_every_panel_says_what_it_shows_from_the_chosen_data_source():
    for panel in dashboard.panels():
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["type"] in ("stat", "timeseries")
        for asked in (panel, *panel["targets"]):
            assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for target in panel["targets"]:
            assert 'instance=~"$instance"' in target["expr"], panel["title"]


def test_panels_have_their_own_ids_and_places():
    found = dashboard.load()["panels"]
    assert len({panel["id"] for panel in found}) == len(found)
    for one, other in combinations([panel["gridPos"] for panel in found], 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
        assert one["x"] + one["w"] <= 24


def test_no_variable_is_left_and_promtool_reads_every_expression(tmp_path):
    rules = []
    for number, (title, expression) in enumerate(dashboard.expressions()):
        assert "$" not in expression, title
        assert dashboard.metrics_in(expression), title
        rules.append({"record": f"panel:{number}", "expr": expression})
    assert len(rules) > 40
    file = tmp_path / "panels.json"  # which is YAML too
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    checked = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, timeout=30
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def told(series: dict[str, str], expressions: list[str], at: str, tmp_path: Path) -> list[list[float]]:
    """What a panel shows in a world of ``series``, a value each minute. promtool says what it got where that
    is not what was expected: nothing."""
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": asked, "eval_time": at, "exp_samples": []} for asked in expressions],
    }
    file = tmp_path / "test.json"
    file.write_text(json.dumps({"evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=60
    )
    found = re.findall(r"got:(.*)", done.stdout + done.stderr)
    assert len(found) == len(expressions), done.stdout + done.stderr
    return [[float(value) for value in re.findall(r"\} (\S+?)(?:,|$)", line)] for line in found]


def asked_by(title: str) -> list[str]:
    return [expression for name, expression in dashboard.expressions() if name == title]


def test_how_long_tasks_take_is_told_also_where_they_are_rare(tmp_path):
    """A task each ten minutes that takes between 3 and 10 s."""
    at_last = "0x9 1x9 2x9 3x9 4x9 5x9"
    bounds = {"3": "0x60", "10": at_last, "+Inf": at_last}
    series = {f'pull_task_duration_seconds_bucket{{le="{le}"}}': values for le, values in bounds.items()}
    half, most = told(series, asked_by("How long tasks take"), "59m", tmp_path)
    assert (half, most) == ([pytest.approx(6.5)], [pytest.approx(9.65)])


@pytest.mark.parametrize(("level", "shown"), [("high", 2), ("normal", 1), ("low", 0), ("", -1)])
def test_the_sources_load_is_one_line(tmp_path, level, shown):
    series = {
        f'pull_source_load{{level="{one.value}"}}': "1x5" if one.value == level else "0x5"
        for one in LoadLevel
    }
    assert told(series, asked_by("Load of the source"), "5m", tmp_path) == [[shown]]
    panel = next(one for one in dashboard.panels() if one["title"] == "Load of the source")
    (mapped,) = panel["fieldConfig"]["defaults"]["mappings"]
    assert mapped["options"][str(shown)]["text"] == (level or "not known")


def test_hooks_are_shown_by_what_became_of_them(tmp_path):
    """Of two servers: three hooks a minute are accepted, one is refused."""
    end = 'evermirror_hooks_total{forge="gitlab",result="%s",instance="%s"}'
    series = {end % ("accepted", "a"): "0+60x9", end % ("accepted", "b"): "0+120x9"}
    series[end % ("refused", "a")] = "0+60x9"
    shown = told(
        series, [asked.replace("[1m]", "[5m]") for asked in asked_by("Hooks of forges")], "9m", tmp_path
    )
    assert sorted(shown[0]) == [pytest.approx(1.0), pytest.approx(3.0)]
    trusts = {
        f'evermirror_hooked_repos{{trust="{t.value}",instance="a"}}': f"{n}x9"
        for n, t in enumerate(HookTrust)
    }
    (by_trust,) = told(trusts, asked_by("Repositories with hooks"), "5m", tmp_path)
    assert sorted(by_trust) == [0, 1, 2]


def test_event_hooks_show_what_was_taken_what_is_laid_aside_and_who_fails(tmp_path):
    series = {
        'evermirror_event_hook_events_total{hook="ci",result="delivered"}': "0+2x90",
        'evermirror_event_hook_events_total{hook="ci",result="laid_aside"}': "0+5x90",
        'evermirror_event_hook_letters{hook="ci"}': "7x90",
        'evermirror_event_hook_failing{hook="ci"}': "1x90",
    }
    shown = told(series, asked_by("Event hooks (with a reader's token)"), "80m", tmp_path)
    assert shown == [[pytest.approx(120)], [7], [1]]


def test_no_figure_changes_with_the_zoom():
    """What is counted is counted per second, or in an hour."""
    for panel in dashboard.panels():
        for target in panel["targets"]:
            assert not re.search(r"increase\([^\[]*\[\$", target["expr"]), panel["title"]


def test_fresh_is_never_more_than_all(tmp_path):
    """The share is of those among whom the fresh ones are counted."""
    counted = {status.value for status in RepoStatus if status.is_live}
    series = {f'evermirror_repos{{job="e",instance="i",status="{s.value}"}}': "10x5" for s in RepoStatus}
    series['evermirror_repos_fresh{job="e",instance="i"}'] = f"{10 * len(counted)}x5"
    for title in ("Fresh", "Fresh share"):
        assert told(series, asked_by(title), "5m", tmp_path) == [[1.0]]


def test_it_asks_for_all_that_people_watch():
    asked = set().union(*(dashboard.metrics_in(expression) for _, expression in dashboard.expressions()))
    assert asked >= {
        "evermirror_repos_fresh", "pull_lag_seconds", "pull_lag_worst_seconds", "pull_verified_equal_ratio",
        "pull_errors_by_type", "pull_concurrent_limit", "pull_source_load", "evermirror_fleet_workers",
        "evermirror_alerts_standing", "evermirror_credential_expires_timestamp_seconds",
        "evermirror_hooks_total", "evermirror_hooked_repos", "evermirror_event_hook_letters",
        "evermirror_event_hook_failing",
    }  # fmt: skip
