"""What a start imports, and how."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys

import pytest

from evermirror.errors import ConfigError
from evermirror.importing import kept_for_good, later, need, without


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
        "import sys\n"
        "from evermirror.importing import import_lean\n"
        "import_lean()\n"
        "import evermirror.faces.cli.coordinator, evermirror.nodes.coordinator.coordinator_node\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert {"sqlalchemy.ext.asyncio", "uvicorn", "evermirror.nodes.coordinator.lead"} <= imported
    for_others = {
        "sqlalchemy.orm",
        "alembic",
        "uvicorn.main",
        "click",
        "httpx2",
        "aiosmtplib",
        "evermirror.faces.cli.app",
        "evermirror.edge.git.mirror",
        "evermirror.edge.git.serve",
        "evermirror.nodes.wiring",
        "evermirror.nodes.worker.worker",
        "evermirror.nodes.aggregator.aggregator_relay",
    }
    assert imported & for_others == set()


def test_a_module_that_was_left_out_can_be_had_later():
    code = (
        "import sys\n"
        "from evermirror.importing import without\n"
        "with without('email.message', 'json'):\n"
        "    import email.parser\n"
        "    assert sys.modules['json'].loads is None\n"
        "assert 'email.message' not in sys.modules\n"
        "import json, email.message\n"
        "assert json.loads('[1]') == [1] and email.message.Message is not None\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_module_that_is_there_is_not_left_out():
    import json

    with without("json"):
        assert sys.modules["json"] is json
    assert sys.modules["json"] is json


def test_what_is_used_later_is_imported_then():
    code = (
        "import sys\n"
        "from evermirror.importing import later\n"
        "wave = later('wave')\n"
        "assert 'wave' not in sys.modules\n"
        "assert issubclass(wave.Error, Exception)\n"
        "assert 'wave' in sys.modules and wave.Error is sys.modules['wave'].Error\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_package_that_cannot_be_without_a_module_is_imported_whole(tmp_path):
    parts = {
        "__init__.py": "from needy import early, late",
        "early.py": "from needy.part import Base",
        "late.py": "from needy.part import Base\nclass Kept(Base): pass",
        "part.py": "class Base: pass",
    }
    (tmp_path / "needy").mkdir()
    for name, text in parts.items():
        (tmp_path / "needy" / name).write_text(text)
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from evermirror.importing import import_without\n"
        "import_without('needy', 'needy.part')\n"
        "import needy.part\n"
        "assert needy.early.Base is needy.late.Base is needy.part.Base\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def pickled(it):
    return pickle.loads(pickle.dumps(it))  # noqa: S301 - our own


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
def test_what_is_used_later_can_be_copied_without_being_imported(copied):
    twin = copied(later("evermirror_has_no_such_module"))
    with pytest.raises(ModuleNotFoundError):
        _ = twin.something


def test_a_library_that_is_needed_and_broken_is_told_with_its_name():
    with pytest.raises(ConfigError, match=r"no_such_library.*install evermirror anew"):
        need("no_such_library")
    need("json")
