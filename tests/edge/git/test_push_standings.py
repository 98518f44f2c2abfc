"""How targets are, ref by ref, as a worker tells it without asking them."""

from __future__ import annotations

import json

import pytest

from evermirror.core.push.standing import with_push
from evermirror.edge.git.put_file import FOLDER, read_puts
from evermirror.model.push import RefState, TargetId, put_digest
from evermirror.model.wire import Question
from evermirror.nodes.worker.questions import RemoteView, answer
from tests.edge.git.push_world import TARGET, PushWorld

MAIN = "refs/heads/main"


@pytest.fixture
async def world(tmp_path, upstream):
    made = PushWorld(tmp_path, upstream)
    yield made
    await made.prober.close()


async def test_a_target_is_equal_then_behind_and_what_others_put_there_is_foreign(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    repo.branch("old")
    key = world.spec(repo).key
    await world.sync(repo)
    told = await world.pusher.standings(key)
    assert (told.total, told.targets, told.digest) == (2, (), put_digest(repo.public_refs()))
    await world.push(repo, target)
    (standing,) = (await world.pusher.standings(key)).targets
    assert (standing.target, standing.url, standing.equal) == (TARGET, target.url, 2)
    asked = len(world.upstream.requests)

    was = repo.tip()
    repo.commit()
    repo.branch("new")
    await world.sync(repo, accept=True)
    here = len(world.upstream.requests) - asked
    told = await world.pusher.standings(key)
    assert len(world.upstream.requests) - asked == here, "nobody is asked"
    by_name = {ref.name: ref for ref in told.targets[0].refs}
    assert (by_name[MAIN].state, by_name[MAIN].theirs, by_name[MAIN].ours) == (
        RefState.BEHIND,
        was,
        repo.tip(),
    )
    assert by_name["refs/heads/new"].state is RefState.MISSING
    assert (told.total, told.targets[0].equal) == (3, 1)

    foreign = target.commit()
    pushed = await world.push(repo, target)
    (standing,) = (await world.pusher.standings(key)).targets
    refs, equal = with_push(standing, pushed)
    assert (refs[0].name, refs[0].state, refs[0].theirs) == (MAIN, RefState.FOREIGN, foreign)
    assert equal == 2


async def test_the_question_travels_and_files_that_are_none_are_passed_over(world):
    repo, target = world.upstream.create("x", commits=1), world.target()
    await world.sync_and_push(repo, target)
    folder = world.path(repo) / FOLDER
    (folder / "7.abc.new").write_text("half written")
    (folder / "12").write_text("damaged")
    assert read_puts(world.path(repo), 100).keys() == {TARGET}
    assert read_puts(world.path(repo) / "nowhere", 100) == {}
    for n in range(20, 25):
        (folder / str(n)).write_bytes((folder / str(TARGET)).read_bytes())
    assert read_puts(world.path(repo), 2).keys() == {TargetId(23), TargetId(24)}, "the newest, bounded"

    async def ask(what, key):
        said = await answer(world.pusher, Question(1, what, key))
        assert json.loads(said.body)
        return said

    key = world.spec(repo).key
    assert await RemoteView(ask).standings(key) == await world.pusher.standings(key)
