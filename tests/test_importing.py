"""What a start imports, and how."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from evermirror.importing import kept_for_good


def imported_by(module: str) -> set[str]:
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "evermirror.nodes.worker.worker_node",
        "evermirror.nodes.aggregator.aggregator_node",
        "evermirror.nodes.membership_card",
        "evermirror.nodes.coordinator.own_ca",
    ],
)
def test_who_has_no_database_imports_none(module):
    imported = imported_by(module)
    assert module in imported
    assert not imported & {"sqlalchemy", "evermirror.edge.store.store", "evermirror.nodes.coordinator.fleet"}


def test_what_is_imported_is_not_looked_at_for_garbage():
    code = (
        "import gc\n"
        "from evermirror.importing import kept_for_good\n"
        "with kept_for_good():\n"
        "    assert not gc.isenabled()\n"
        "    import wave\n"
        "assert gc.isenabled() and gc.get_freeze_count() > 0\n"
        "frozen = gc.get_freeze_count()\n"
        "with kept_for_good():\n"
        "    import wave\n"
        "assert gc.isenabled() and gc.get_freeze_count() <= frozen, 'it was there already'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_who_has_switched_the_collector_off_finds_it_off():
    gc.disable()
    try:
        with kept_for_good():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_an_import_that_fails_leaves_the_collector_on():
    with pytest.raises(ImportError), kept_for_good():
        raise ImportError
    assert gc.isenabled()


def test_a_coordinator_imports_no_more_than_it_needs():
    code = (
        "import sys, evermirror.faces.cli.coordinator, evermirror.nodes.coordinator.coordinator_node\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert {"sqlalchemy", "uvicorn", "evermirror.nodes.coordinator.lead"} <= imported
    for_others = {
        "alembic",
        "evermirror.faces.cli.app",
        "evermirror.edge.git.mirror",
        "evermirror.edge.git.serve",
        "evermirror.nodes.wiring",
        "evermirror.nodes.worker.worker",
        "evermirror.nodes.aggregator.aggregator_relay",
    }
    assert imported & for_others == set()
