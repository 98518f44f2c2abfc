"""The coordinator's seal: made once, kept, and nobody else's to read."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from evermirror.edge.relay.seal import Unsealer
from evermirror.edge.relay.seal_key import NAME, own_sealer
from evermirror.errors import EnvironmentUnfit
from evermirror.model.access import Role
from evermirror.model.relay import Pass


def test_what_was_sealed_before_a_restart_can_be_read_after_it(tmp_path):
    folder = tmp_path / "pki"
    sealed = own_sealer(folder).seal(Pass("worker/1", Role.WORKER, 10.0))
    assert Unsealer(own_sealer(folder).public_key).read_pass(sealed, 1.0).node == "worker/1"


def test_nobody_else_may_read_it(tmp_path):
    own_sealer(tmp_path)
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == [NAME]


def test_of_many_that_begin_at_once_all_have_the_same(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        keys = {sealer.public_key for sealer in pool.map(own_sealer, [tmp_path] * 8)}
    assert len(keys) == 1


@pytest.mark.parametrize("content", [b"", b"short", bytes(33)])
def test_a_file_that_is_no_key_is_told(tmp_path, content):
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(EnvironmentUnfit, match="a key has 32"):
        own_sealer(tmp_path)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentUnfit, match="cannot be read or made"):
        own_sealer(tmp_path / "file" / "pki")
