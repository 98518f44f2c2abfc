"""A private repo does not exist for an untrusted worker: whatever it claims, it is sent the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.decisions import Assign, CompareRanges, Nudge, Release, SetLimits
from evermirror.core.fleet.events import (
    CatalogRepo,
    ClonesDeferred,
    CopiesDropped,
    CopiesVerified,
    DeletionsDeclined,
    HeldCopy,
    QuarantineAsked,
    RangesCompared,
    ReposHandedBack,
)
from evermirror.model.repo import RepoKey
from tests.support.fleet import QUICK, Fleet

PUBLIC = [RepoKey(f"example.com/public/{n}") for n in range(5)]
PRIVATE = [RepoKey(f"git.corp/private/{n}") for n in range(3)]
OTHERS = [RepoKey(f"git.corp/never-guessed/{n}") for n in range(3)]
GUESSED = [RepoKey(f"git.corp/guess/{n}") for n in range(30)]
KEY = PRIVATE[0]
ALL_RANGES = tuple(range(256))


def fleet_with(private: list[RepoKey], **settings: object) -> Fleet:
    """A trusted worker that holds everything; ``private`` are the private repos that exist."""
    fleet = Fleet(replace(QUICK, compare_every_s=40.0, nudge_gap_s=5.0, **settings))
    fleet.join("trusted")
    fleet.catalog(*PUBLIC, *(CatalogRepo(key, trusted_only=True) for key in private))
    fleet.run(5)
    return fleet


def attack(fleet: Fleet) -> list[object]:
    """Claim everything in every way, over and over; all that came back."""
    trusted, spy = fleet.workers[0], fleet.join("spy", trusted=False)
    claimed = {key: 1000 + n for n, key in enumerate(sorted([*PRIVATE, *GUESSED]))}
    for turn in range(4):
        fleet.reboot(spy)
        spy.disk.update(claimed)
        fleet.connect(spy)
        held = tuple(HeldCopy(key, digest + turn) for key, digest in claimed.items())
        keys = tuple(claimed)
        fleet.report(spy, lambda id_, held=held: CopiesVerified(id_, held))
        fleet.report(spy, lambda id_, keys=keys: ClonesDeferred(id_, keys))
        fleet.report(spy, lambda id_, keys=keys: ReposHandedBack(id_, keys))
        fleet.report(spy, lambda id_, held=held: DeletionsDeclined(id_, held))
        fleet.report(spy, lambda id_, keys=keys: CopiesDropped(id_, keys))
        fleet.handle(RangesCompared(spy.id, spy.session, ALL_RANGES, held))
        fleet.run(15)
        for key in [key for key in (*PRIVATE, *OTHERS) if key in trusted.disk]:
            fleet.upstream[key] = fleet.upstream[key] + 1
            fleet.sync(trusted, key)
        fleet.run(15)
        fleet.handle(RangesCompared(spy.id, spy.session, ALL_RANGES, held))
        fleet.restart()
        fleet.connect(trusted)
        fleet.connect(spy)
        fleet.run(15)
    assert fleet.view(spy).strays == len(claimed), "people see how many, and not whether some exist"
    return fleet.sent(spy)


def keys_in(command: object) -> set[RepoKey]:
    match command:
        case Assign(items):
            return {item.key for item in items}
        case Nudge(keys) | Release(keys):
            return set(keys)
        case _:
            return set()


def test_out_of_many_names_an_untrusted_worker_cannot_tell_those_that_exist():
    sent = attack(fleet_with(PRIVATE))
    assert sent == attack(fleet_with(OTHERS))
    assert not set(PRIVATE) & {key for command in sent for key in keys_in(command)}


def test_nothing_is_known_of_a_claimed_copy():
    fleet = fleet_with(PRIVATE)
    attack(fleet)
    spy = fleet.workers[1]
    for key in PRIVATE:
        assert spy.id not in fleet.states(key)
        assert not fleet.machine.may_read(key, spy.id)
        assert not fleet.machine.speaks_for(key, spy.id)
        assert fleet.machine.may_read(key, fleet.workers[0].id)


def test_a_trusted_worker_that_claims_a_private_repo_is_believed_to_hold_it():
    fleet = fleet_with(PRIVATE)
    other = fleet.join("other")
    fleet.reboot(other)
    other.disk[KEY] = 7
    fleet.connect(other)
    assert fleet.states(KEY)[other.id] is CopyState.HELD


def test_a_private_repo_that_left_the_catalog_is_as_unknown_as_before():
    def sent(private: list[RepoKey]) -> list[object]:
        fleet = fleet_with(private)
        fleet.catalog(removed=private)
        fleet.run(5)
        return attack(fleet)

    assert sent(PRIVATE) == sent(OTHERS)


def taken_away(*, behind: int = 0) -> Fleet:
    """A public repo of an untrusted worker became private, and a trusted one comes; ``behind``: upstream has
    moved by so much when that has its copy."""
    fleet = Fleet(replace(QUICK, nudge_gap_s=5.0))
    fleet.join("untrusted", trusted=False)
    fleet.catalog(KEY)
    fleet.run(5)
    fleet.upstream[KEY] += behind
    fleet.catalog(CatalogRepo(KEY, trusted_only=True))
    fleet.run(2)
    fleet.join("trusted")
    return fleet


@pytest.mark.parametrize("behind", [0, 1])
def test_what_became_private_is_deleted_only_where_its_very_refs_are_safe(behind):
    fleet = taken_away(behind=behind)
    untrusted, trusted = fleet.workers
    fleet.run(30)
    assert fleet.holders(KEY) == ([untrusted, trusted] if behind else [trusted])
    stopped, deleted = Release((KEY,), delete=False), Release((KEY,), delete=True, digests=(7,))
    sent = [c for c in fleet.sent(untrusted) if not isinstance(c, CompareRanges)]
    assert sent[1:] == ([stopped] if behind else [stopped, deleted])


def test_refs_cannot_be_guessed_by_claiming_them():
    fleet = taken_away(behind=3)
    untrusted, _ = fleet.workers
    fleet.run(10)
    for guess in range(1, 15):
        fleet.reboot(untrusted)
        untrusted.disk[KEY] = guess
        fleet.connect(untrusted)
        fleet.run(2)
        told = (HeldCopy(KEY, guess),)
        fleet.handle(RangesCompared(untrusted.id, untrusted.session, ALL_RANGES, told))
        fleet.run(2)
    assert not any(isinstance(c, Release) and c.delete for c in fleet.sent(untrusted))


def test_it_is_not_taken_away_before_a_trusted_worker_has_it():
    fleet = taken_away()
    untrusted, trusted = fleet.workers
    fleet.tick()
    fleet.read(trusted)
    fleet.tick(30)
    assert trusted.clones
    assert not any(isinstance(c, Release) and c.delete for c in fleet.sent(untrusted))
    assert fleet.holders(KEY) == [untrusted]


def test_an_untrusted_holder_is_no_source_for_a_private_repo():
    fleet = taken_away()
    _, trusted = fleet.workers
    fleet.tick()
    (item,) = [i for c in fleet.sent(trusted) if isinstance(c, Assign) for i in c.items]
    assert (item.key, item.source, item.orphan) == (KEY, None, True)


def test_an_untrusted_holder_is_not_nudged_together_with_trusted_ones():
    fleet = Fleet()
    trusted, untrusted = fleet.join("a"), fleet.join("b", trusted=False)
    fleet.catalog(CatalogRepo(KEY, replicas=2))
    fleet.run(5)
    assert fleet.holders(KEY) == [trusted, untrusted]
    last = fleet.join("c")
    fleet.upstream[KEY] += 1
    fleet.catalog(CatalogRepo(KEY, trusted_only=True, replicas=1, pins=("c",)))
    fleet.run(10)
    assert KEY in trusted.nudged, "its refs differ from those of who is to have it"
    assert untrusted.nudged == []
    assert fleet.holders(KEY) == [untrusted, last]


def test_an_untrusted_holder_that_comes_back_is_not_told_that_the_repo_moved():
    fleet = taken_away()
    untrusted, trusted = fleet.workers
    fleet.cut(untrusted)
    fleet.tick()
    fleet.upstream[KEY] += 1
    fleet.work()
    assert fleet.holders(KEY) == [untrusted, trusted]
    fleet.cut(trusted)  # so that nothing may be deleted yet
    before = len(fleet.sent(untrusted))
    fleet.connect(untrusted)
    assert fleet.sent(untrusted)[before:] == []


def test_a_quarantined_worker_may_read_nothing():
    fleet = Fleet()
    first, second = fleet.join("a"), fleet.join("b")
    fleet.catalog(CatalogRepo(KEY, replicas=2))
    fleet.run(5)
    assert fleet.machine.may_read(KEY, second.id)
    fleet.handle(QuarantineAsked(second.id, "it lies"))
    assert not fleet.machine.may_read(KEY, second.id)
    assert fleet.machine.may_read(KEY, first.id)


# Rates


def limits_of(fleet: Fleet, worker: object) -> list[object]:
    return [c.limits for c in fleet.sent(worker) if isinstance(c, SetLimits)]


def test_a_host_of_private_repos_alone_is_named_to_trusted_workers_only():
    fleet = Fleet(replace(QUICK, host_rate=1.0, min_gap_s=10.0))
    trusted, untrusted = fleet.join("a"), fleet.join("b", trusted=False)
    fleet.join("c")
    many = [RepoKey(f"{host}/r/{n}") for host in ("git.corp", "example.com") for n in range(40)]
    fleet.catalog(*(CatalogRepo(key, trusted_only=key.startswith("git.corp")) for key in many))
    fleet.run(30)
    named = {
        worker: {host for limits in limits_of(fleet, worker) for host, _ in limits.host_rates}
        for worker in (trusted, untrusted)
    }
    assert named[trusted] == {"git.corp", "example.com"}
    assert named[untrusted] == {"example.com"}
    told = len(limits_of(fleet, untrusted))
    fleet.catalog(*(CatalogRepo(RepoKey(f"git.corp/more/{n}"), trusted_only=True) for n in range(100)))
    fleet.run(30)
    assert len(limits_of(fleet, untrusted)) == told, "nor when more come"


def test_a_worker_that_brings_the_name_of_a_private_host_learns_nothing_by_that():
    def answered(host: str) -> list[object]:
        fleet = Fleet(replace(QUICK, host_rate=1.0, min_gap_s=10.0))
        fleet.join("a")
        fleet.catalog(*(CatalogRepo(RepoKey(f"git.corp/r/{n}"), trusted_only=True) for n in range(40)))
        fleet.run(10)
        spy = fleet.join("spy", trusted=False)
        fleet.run(5)
        spy.limits = replace(limits_of(fleet, spy)[-1], host_rates=((host, 0.25),))
        before = len(fleet.sent(spy))
        fleet.reboot(spy)
        fleet.connect(spy)
        fleet.run(10)
        return [c.limits.host_rates for c in fleet.sent(spy)[before:] if isinstance(c, SetLimits)]

    assert answered("git.corp") == answered("no-such.corp")
