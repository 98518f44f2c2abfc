"""Untrusted workers that try to make new repositories disappear: over the protocol, at a running node."""

from __future__ import annotations

import contextlib

from evermirror.core.fleet.decisions import AlertKind
from evermirror.errors import NotFound
from evermirror.model.messages import AssignRepos
from evermirror.model.wire import Ordered
from tests.support.crew import hand

QUICK = {"heartbeat": "100ms", "max_missed": 50, "grace": "300ms", "clone_patience": "1s"}
REPOS = 12
DIGEST = "d" * 64


@contextlib.asynccontextmanager
async def attacked(stage, upstream, *, own=None, fleet=None, **attacker):
    """A node with a worker of its own, an untrusted one beside it, and then new repositories."""
    async with stage.up(fleet=QUICK | (fleet or {}), worker={"name": "own", **(own or {})}) as up:
        up.admin = up.node.lead.admin

        async def there():
            with contextlib.suppress(NotFound):
                return up.admin.worker("own").load is not None
            return False

        await up.until(there)
        async with hand(up.node, "stranger", 7, trusted=False, **attacker) as stranger:
            for n in range(REPOS):
                upstream.create(f"team/x{n}")
                await up.add(upstream.url(f"team/x{n}.git"))
            yield up, stranger


def asked_of(stranger) -> set[str]:
    """Repositories that the coordinator told it to hold."""
    orders = [f.command for f in stranger.heard if isinstance(f, Ordered)]
    return {spec.key for order in orders if isinstance(order, AssignRepos) for spec in order.repos}


async def is_verified(up, key: str) -> bool:
    """As the API says who holds it: that needs no answer of the worker."""
    answer = await up.client.get(f"/api/repos/{key}/-/holders")
    assert answer.status_code == 200, answer.text
    return not any("not verified" in line for line in answer.json()["why"])


def on_own_disk(stage, up) -> int:
    return sum(stage.mirror(up.key(f"team/x{n}")).exists() for n in range(REPOS))


async def test_a_silent_worker_of_great_weight_keeps_no_new_repository(stage, upstream):
    patient = {"grace": "10m"}  # no proofs meanwhile: what it keeps must be taken from it
    async with attacked(stage, upstream, weight=1000.0, fleet=patient) as (up, _):
        assert up.admin.worker("stranger").seen.record.facts.weight == 1.0, "its token says so"

        async def all_held():
            return up.admin.view().totals.held == REPOS

        await up.until(all_held)
        assert on_own_disk(stage, up) == REPOS


async def test_what_an_untrusted_worker_only_claims_to_hold_is_not_shown_as_held(stage, upstream):
    async with attacked(stage, upstream) as (up, stranger):

        async def asked():
            return bool(asked_of(stranger))

        await up.until(asked)
        claims = dict.fromkeys(asked_of(stranger), DIGEST)
        await stranger.connection.close()
        async with hand(up.node, "stranger", 7, trusted=False, boot=2, held=claims):

            async def all_verified():
                return up.admin.view().totals.held == REPOS

            await up.until(all_verified)
            assert on_own_disk(stage, up) == REPOS, "every repository that is shown as held is on a disk"
            assert await is_verified(up, next(iter(claims)))


async def test_where_no_trusted_worker_has_room_they_are_shown_as_unverified(stage, upstream):
    async with attacked(stage, upstream, own={"capacity": 0}) as (up, stranger):

        async def asked():
            return len(asked_of(stranger)) >= 8  # as many as are asked of a newcomer at first

        await up.until(asked)
        claims = dict.fromkeys(asked_of(stranger), DIGEST)
        await stranger.connection.close()
        async with hand(up.node, "stranger", 7, trusted=False, boot=2, held=claims):

            async def shown():
                totals = up.admin.view().totals
                return (totals.held, totals.unverified) == (0, len(claims))

            await up.until(shown)
            assert on_own_disk(stage, up) == 0
            assert [a.about for a in up.admin.view().alerts if a.kind is AlertKind.UNVERIFIED] == ["fleet"]
            assert not await is_verified(up, next(iter(claims)))
