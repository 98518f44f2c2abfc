"""The relay and its parts for the tests of this folder."""

from __future__ import annotations

import pytest

from evermirror.edge.relay.limits import RelayLimits
from tests.edge.relay.relay_world import KEY, QUICK, Fleet, GitService, git_server
from tests.support.gitrepo import UpstreamRepo


@pytest.fixture
async def fleet(tmp_path):
    """A relay that listens."""
    made = Fleet(tmp_path)
    async with made.relaying():
        yield made


@pytest.fixture
async def quick(tmp_path):
    """The same with short waits, for peers that misbehave."""
    made = Fleet(tmp_path, RelayLimits(line=QUICK, line_wait_s=0.5, back_s=1.0, queue_wait_s=0.3))
    async with made.relaying():
        yield made


@pytest.fixture
def repo(tmp_path):
    """A repository on the worker's disk."""
    made = UpstreamRepo.init(tmp_path / "held" / "x.git", "x", "")
    made.bulk_commits(20)
    made.tag("v1", annotated=True)
    return made


@pytest.fixture
def git_service(tmp_path, repo):
    return GitService(git_server(tmp_path), {KEY: repo.path})
