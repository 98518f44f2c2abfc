"""The house keeps its own rules: pure core, one way of imports, one place that starts git, true docs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import evermirror
from tests.support import house

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "evermirror"

MAY_START_PROCESSES = {
    "edge/git/process.py": "git that runs to its end",
    "edge/git/stream.py": "git that bytes flow through",
    "faces/cli/joining.py": "becomes the node itself, without the token on its command line",
}

MAY_START_LOOPS = {
    "edge/relay/serving.py": "lines to a relay: one that ends opens the next; a bug counts as a failed dial",
    "edge/store/recorder.py": "sets aside what the database refuses, and waits for it otherwise",
    "faces/api/event_stream.py": "as long as a request, which waits for it",
    "nodes/supervisor.py": "supervises the others",
}


def package_complaints(check, folder: Path) -> list[str]:
    return [f"{name} {problem}" for name, text in house.sources(folder).items() for problem in check(text)]


def test_nobody_starts_a_loop_that_could_die_unnoticed():
    found = {name for name, text in house.sources(PACKAGE).items() if any(house.unsupervised_loops(text))}
    assert found == set(MAY_START_LOOPS), "start it by a Supervisor (nodes/supervisor.py), or in a TaskGroup"


@pytest.mark.parametrize(
    "fault",
    [
        "asyncio.create_task(watch())\nasync def watch():\n    while True:\n        await look()",
        "asyncio.ensure_future(self._watch(1))\nasync def _watch(n):\n    while 1:\n        await look()",
        "loop.create_task(feed.run())",
        "task = create_task(self.line.run(), name='line')",
    ],
)
def test_an_unsupervised_loop_is_noticed(fault):
    assert list(house.unsupervised_loops(fault))


@pytest.mark.parametrize(
    "fine",
    [
        "group.create_task(watch())\nasync def watch():\n    while True:\n        await look()",
        "asyncio.create_task(ask())\nasync def ask():\n    await look()",
        "asyncio.create_task(ask())\nasync def ask():\n    while waiting:\n        await look()",
        "supervisor.start('watch', watch)",
    ],
)
def test_a_loop_that_somebody_answers_for_is_fine(fine):
    assert not list(house.unsupervised_loops(fine))


@pytest.mark.parametrize("layer", ["core", "model"])
def test_pure_layers_have_no_clock_no_chance_and_no_io(layer):
    assert package_complaints(house.impurities, PACKAGE / layer) == []


@pytest.mark.parametrize(
    "fault",
    [
        "import time",
        "import random as r",
        "from os import path",
        "import asyncio",
        "import socket, json",
        "from subprocess import run",
        "import logging",
        "import pathlib",
        "from pathlib import Path",
        "from pathlib import PurePosixPath, Path",
        "import urllib.request",
        "from evermirror.edge.git import command",
        "import numpy; numpy.random.rand()",
        "def f():\n    import secrets",
        "open('x')",
        "__import__('time')",
        "hash('x')",
        "from datetime import datetime\ndatetime.now()",
        "import datetime\ndatetime.datetime.utcnow()",
        "async def f(): ...",
    ],
)
def test_impurity_is_noticed(fault):
    assert list(house.impurities(fault)) != []


def test_purity_is_not_complained_about():
    pure = (
        "from pathlib import PurePosixPath\nfrom urllib.parse import urlsplit\nimport math, collections.abc"
    )
    assert list(house.impurities(pure)) == []


def test_only_named_modules_start_processes():
    found = {
        name: problems
        for name, text in house.sources(PACKAGE).items()
        if (problems := list(house.process_starts(text)))
    }
    assert {name: problems for name, problems in found.items() if name not in MAY_START_PROCESSES} == {}
    assert set(MAY_START_PROCESSES) <= set(found), "an exception that is no longer needed"


@pytest.mark.parametrize(
    "fault",
    [
        "import subprocess",
        "from subprocess import Popen",
        "import asyncio\nasyncio.create_subprocess_exec('git')",
        "from asyncio import create_subprocess_shell",
        "import os\nos.system('git')",
        "import os\nos.execvp('git', [])",
        "import os\nos.posix_spawn('git', [], {})",
        "loop.subprocess_exec(p, 'git')",
    ],
)
def test_a_started_process_is_noticed(fault):
    assert list(house.process_starts(fault)) != []


def test_imports_go_one_way():
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_says_its_one_idea_first():
    silent = [name for name, text in house.sources(PACKAGE).items() if not ast.get_docstring(ast.parse(text))]
    assert silent == []


def own_text_files() -> list[Path]:
    folders = ["src", "tests", "bench", "tools", "docs", ".ci", "deploy", "proto"]
    inside = [p for folder in folders for p in (ROOT / folder).rglob("*") if p.is_file()]
    top = [p for p in ROOT.iterdir() if p.is_file()]
    skip = {"__pycache__", "results", "node_modules", "static", "generated"}
    return [
        p
        for p in (*top, *inside)
        if not skip & set(p.relative_to(ROOT).parts) and p.suffix not in {".npz", ".png"}
    ]


def test_what_is_left_to_do_names_an_issue():
    notes = [
        f"{p.relative_to(ROOT)} {n}" for p in own_text_files() for n in house.open_ends(p.read_text("utf-8"))
    ]
    assert notes == []


def test_a_note_without_an_issue_is_noticed():
    assert list(house.open_ends("x = 1  # TO" + "DO: later")) != []
    assert list(house.open_ends("x = 1  # TO" + "DO(#12): later")) == []


def test_nothing_names_the_machine_it_was_written_on():
    machine = re.compile("|".join(["/wo" + "rk/", "/ro" + "ot/", "/opt/py" + "pi", "/ho" + r"me/\w+/\."]))
    assert [str(p.relative_to(ROOT)) for p in own_text_files() if machine.search(p.read_text("utf-8"))] == []


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_locks_hold_exact_versions_with_hashes_and_no_addresses(lock):
    text = re.sub(r"^ *#.*\n", "", (ROOT / lock).read_text("utf-8"), flags=re.MULTILINE)
    lines = text.replace(" \\\n", "").splitlines()
    assert len(lines) > 20
    exact = re.compile(r"[a-z0-9._-]+(\[[a-z,]+\])?==[^\s;]+( ; .*?)?( +--hash=sha256:[0-9a-f]{64})+")
    assert [x for x in lines if not exact.fullmatch(x)] == []


def test_what_is_installed_from_a_lock_must_have_its_hash():
    assert 'pip_install --require-hashes -r "$lock"' in (ROOT / "tools/setup").read_text("utf-8")


def test_the_locks_agree_with_what_the_project_asks_for():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    name = re.compile(r"[A-Za-z0-9_.-]+")
    for lock, wanted in {
        "requirements.lock": [*project["project"]["dependencies"], *project["dependency-groups"]["build"]],
        "requirements-dev.lock": project["dependency-groups"]["dev"],
    }.items():
        text = (ROOT / lock).read_text("utf-8")
        locked = {x.split("==")[0].split("[")[0] for x in text.splitlines() if "==" in x}
        assert [w for w in wanted if name.match(w).group().lower() not in locked] == [], (
            f"{lock}: run make lock"
        )


def pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def test_links_between_pages_lead_somewhere():
    assert [problem for page in pages() for problem in house.broken_links(page, ROOT)] == []


def test_a_broken_link_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b` c\n[x](#a-b-c) [y](page.md#a-b-c) [z](https://example.com/no)\n```\n[in code](none)\n```\n"
    )
    assert list(house.broken_links(page, tmp_path)) == []
    page.write_text("# A\n[x](#b) [y](none.md) ![z](none.png)\n")
    assert len(list(house.broken_links(page, tmp_path))) == 3


def test_pages_tell_only_targets_that_exist():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert [
        f"{p.name}: {c}" for p in pages() for c in house.unknown_targets(p.read_text("utf-8"), makefile)
    ] == []


def test_an_unknown_target_is_noticed():
    makefile = "run: x ## y\n\techo\n"
    assert list(house.unknown_targets("```sh\n$ cd x && make nun CATALOG=a\n```\n", makefile)) == ["make nun"]
    assert list(house.unknown_targets('```sh\nmake run ARGS="--a b"  # make it so\n```\n', makefile)) == []


def test_both_readmes_show_the_same_commands():
    english, chinese = ((ROOT / name).read_text("utf-8") for name in ("README.md", "README.zh-CN.md"))
    assert house.shown_commands(english) == house.shown_commands(chinese)
    assert {"make run", "make test"} <= set(house.shown_commands(english))


def test_make_alone_lists_every_target_with_a_description():
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("setup", "run", "test", "lint", "types", "format", "bench", "check", "clean", "lock"):
        assert re.search(rf"^  make {target} +\S", done.stdout, re.MULTILINE), target


def test_the_changelog_speaks_of_this_version():
    headings = re.findall(r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert "Unreleased" in headings or evermirror.__version__ in headings
