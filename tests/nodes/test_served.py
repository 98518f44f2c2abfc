"""What a client is told when its mirror moves at the wrong moment."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import AsyncMock, Mock

import pytest

from evermirror.edge.git.command import Git
from evermirror.edge.git.environment import GitSettings
from evermirror.edge.git.serve import GitServer
from evermirror.faces.api.git_service import GitBusy, NotHereYet, ServedRepo
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import Host, RepoKey, RepoRecord, RepoSpec, RepoStatus
from evermirror.nodes.served import ServedMirrors


async def test_a_mirror_that_was_moved_after_it_was_found_is_asked_for_again_soon(tmp_path):
    served = ServedMirrors(Mock(), Mock(), GitServer(Git(GitSettings(tmp_path))))
    repo = ServedRepo(RepoKey("h/x"), tmp_path / "gone.git", False, None)
    with pytest.raises(GitBusy):
        async for _ in served.advertise(repo, "version=2", "127.0.0.1"):
            pass


PENDING = RepoRecord(RepoSpec(RepoKey("h/x"), "https://h/x", Host("h")))
REFUSED = Failure(FailureKind.NOT_FOUND, "the server answers 404.")


@pytest.mark.parametrize(
    ("record", "reason", "retry_s"),
    [
        (PENDING, "its first clone is not finished yet. Try again in a moment.", 5.0),
        (
            replace(PENDING, status=RepoStatus.GONE, last_failure=REFUSED, consecutive_failures=1),
            "it could not be cloned yet: the server answers 404. It is tried again by itself.",
            60.0,
        ),
        (
            replace(PENDING, last_failure=REFUSED),
            "its first clone is not finished yet. Try again in a moment.",
            5.0,
        ),
        (replace(PENDING, status=RepoStatus.INACTIVE), "it is switched off, and has no copy here.", 60.0),
    ],
)
async def test_a_repo_without_a_copy_says_why_to_those_who_may_read_it(record, reason, retry_s):
    coordinator = Mock(find_repo=AsyncMock(return_value=record))
    served = ServedMirrors(coordinator, Mock(mirror_path=lambda _: None), Mock())
    with pytest.raises(NotHereYet) as told:
        await served.open("h/x", private=False)
    assert told.value.reason == f"This repository is in the catalog, but {reason}"
    assert told.value.retry_after_s == retry_s
    with pytest.raises(NotHereYet):
        await served.open("h/x", begun=True)
    coordinator.find_repo.return_value = replace(record, spec=replace(record.spec, private=True))
    assert await served.open("h/x", private=False) is None
