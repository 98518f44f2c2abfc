"""When asking an instance about the rest is no use."""

from __future__ import annotations

import pytest

from evermirror.core.hooks.standing import ENOUGH, MOST, Standing
from evermirror.model.failure import FailureKind


@pytest.mark.parametrize(("kind", "enough"), ENOUGH.items())
def test_enough_of_one_kind_in_a_row_ends_it(kind, enough):
    standing = Standing()
    assert [standing.refused(kind) for _ in range(enough)] == [False] * (enough - 1) + [True]


def test_a_refused_login_ends_it_at_once():
    assert Standing().refused(FailureKind.AUTH_FAILED)


def test_one_that_is_allowed_begins_anew():
    standing = Standing()
    for _ in range(3 * ENOUGH[FailureKind.PERMISSION_DENIED]):
        assert not standing.refused(FailureKind.PERMISSION_DENIED)
        standing.allowed()


def test_a_mixture_ends_too():
    standing = Standing()
    kinds = [FailureKind.NOT_FOUND, FailureKind.DISK_FULL]
    told = [standing.refused(kinds[n % 2]) for n in range(MOST)]
    assert told == [False] * (MOST - 1) + [True]
