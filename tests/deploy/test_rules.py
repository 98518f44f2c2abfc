"""The alert rules that we ship: each fires in a world that is wrong in its way, none where all is well."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
RULES = FOLDER / "evermirror.rules.yml"
HERE = 'instance="here:8420",job="evermirror"'
THERE = 'instance="there:8420",job="evermirror-aggregator"'
HOURS = 5  # that each world lasts, in steps of a minute: longer than any rule looks back or waits
STEPS = HOURS * 60

HOOKS = 'evermirror_hooks_total{forge="gitlab",result="'

WELL = {
    f"up{{{HERE}}}": "1",
    f"up{{{THERE}}}": "1",
    f"evermirror_start_time_seconds{{{HERE}}}": "1000",
    f"evermirror_repos_fresh{{{HERE}}}": "95",
    f'evermirror_repos{{status="active",{HERE}}}': "95",
    f'evermirror_repos{{status="failing",{HERE}}}': "5",
    f'evermirror_repos{{status="pending",{HERE}}}': "3",
    f'evermirror_repos{{status="inactive",{HERE}}}': "900",
    f"evermirror_disk_free_bytes{{{HERE}}}": "40",
    f"evermirror_disk_bytes{{{HERE}}}": "100",
    f"evermirror_aggregator_disk_used_share{{{THERE}}}": "0.5",
    f"evermirror_accepting_clones{{{HERE}}}": "1",
    f'evermirror_fleet_workers{{status="alive",{HERE}}}': "3",
    f'evermirror_fleet_workers{{status="draining",{HERE}}}': "0",
    f'evermirror_fleet_workers{{status="down",{HERE}}}': "0",
    f"evermirror_fleet_brake{{{HERE}}}": "0",
    f"evermirror_fleet_repos_no_room{{{HERE}}}": "0",
    f"evermirror_aggregator_coordinator_connected{{{THERE}}}": "1",
    f"pull_sync_success_rate{{{HERE}}}": "0.97",
    f'pull_errors_by_type{{type="NETWORK_TIMEOUT",{HERE}}}': "7",
    f"pull_consecutive_failures{{{HERE}}}": "1",  # now this one, now that one
    f"pull_projects_demoted{{{HERE}}}": "0",
    f"pull_projects_paused{{{HERE}}}": "0",
    f'pull_lag_seconds{{priority="critical",{HERE}}}': "400",
    f'pull_lag_seconds{{priority="low",{HERE}}}': "20000",
    f'pull_lag_worst_seconds{{priority="critical",{HERE}}}': "1500",
    f'pull_lag_worst_seconds{{priority="low",{HERE}}}': "80000",
    f'pull_verified_equal_ratio{{priority="critical",{HERE}}}': "1",
    f'pull_verified_equal_ratio{{priority="normal",{HERE}}}': "0.98",
    f'evermirror_credential_expires_timestamp_seconds{{credential="corp",{HERE}}}': "100000000",
    f'evermirror_alert_channel_failing{{channel="ops",{HERE}}}': "0",
    f'evermirror_alert_notices_total{{channel="ops",result="given-up",{HERE}}}': "0",
    f'evermirror_alerts_standing{{level="critical",{HERE}}}': "0",
    f'evermirror_alerts_standing{{level="warning",{HERE}}}': "12",
    f'evermirror_hooks_total{{forge="gitlab",result="accepted",{HERE}}}': f"0+9x{HOURS * 60}",
    f'evermirror_hooks_total{{forge="gitlab",result="refused",{HERE}}}': "7",
    f'evermirror_hooks_total{{forge="gitlab",result="unavailable",{HERE}}}': "3",
    f'evermirror_hooked_repos{{trust="reliable",{HERE}}}': "40",
    f'evermirror_hooked_repos{{trust="silent",{HERE}}}': "0",
    f'evermirror_event_hook_failing{{hook="ci",{HERE}}}': "0",
    f'evermirror_event_hook_letters{{hook="ci",{HERE}}}': "0",
}

Changed = dict[str, str | None]
"""What is otherwise, by how series begin: a constant, promtool's notation, or None: it is not there."""

# alert: what is otherwise, the labels that tell which one is meant
WRONG: dict[str, tuple[Changed, dict[str, str]]] = {
    "EvermirrorDown": ({'up{instance="here': "0"}, {}),
    "EvermirrorRestarts": ({"evermirror_start_time_seconds": f"0+1x{STEPS}"}, {}),
    "EvermirrorNotFresh": ({"evermirror_repos_fresh": "89"}, {}),
    "EvermirrorNoFreshData": ({"evermirror_repos_fresh": "0"}, {}),
    "EvermirrorFirstCopiesStuck": ({'evermirror_repos{status="pending"': "12"}, {}),
    "EvermirrorDiskFilling": ({"evermirror_aggregator_disk_used_share": "0.91"}, {}),
    "EvermirrorTakesNoClones": ({"evermirror_accepting_clones": "0"}, {}),
    "EvermirrorWorkerDown": ({'evermirror_fleet_workers{status="down"': "1"}, {"status": "down"}),
    "EvermirrorNoWorkers": ({'evermirror_fleet_workers{status="alive"': "0"}, {}),
    "EvermirrorBrake": ({"evermirror_fleet_brake": "1"}, {}),
    "EvermirrorNoRoom": ({"evermirror_fleet_repos_no_room": "2"}, {}),
    "EvermirrorAggregatorDown": ({'up{instance="there': "0"}, {}),
    "EvermirrorAggregatorAlone": ({"evermirror_aggregator_coordinator_connected": "0"}, {}),
    "PullFailureRate": ({"pull_sync_success_rate": "0.94"}, {}),
    "PullErrors": ({"pull_errors_by_type": f"0+1x{STEPS}"}, {"type": "NETWORK_TIMEOUT"}),
    "PullProjectsFailing": ({"pull_projects_demoted": "1"}, {}),
    "PullProjectsPaused": ({"pull_projects_paused": "1"}, {}),
    "PullLag": ({'pull_lag_seconds{priority="critical"': "1801"}, {"priority": "critical"}),
    "PullLagWorst": ({'pull_lag_worst_seconds{priority="low"': "172801"}, {"priority": "low"}),
    "PullNotEqual": ({'pull_verified_equal_ratio{priority="normal"': "0.94"}, {"priority": "normal"}),
    "PullNotEqualCritical": (
        {'pull_verified_equal_ratio{priority="critical"': "0.99"},
        {"priority": "critical"},
    ),
    "EvermirrorNoAlertFigures": ({"evermirror_alerts_standing": None}, {}),
    "EvermirrorCredentialExpiring": (
        {"evermirror_credential_expires": str(HOURS * 3600 + 29 * 86400)},
        {"credential": "corp"},
    ),
    "EvermirrorCredentialExpiringSoon": (
        {"evermirror_credential_expires": str(HOURS * 3600 + 6 * 86400)},
        {"credential": "corp"},
    ),
    "EvermirrorCredentialExpired": ({"evermirror_credential_expires": "60"}, {"credential": "corp"}),
    "EvermirrorAlertChannelFailing": ({"evermirror_alert_channel_failing": "1"}, {"channel": "ops"}),
    "EvermirrorAlertsGivenUp": (
        {"evermirror_alert_notices_total": f"0+1x{STEPS}"},
        {"channel": "ops", "result": "given-up"},
    ),
    "EvermirrorCriticalAlerts": ({'evermirror_alerts_standing{level="critical"': "1"}, {"level": "critical"}),
    "EvermirrorHooksRefused": ({f"{HOOKS}refused": f"0+1x{STEPS}"}, {"forge": "gitlab"}),
    "EvermirrorHooksNotTaken": ({f"{HOOKS}unavailable": f"0x{STEPS - 5} 1x4"}, {"forge": "gitlab"}),
    "EvermirrorHooksSilent": ({'evermirror_hooked_repos{trust="silent"': "1"}, {"trust": "silent"}),
    "EvermirrorEventHookFailing": ({"evermirror_event_hook_failing": "1"}, {"hook": "ci"}),
    "EvermirrorEventLetters": ({"evermirror_event_hook_letters": "2"}, {"hook": "ci"}),
}
# What one wrong thing brings along: all of it is true.
ALSO = {
    "EvermirrorNoFreshData": {"EvermirrorNotFresh"},
}

DAY_S = 86_400
END_S = HOURS * 3600
# What happened, and what fires at its end.
STORIES: dict[str, tuple[Changed, set[str]]] = {
    "five_percent_fail": ({"pull_sync_success_rate": repr(1.0 - 10 / 200)}, set()),
    "a_few_more_fail": ({"pull_sync_success_rate": repr(1.0 - 11 / 200)}, {"PullFailureRate"}),
    "nine_of_ten_are_fresh": ({"evermirror_repos_fresh": "90"}, set()),
    "nine_tenths_of_the_disk_are_full": (
        {"evermirror_aggregator_disk_used_share": "0.9", "evermirror_disk_free": "10"},
        set(),
    ),
    "lag_at_its_bound": ({'pull_lag_seconds{priority="critical"': "1800"}, set()),
    "equal_at_its_bound": ({'pull_verified_equal_ratio{priority="normal"': "0.95"}, set()),
    "a_week_to_go": (
        {"evermirror_credential_expires": str(END_S + 7 * DAY_S)},
        {"EvermirrorCredentialExpiring"},
    ),
    "the_last_second": ({"evermirror_credential_expires": str(END_S)}, {"EvermirrorCredentialExpired"}),
    "a_new_catalog_is_loaded": (
        {
            'evermirror_repos{status="pending"': f"2000-5x{STEPS}",
            'evermirror_repos{status="active"': f"0+5x{STEPS}",
            "evermirror_repos_fresh": f"0+5x{STEPS}",
        },
        set(),
    ),
    "many_were_added": ({'evermirror_repos{status="pending"': f"0x{STEPS - 91} 5000-3x90"}, set()),
    "one_restart": (
        {
            'up{instance="here': f"1x{STEPS - 6} 0 1x4",
            "evermirror_start_time_seconds": f"1000x{STEPS - 6} _ 9000x4",
            "pull_errors_by_type": f"500x{STEPS - 6} _ 3x4",
            "evermirror_alert_notices_total": f"500x{STEPS - 6} _ 0x4",
        },
        set(),
    ),
    "errors_before_and_after_a_restart": (
        {"pull_errors_by_type": f"0x{STEPS - 31} 0+1x7 0+1x7 7x14"},
        {"PullErrors"},
    ),
    "it_answers_one_scrape_of_three": (
        {'up{instance="here': " ".join("001"[n % 3] for n in range(STEPS + 1))},
        {"EvermirrorDown"},
    ),
    "nothing_is_scraped": ({series: None for series in WELL if HERE in series}, {"EvermirrorDown"}),
    "it_is_down_and_so_are_its_figures": (
        {series: "0" if series.startswith("up") else None for series in WELL if HERE in series},
        {"EvermirrorDown"},
    ),
    "somebody_tries_nine_secrets": ({f"{HOOKS}refused": f"0x{STEPS - 12} 0+1x9 9 9"}, set()),
    "a_secret_was_changed_on_one_side": (
        {f"{HOOKS}refused": f"0x{STEPS - 5} 0+4x4"},
        {"EvermirrorHooksRefused"},
    ),
    "and_it_was_mended_an_hour_ago": ({f"{HOOKS}refused": f"0x{STEPS - 80} 0+4x19 76x60"}, set()),
    "hooks_of_before_a_restart": (
        {f"{HOOKS}refused": f"900x{STEPS - 6} _ 0x4", f"{HOOKS}unavailable": f"900x{STEPS - 6} _ 0x4"},
        set(),
    ),
    "the_database_was_away_last_night": ({f"{HOOKS}unavailable": f"0x{STEPS - 30} 50x29"}, set()),
    "hooks_were_silent_for_a_while": (
        {'evermirror_hooked_repos{trust="silent"': f"0x{STEPS - 60} 3x39 0x20"},
        set(),
    ),
    "letters_were_sent_again_at_once": (
        {"evermirror_event_hook_letters": f"0x{STEPS - 11} 4x10"},
        set(),
    ),
    "a_receiver_is_away_and_its_events_are_laid_aside": (
        {"evermirror_event_hook_failing": "1", "evermirror_event_hook_letters": f"0x{STEPS - 60} 0+1x59"},
        {"EvermirrorEventHookFailing", "EvermirrorEventLetters"},
    ),
    "no_hooks_are_used": ({series: None for series in WELL if "hook" in series}, set()),
    "no_projects_and_no_aggregator": (
        {series: None for series in WELL if THERE in series or series.startswith("pull_")},
        set(),
    ),
}


def rules() -> list[dict]:
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def promtool(*args: object, folder: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *map(str, args)], cwd=folder, capture_output=True, text=True, timeout=120
    )


def test_promtool_takes_the_rules_and_the_configuration(tmp_path):
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert checked.returncode == 0, checked.stderr + checked.stdout
    for file in FOLDER.glob("*.yml"):
        (tmp_path / file.name).write_text(file.read_text("utf-8"))
    (tmp_path / "evermirror.token").write_text("em_x")
    checked = promtool("check", "config", "prometheus.yml", folder=tmp_path)
    assert checked.returncode == 0, checked.stderr + checked.stdout
    assert f"{len(rules())} rules found" in checked.stdout


def values_of(series: str, changed: Changed) -> str | None:
    found = [values for begin, values in changed.items() if series.startswith(begin)]
    said = found[0] if found else WELL[series]
    return said if said is None or re.search("[x ]", said) else f"{said}x{STEPS}"


def world(changed: Changed) -> list[dict[str, str]]:
    unknown = [begin for begin in changed if not any(series.startswith(begin) for series in WELL)]
    assert unknown == []
    told = {series: values_of(series, changed) for series in WELL}
    return [{"series": series, "values": values} for series, values in told.items() if values is not None]


def blip(changed: Changed) -> Changed:
    """All was well until the last minute."""
    return {
        series: f"{WELL[series]}x{STEPS - 1} {'stale' if values is None else values.partition('x')[0]}"
        for series in WELL
        if (values := values_of(series, changed)) != values_of(series, {})
    }


def firing(
    worlds: dict[str, Changed], tmp_path: Path, looked: str = "5m"
) -> dict[str, list[tuple[str, dict[str, str]]]]:
    """Of each world, what fires at its end. promtool says what it found where that is not what was expected:
    so it is asked for every rule whether nothing fires."""
    tests = [
        {
            "name": name,
            "interval": "1m",
            "input_series": world(changed),
            "alert_rule_test": [
                {"eval_time": f"{HOURS}h", "alertname": rule["alert"], "exp_alerts": []} for rule in rules()
            ],
        }
        for name, changed in worlds.items()
    ]
    file = tmp_path / "test.json"  # which is YAML too
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": looked, "tests": tests}))
    done = promtool("test", "rules", file)
    found: dict[str, list[tuple[str, dict[str, str]]]] = {name: [] for name in worlds}
    name = alert = ""
    for line in (done.stdout + done.stderr).splitlines():
        if said := re.match(r"name: (\w+),$", line.strip()):
            name = said[1]
        if said := re.search(r"alertname: (\w+), time", line):
            alert = said[1]
        if said := re.match(r"Labels:\{(.*)\}$", line.strip()):
            found[name].append((alert, dict(re.findall(r'(\w+)="(.*?)"', said[1]))))
    assert done.returncode == (1 if any(found.values()) else 0), done.stderr
    return found


def test_every_rule_is_tried():
    assert {rule["alert"] for rule in rules()} == WRONG.keys()


def test_each_fires_in_its_world_and_nothing_where_all_is_well(tmp_path):
    found = firing({"well": {}, **{alert: changed for alert, (changed, _) in WRONG.items()}}, tmp_path)
    assert found.pop("well") == []
    for alert, told in found.items():
        assert {name for name, _ in told} == {alert, *ALSO.get(alert, ())}, alert
        labels = dict(next(labels for name, labels in told if name == alert))
        assert labels.items() >= WRONG[alert][1].items(), alert


def test_stories_of_bounds_restarts_and_figures_that_are_missing_end_as_they_should(tmp_path):
    found = firing({name: changed for name, (changed, _) in STORIES.items()}, tmp_path, looked="1m")
    ended = {name: {alert for alert, _ in told} for name, told in found.items()}
    assert ended == {name: expected for name, (_, expected) in STORIES.items()}


def test_those_that_wait_say_nothing_of_what_lasts_a_moment(tmp_path):
    waiting = {rule["alert"] for rule in rules() if "for" in rule}
    assert len(waiting) > 15
    found = firing({alert: blip(WRONG[alert][0]) for alert in waiting}, tmp_path)
    assert [told for told in found.values() if told] == []


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_each_says_how_serious_it_is_and_what_is_wrong_in_both_languages(rule):
    assert rule["labels"]["severity"] in ("warning", "error", "critical")
    told = rule["annotations"]
    assert told["summary"]
    assert re.search("[\u4e00-\u9fff]", told["summary_zh"])
    assert told["description"].endswith(".")


@pytest.mark.parametrize("page", ["monitoring.md", "monitoring.zh-CN.md"])
def test_the_page_about_them_names_every_rule_and_no_other(page):
    text = (ROOT / "docs" / page).read_text("utf-8")
    named = set(re.findall(r"`((?:Evermirror|Pull)\w+)`", text))
    assert named == {rule["alert"] for rule in rules()}
    assert f"{len(rules())} " in text
