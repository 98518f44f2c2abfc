"""The reference pages say what the program says."""

from __future__ import annotations

import re
from pathlib import Path

from typer.main import get_command

from evermirror.config.show import template
from evermirror.core.fsck import DEFECTS, Verdict
from evermirror.faces.api.problems import Kind
from evermirror.faces.cli.app import app
from evermirror.model.failure import FailureKind
from evermirror.model.repo import RepoStatus

DOCS = Path(__file__).parent.parent / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def test_the_settings_page_shows_what_config_init_prints():
    found = re.search(r"^```toml\n(.*?)^```$", page("settings.md"), re.MULTILINE | re.DOTALL)
    assert found is not None
    assert found[1] == template()


def test_every_command_has_a_heading_in_the_command_line_page():
    commands = get_command(app).commands  # type: ignore[attr-defined]
    headings = {h.split()[0] for h in re.findall(r"^## (.+)$", page("cli.md"), re.MULTILINE)}
    assert set(commands) - headings == set()


def test_every_problem_type_is_in_the_api_page():
    text = page("api.md")
    assert [k.uri for k in Kind if f"| {k.status} | `{k.uri}` |" not in text] == []


def test_every_status_and_error_type_is_explained_in_the_guide():
    text = page("guide.md")
    told = [*(s.value for s in RepoStatus), *(k.value for k in FailureKind)]
    assert [name for name in told if f"\n| `{name}` |" not in text] == []


def test_every_test_that_the_page_of_bad_input_names_exists():
    tests = Path(__file__).parent
    named = set(re.findall(r"`(test_\w+)`", page("bad-input.md")))
    there = {n for f in tests.rglob("test_*.py") for n in re.findall(r"def (test_\w+)", f.read_text("utf-8"))}
    assert named
    assert named - there == set()
    files = set(re.findall(r"`(tests/[\w/]+)`", page("bad-input.md")))
    assert [f for f in files if not (tests.parent / f).exists()] == []


def test_the_page_of_malformed_objects_has_each_verdict_and_its_reason():
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \| (.+) \|$", page("objects.md"), re.MULTILINE)
    assert rows == [(d.id, d.verdict.value, d.what, d.why) for d in DEFECTS]
    assert [v.value for v in Verdict if f"\n| {v.value} | " not in page("objects.md")] == []


def test_every_row_of_the_threat_model_names_tests_that_exist():
    table = page("security.md").split("## Threat model")[1]
    rows = re.findall(r"^\| .* \| ([^|]*) \|$", table, re.MULTILINE)[1:]
    missing, file = [], ""
    for name in re.findall(r"`([^`]+)`", " ".join(rows)):
        named, _, test = name.partition("::")
        file = named or file
        found = DOCS.parent / "tests" / file
        if not found.is_file() or (test and f"def {test}(" not in found.read_text()):
            missing.append(name)
    assert rows
    assert missing == []
