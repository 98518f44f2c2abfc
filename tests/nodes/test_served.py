"""What a client is told when its mirror moves at the wrong moment."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from evermirror.edge.git.command import Git
from evermirror.edge.git.environment import GitSettings
from evermirror.edge.git.serve import GitServer
from evermirror.faces.api.git_service import GitBusy, ServedRepo
from evermirror.model.repo import RepoKey
from evermirror.nodes.served import ServedMirrors


async def test_a_mirror_that_was_moved_after_it_was_found_is_asked_for_again_soon(tmp_path):
    served = ServedMirrors(Mock(), Mock(), GitServer(Git(GitSettings(tmp_path))))
    repo = ServedRepo(RepoKey("h/x"), tmp_path / "gone.git", False, None)
    with pytest.raises(GitBusy):
        async for _ in served.advertise(repo, "version=2", "127.0.0.1"):
            pass
