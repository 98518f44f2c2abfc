"""`make test` looks a second time at the few tests that failed, and at nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOL = ROOT / "tools" / "second-look"
CONFTEST = f"""
    import runpy
    watch = runpy.run_path({str(ROOT / "tests/support/failures.py")!r})["watch"]
    def pytest_configure(config):
        watch(config)
"""
# Whatever is first done where the braces are is done once.
FIRST = """
    import os, pathlib, pytest
    def test_it():
        seen = pathlib.Path(__file__).with_suffix(".seen")
        first = not seen.exists()
        seen.touch()
        {}
"""
ONCE = FIRST.format("assert not first")
NEVER = "def test_it(): assert False"
FINE = "def test_it(): pass"


def looked(folder: Path, tests: dict[str, str], *args: str) -> tuple[int, int, str]:
    """How pytest ended, how the second look did, and what it said."""
    for name, text in {"conftest.py": CONFTEST, **tests}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        return subprocess.run(
            [sys.executable, *command], cwd=folder, env=own, capture_output=True, text=True, check=False
        )

    first = run("-m", "pytest", "-q", "--import-mode=importlib", *args)
    second = run(str(TOOL), str(first.returncode))
    return first.returncode, second.returncode, second.stdout


@pytest.mark.parametrize("args", [(), ("-n", "2", "--dist", "loadscope")], ids=["alone", "by two processes"])
def test_what_passes_alone_is_named_and_does_not_end_the_run(tmp_path, args):
    tests = {"tests/nodes/test_a.py": ONCE, "tests/nodes/test_b.py": FINE}
    first, second, said = looked(tmp_path, tests, *args)
    assert (first, second) == (1, 0), said
    assert "UNSTEADY tests/nodes/test_a.py::test_it" in said
    assert "test_b" not in said


@pytest.mark.parametrize(
    "tests",
    [
        {"tests/nodes/test_a.py": NEVER},
        {"tests/nodes/test_a.py": NEVER, "tests/nodes/test_b.py": ONCE},
        {"tests/core/test_a.py": ONCE},
        {"tests/sim/test_a.py": ONCE, "tests/nodes/test_b.py": ONCE},
        {f"tests/nodes/test_{n}.py": ONCE for n in range(6)},
        {"tests/nodes/test_a.py": FIRST.format("pytest.fail() if first else pytest.skip()")},
    ],
    ids=[
        "fails again", "one of them fails again", "nothing but code", "one of them is", "too many",
        "skipped the second time",
    ],
)  # fmt: skip
def test_a_fault_stays_one(tmp_path, tests):
    assert looked(tmp_path, tests)[:2] == (1, 1)


def test_a_process_that_was_lost_is_a_fault_whatever_passes_afterwards(tmp_path):
    tests = {"tests/nodes/test_a.py": FIRST.format("first and os._exit(7)"), "tests/nodes/test_b.py": ONCE}
    assert looked(tmp_path, tests, "-n", "2", "--dist", "loadscope")[:2] == (1, 1)


def test_what_failed_in_another_run_is_nobodys_business(tmp_path):
    looked(tmp_path, {"tests/nodes/test_old.py": NEVER})
    (tmp_path / "tests/nodes/test_old.py").unlink()
    assert looked(tmp_path, {"tests/nodes/test_a.py": ONCE})[:2] == (1, 0)


@pytest.mark.parametrize(("args", "code"), [(("--no-such-option",), 4), (("-x",), 1), (("--maxfail=1",), 1)])
def test_a_run_that_did_not_come_to_its_end_is_not_looked_at_again(tmp_path, args, code):
    tests = {"tests/nodes/test_a.py": ONCE, "tests/nodes/test_b.py": NEVER}
    assert looked(tmp_path, tests, *args) == (code, code, "")
