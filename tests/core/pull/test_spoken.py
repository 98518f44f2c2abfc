"""What a person says while a sync is on its way is about the next one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evermirror.core.pull.layers import enabled, forgiven
from evermirror.model.failure import FailureKind as K
from evermirror.model.push import PushTo
from tests.core.pull.small import HOUR, NOW, World, project, pushed, target

REFUSALS = [K.AUTH_FAILED, K.NOT_FOUND, K.PERMISSION_DENIED]


def running(**fields):
    """A project with one target whose task runs, and what that was told."""
    world = World(project(targets=(target(**fields),), interval_s=HOUR))
    return world, world.starts[-1].push


def say(world, **fields):
    state = world.state()
    world.put(
        replace(state, targets=(replace(forgiven(state.targets[0]), **fields),), next_sync_at=world.now)
    )


def ends(world, told, kind=None):
    """The push that was told so; returns the target after it."""
    world.end(kind=kind, pushes=(pushed(kind=kind),), told=told)
    return world.state().targets[0]


@pytest.mark.parametrize("kind", [None, K.CONFLICT, *REFUSALS])
def test_the_word_to_overwrite_a_target_outlives_a_push_that_was_not_told_of_it(kind):
    world, told = running()
    say(world, adopt=True)
    after = ends(world, told, kind)
    assert (after.adopt, after.paused, after.failures) == (True, "", 0)
    assert world.told() == []
    assert world.started == ["one", "one"]  # at once
    assert [to.adopt for to in world.starts[-1].push] == [True]
    after = ends(world, world.starts[-1].push, kind)
    assert not after.adopt
    assert bool(after.paused) == (kind in REFUSALS)


def test_a_push_that_was_told_of_it_when_it_was_given_out_uses_it_up():
    world, told = running()
    say(world, adopt=True)
    assert not ends(world, tuple(replace(to, adopt=True) for to in told)).adopt


def test_where_nobody_knows_what_it_was_told_the_word_is_used_up():
    world, _ = running()
    say(world, adopt=True)
    assert not ends(world, ()).adopt


@pytest.mark.parametrize("kind", REFUSALS)
def test_an_old_run_does_not_pause_a_target_with_another_credential_but_the_next_one_does(kind):
    world, told = running(credential="old")
    say(world, credential="new")
    after = ends(world, told, kind)
    assert (after.paused, after.failures, after.last_failure.kind) == ("", 0, kind)
    assert (world.state().config.enabled, world.state().failures) == (True, 0)
    assert [to.credential for to in world.starts[-1].push] == ["new"]
    assert ends(world, world.starts[-1].push, kind).paused


@pytest.mark.parametrize("kind", [K.AUTH_FAILED, K.NOT_FOUND])
@pytest.mark.parametrize("of_target", [True, False])
def test_an_old_run_does_not_pause_what_was_reset_since(kind, of_target):
    world = World(project(targets=(target(failures=2),), failures=2))
    world.put(enabled(world.state(), world.now))
    for paused in (False, True):
        world.end(kind=kind, pushes=(pushed(kind=kind),) if of_target else ())
        assert bool(world.state().paused) is paused
        assert world.state().config.enabled is not paused


def test_a_change_of_something_else_lets_a_failure_count():
    world, told = running(failures=1)
    world.put(replace(world.state(), next_sync_at=NOW + HOUR))
    assert ends(world, told, K.AUTH_FAILED).paused


def test_what_is_told_is_what_a_start_says():
    _, told = running(credential="corp")
    assert told == (PushTo(1, target().url, "corp", None, False),)
