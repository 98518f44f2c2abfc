"""What other people's programs and scripts rely on: it may grow, and nothing of it changes or goes away.

Each golden file beside this one names a part of the public surface; what it does not name is ours to change.
API and metrics are read off a running all-in-one, commands off their help: descriptions may change.
After a change that is meant, write the goldens anew and read the difference (CI refuses to write):

    GOLDEN=write .venv/bin/python -m pytest tests/public

To promise more, add a name with the value null first. To promise less, take the name out by hand.
Elsewhere: the Chinese boxes of `pull progress`, `show` and `errors statistics` (test_pull.py of the command
line), URLs that mirrors are cloned from (test_git.py), URLs that may be mirrored (test_url.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from evermirror.config.load import load
from evermirror.config.schema import all_settings
from evermirror.config.show import as_toml, shown_settings
from tests.faces.cli.pull_answers import (
    CHINESE,
    ERROR,
    FAILED,
    KEY,
    PROJECT,
    STATISTICS,
    STRATEGY,
    TARGETS,
    TASK,
    page,
    project,
)
from tests.support.migrated import tables_at_once
from tests.support.stage import Stage
from tests.support.upstream import UpstreamServer

HERE = Path(__file__).parent
WRITE = os.environ.get("GOLDEN") == "write"
Shape = Any  # what JSON holds


def picked(wanted: Shape, found: Shape) -> Shape:
    """Of ``found`` what ``wanted`` has names for; null where there is no such name."""
    match wanted, found:
        case dict(), dict():
            return {name: picked(inner, found.get(name)) for name, inner in wanted.items()}
        case list(), list() if len(wanted) == len(found):
            return [picked(inner, item) for inner, item in zip(wanted, found, strict=True)]
    return found


def gone(shape: Shape, at: str = "") -> Iterator[str]:
    """Where ``shape`` has null: names that nothing has any more."""
    if shape is None:
        yield at
    inside = shape.items() if isinstance(shape, dict) else enumerate(shape) if isinstance(shape, list) else ()
    for name, inner in inside:
        yield from gone(inner, f"{at} / {name}")


def hold(name: str, found: Shape) -> None:
    """Compare with the golden file ``name``, or write that."""
    file = HERE / name
    golden = json.loads(file.read_text("utf-8"))
    now = picked(golden, found)
    assert list(gone(now)) == []
    if WRITE:
        lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(shape)}" for key, shape in now.items())
        write(file, f"{{\n{lines}\n}}\n")
    else:
        assert now == golden


def write(file: Path, text: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail("people write goldens, CI only reads them")
    file.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a running all-in-one answers at each path."""
    folder = tmp_path_factory.mktemp("public")

    async def read() -> dict[str, str]:
        async with Stage(folder, upstream).up() as up:
            return {path: (await up.client.get(path)).text for path in ("/openapi.json", "/metrics")}

    with UpstreamServer(folder / "upstream") as upstream, tables_at_once():
        return asyncio.run(read())


# The API


class Operations:
    """The OpenAPI document as names, types and values of enums."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._schemas = document["components"]["schemas"]
        self._paths = document["paths"]

    def all(self) -> dict[str, Shape]:
        return {
            f"{method.upper()} {re.sub('{.*?}', '{}', path)}": self._operation(operation)
            for path, methods in self._paths.items()
            for method, operation in methods.items()
        }

    def _operation(self, operation: Mapping[str, Any]) -> Shape:
        parameters = operation.get("parameters", ())
        asked = {p["name"]: p for p in parameters if p["in"] == "query"}
        content = operation.get("requestBody", {}).get("content", {})
        body = content.get("application/json", {}).get("schema", {})
        answers = {code: a for code, a in operation["responses"].items() if code < "300"}
        return {
            "path": [self._shape(p["schema"]) for p in parameters if p["in"] == "path"],
            "query": {name: self._shape(p["schema"]) for name, p in asked.items()},
            "body": self._shape(body),
            "needs": " ".join(
                sorted([n for n, p in asked.items() if p.get("required")] + [*self._needs(body)])
            ),
        } | {code: self._answer(answer) for code, answer in answers.items()}

    def _answer(self, answer: Mapping[str, Any]) -> Shape:
        return self._shape(answer.get("content", {}).get("application/json", {}).get("schema", {}), sent=True)

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema

    def _needs(self, schema: Mapping[str, Any], within: str = "") -> Iterator[str]:
        """Fields that a request must have."""
        schema = self._resolved(schema)
        for choice in (*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())):
            yield from self._needs(choice, within)
        for name, inner in schema.get("properties", {}).items():
            if name in schema.get("required", ()):
                yield within + name
            yield from self._needs(inner, f"{within}{name}.")

    def _shape(self, schema: Mapping[str, Any], sent: bool = False) -> Shape:
        """Types and enum values in words, fields as a table; a field that we may leave out ends in ``?``."""
        schema = self._resolved(schema)
        if "anyOf" in schema:
            return _either([self._shape(choice, sent) for choice in schema["anyOf"]])
        if "properties" in schema:
            always = schema.get("required", ()) if sent else schema["properties"]
            return {
                name if name in always else f"{name}?": self._shape(inner, sent)
                for name, inner in schema["properties"].items()
            }
        if isinstance(schema.get("additionalProperties"), dict):
            return {"*": self._shape(schema["additionalProperties"], sent)}
        if "items" in schema:
            return [self._shape(schema["items"], sent)]
        return "|".join(
            sorted(map(str, schema.get("enum", [schema.get("const", schema.get("type", "any"))])))
        )


def _either(shapes: list[Shape]) -> Shape:
    """What holds of each: of several tables the fields of all; ``or`` names what it may be instead."""
    tables = [shape for shape in shapes if isinstance(shape, dict)]
    words = sorted({word for shape in shapes if isinstance(shape, str) for word in shape.split("|")})
    lists = [shape for shape in shapes if isinstance(shape, list)]
    if not tables and not lists:
        return "|".join(words)
    if lists:
        return [*lists[0], *words]
    names = set.intersection(*(set(table) for table in tables))
    merged = {name: _either([table[name] for table in tables]) for name in tables[0] if name in names}
    return merged | ({"or": "|".join(words)} if words else {})


def test_the_api_keeps_its_paths_fields_types_and_values(served):
    hold("api.json", Operations(json.loads(served["/openapi.json"])).all())


def test_what_a_client_must_send_is_noticed_however_deep_it_is():
    inner = {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["b"]}
    body = {
        "anyOf": [
            {"properties": {"x": {"items": {"$ref": "#/s/Inner"}}}, "required": ["x"]},
            {"type": "null"},
        ]
    }
    content = {"content": {"application/json": {"schema": body}}}
    document = {
        "components": {"schemas": {"Inner": inner}},
        "paths": {"/p/{id}": {"post": {"requestBody": content, "responses": {}}}},
    }
    assert Operations(document).all() == {
        "POST /p/{}": {
            "path": [],
            "query": {},
            "body": {"x": [{"a": "string", "b": "string"}], "or": "null"},
            "needs": "x x.b",
        }
    }


# Metrics


def metrics(text: str) -> dict[str, str]:
    """Type and labels of each family; of labels other than a histogram's the values too."""
    found = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    labels: dict[str, dict[str, set[str]]] = {name: {} for name in found}
    for sample, inside in re.findall(r"^(\w+)\{(.*)\} ", text, re.MULTILINE):
        family = sample if sample in found else re.sub("_(bucket|sum|count|created)$", "", sample)
        for label, value in re.findall(r'(\w+)="([^"]*)"', inside):
            labels.setdefault(family, {}).setdefault(label, set()).add(value)
    return {
        name: " ".join(
            [
                kind,
                *(n if n == "le" else f"{n}={'|'.join(sorted(v))}" for n, v in sorted(labels[name].items())),
            ]
        )
        for name, kind in found.items()
    }


def test_metrics_keep_their_names_types_and_labels(served):
    hold("metrics.json", metrics(served["/metrics"]))


# Settings


def test_settings_keep_their_names_types_and_defaults(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    defaults = {s.name: as_toml(s.value) for s in shown_settings(load(None, {}, {}))}
    found = {}
    for setting in all_settings():
        words = [setting.kind.name.lower(), *(["|".join(setting.choices)] if setting.choices else [])]
        words += ["or none"] if setting.optional else []
        words += [f"= {defaults[setting.name]}"] if setting.name in defaults else []
        found[setting.name] = " ".join(words)
    hold("settings.json", found)


# The command line


def explained(help_text: str) -> dict[str, str]:
    """Usage, options (``=`` where one takes a value) and commands of a help page; no descriptions."""
    usage = re.search(r"Usage: (.*?) *$", help_text, re.MULTILINE)
    assert usage is not None, help_text
    found = {"usage": usage[1]}
    panel = ""
    for line in help_text.splitlines():
        if opened := re.match(r"╭─ (\w+) ─", line):
            panel = opened[1]
        cells = re.split(r" {2,}", re.sub(r"^│ (\*)? *", "│  ", line).rstrip("│ "))[1:]
        names = [cell for cell in cells if re.fullmatch(r"--?[a-z][a-z-]*", cell)]
        if names:
            value = cells[len(names) : len(names) + 1]
            takes = value and re.match(r"\[?[A-Z]{2}|[A-Z]( \[|$)", value[0])
            found |= dict.fromkeys(names, "=" if takes else "flag")
        elif panel != "Arguments" and (command := re.match(r"│ ([a-z][a-z-]*)  ", line)):
            found[command[1]] = "command"
    return found


def test_commands_keep_their_names_arguments_and_options(run):
    golden = json.loads((HERE / "cli.json").read_text("utf-8"))
    found = {}
    for command in golden:
        program, *words = command.split()
        done = run(*words, "--help", name=program, env={"COLUMNS": "200"})
        found[command] = explained(done.stdout) if done.returncode == 0 else None
    hold("cli.json", found)


BOXES = {
    "strategy show": "en zh",
    f"config {KEY}": "en zh",
    f"show {KEY}": "en",
    "progress": "en",
    "progress --priority=low": "en zh",
    f"tasks {KEY} --limit=10": "en zh",
    "task-status 12345": "en zh",
    f"trigger {KEY}": "en zh",
    f"trigger --projects={KEY},devops/payment": "en zh",
    f"errors {KEY} --limit=10": "en zh",
    "errors statistics --hours=24": "en",
    "errors failed-projects": "en zh",
    f"config batch-set-priority --projects={KEY} --priority=low": "en zh",
}


def test_pull_prints_the_same_boxes(ask, api, progress):
    api.on("GET", "/api/pull/strategy", (200, STRATEGY))
    api.on("GET", project("/config"), (200, {**PROJECT, "targets": TARGETS}))
    api.on(
        "GET", project("/tasks"), page(TASK, {**TASK, "status": "skipped", "changes_count": 0, "repeated": 4})
    )
    api.on("GET", "/api/pull/tasks/12345", (200, TASK))
    created = {"task_id": 12346, "status": "pending", "message": "Pull task created successfully"}
    api.on("POST", project("/trigger"), (200, created))
    batch = {"created_tasks": 1, "skipped_running": 1, "task_ids": [12347]}
    api.on("POST", "/api/pull/trigger/batch", (200, batch))
    api.on("GET", project("/errors"), page(ERROR))
    api.on("GET", "/api/pull/errors/statistics", (200, STATISTICS))
    api.on("GET", "/api/pull/projects/failed", page(FAILED))
    updated = {"updated": 1, "priority": "low", "not_found": []}
    api.on("POST", "/api/pull/projects/batch-update-priority", (200, updated))
    printed = []
    for command, languages in BOXES.items():
        for language in languages.split():
            env = CHINESE if language == "zh" else {"LANG": "C", "TZ": "UTC"}
            done = ask("pull", *command.split(), env=env, name="gitlab-mirror")
            assert done.returncode == 0, (command, done.stderr)
            printed.append(f"$ gitlab-mirror pull {command}  # {language}\n{done.stdout}")
    text = "\n".join(printed)
    if WRITE:
        write(HERE / "boxes.txt", text)
    assert text == (HERE / "boxes.txt").read_text("utf-8")
