"""`make test` looks a second time at the few tests that failed, and at nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "second-look"
ONCE = """
    import pathlib
    def test_it():
        seen = pathlib.Path({name!r} + ".seen")
        first = not seen.exists()
        seen.touch()
        assert not first
"""
NEVER = "def test_it(): assert False"


def looked(folder: Path, tests: dict[str, str], *args: str) -> tuple[int, int, str]:
    """How pytest ended, how the second look did, and what it said."""
    for name, text in tests.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = text.format(name=file.stem).strip("\n").split("\n")
        margin = len(lines[0]) - len(lines[0].lstrip())
        file.write_text("\n".join(line[margin:] for line in lines))
    pytest_ = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", *args]
    first = subprocess.run(pytest_, cwd=folder, capture_output=True, text=True, check=False)
    look = [sys.executable, str(TOOL), str(first.returncode)]
    second = subprocess.run(look, cwd=folder, capture_output=True, text=True, check=False)
    return first.returncode, second.returncode, second.stdout


def test_what_passes_alone_is_named_and_does_not_end_the_run(tmp_path):
    tests = {"tests/nodes/test_a.py": ONCE, "tests/nodes/test_b.py": "def test_it(): pass"}
    first, second, said = looked(tmp_path, tests)
    assert (first, second) == (1, 0)
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
    ],
    ids=["fails again", "one of them fails again", "nothing but code", "one of them is", "too many"],
)
def test_a_fault_stays_one(tmp_path, tests):
    assert looked(tmp_path, tests)[:2] == (1, 1)


def test_what_did_not_end_by_failed_tests_is_not_looked_at_again(tmp_path):
    first, second, said = looked(tmp_path, {"tests/nodes/test_a.py": ONCE}, "--no-such-option")
    assert (first, second, said) == (4, 4, "")
