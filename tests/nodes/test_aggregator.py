"""An aggregator in a fleet: what workers mirror comes through the relay, is verified, and is served."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
import structlog

from evermirror.core.collect.events import End
from evermirror.core.collect.rows import How
from evermirror.core.maintain import queue
from evermirror.edge.git import short_fetch
from evermirror.model.access import Role
from evermirror.model.refs import RefSnapshot
from evermirror.model.relay import Denial
from evermirror.model.repo import RepoKey
from evermirror.nodes.aggregator import collected_care, collecting, patient_store
from evermirror.nodes.aggregator.aggregator_node import aggregating
from tests.support import damage
from tests.support.aggregation import Aggregation, Dial, run_client
from tests.support.gitrepo import UpstreamRepo, read_refs, run_git
from tests.support.upstream import UpstreamServer


@pytest.fixture
def fleet(tmp_path: Path, upstream: UpstreamServer) -> Aggregation:
    return Aggregation(tmp_path, upstream)


async def refs_url(node, key):
    return f"{node.url}/git/{key}/info/refs?service=git-upload-pack"


async def asked(node, key, token=None):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(timeout=30) as client:
        return await client.get(await refs_url(node, key), headers=headers)


async def row_of(node, key):
    return await node.side.store.row_of(RepoKey(key))


async def until_noted(fleet, node, key, repo):
    """The aggregator has all that upstream has, and has noted so. No client asks meanwhile: to answer one,
    while refs are written, git may have to list them."""
    wanted = RefSnapshot(repo.public_refs(), repo.head()).digest()

    async def holds():
        return (await row_of(node, key)).here.digest == wanted

    await fleet.until(holds)


# Following


async def test_a_push_comes_by_the_short_way_and_what_is_odd_by_gits_own(fleet, monkeypatch):
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator() as node:
        repo, key = await fleet.add("one")
        await fleet.until_here(node, key)
        git = node.side.mirrors._git
        run, ran = git.run, []

        async def noted(args, **more):
            ran.append(args[0])
            return await run(args, **more)

        monkeypatch.setattr(git, "run", noted)
        await asyncio.to_thread(repo.commit)
        await until_noted(fleet, node, key, repo)
        assert ran == ["index-pack", "rev-list"]
        monkeypatch.setattr(short_fetch, "PACK_BYTES_MAX", 10)
        await asyncio.to_thread(repo.commit)
        await until_noted(fleet, node, key, repo)
        assert "fetch" in ran
        assert fleet.clones(key) == 1


async def test_what_a_worker_mirrors_can_be_cloned_and_follows_pushes(fleet, tmp_path):
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator() as node:
        repo, key = await fleet.add("one")
        await fleet.until_here(node, key)
        clone = tmp_path / "clone"
        code, said = await run_client("clone", f"{node.url}/git/{key}", str(clone))
        assert code == 0, said
        for _ in range(3):
            tip = await asyncio.to_thread(repo.commit)
            await fleet.until_tip(node, key, tip)
        code, said = await run_client("pull", "--ff-only", cwd=clone)
        assert code == 0, said
        assert run_git(clone, "rev-parse", "HEAD") == repo.tip()
        assert fleet.clones(key) == 1, "objects come from the worker, not from upstream"
        row = await row_of(node, key)
        assert row.here.how is How.HOLDER
        assert row.here.source.startswith("worker/0-")
        answer = await asked(node, key)
        assert answer.headers["X-Evermirror-Verified-At"]


async def test_of_an_untrusted_worker_only_objects_are_taken_and_refs_from_upstream(fleet):
    async with fleet.coordinator(), fleet.worker("w1", trusted=False), fleet.aggregator() as node:
        repo, key = await fleet.add("one")
        await fleet.until_here(node, key)
        assert (await row_of(node, key)).here.how is How.UPSTREAM
        tip = await asyncio.to_thread(repo.commit)
        await fleet.until_tip(node, key, tip)
        assert fleet.clones(key) == 1


async def test_nothing_is_fetched_without_a_pass_and_no_holder_is_blamed_for_ours(fleet):
    async with fleet.coordinator(), fleet.worker("w1", trusted=False), fleet.aggregator() as node:
        repo, key = await fleet.add("one")
        await fleet.until_here(node, key)
        uplink, collects = node.side.uplink, node.side.collecting
        good, before = uplink.access, (await row_of(node, key)).wanted
        uplink.access = replace(good, until=0.0)

        async def nobody_is_asked():
            return not collects._usable

        async def wanted_anew():
            return (await row_of(node, key)).wanted != before

        await fleet.until(nobody_is_asked)
        attempts = dict(collects.figures().attempts)
        tip = await asyncio.to_thread(repo.commit)
        await fleet.until(wanted_anew)
        assert collects.figures().attempts == attempts
        assert collects.unreached() == (), "the workers have their lines"
        uplink.access = good
        await fleet.until_tip(node, key, tip)

        node.side.reaching.reach.deny([Denial(good.node, time.time() + 3600)])
        attempts = sum(collects.figures().attempts.values())
        await asyncio.to_thread(repo.commit)
        await fleet.until(lambda: _attempted(node, attempts + 1))
        ends = collects.figures().attempts
        assert (ends[End.FAILED], ends.get(End.HOLDER_REFUSED)) == (1, None)


async def test_another_history_that_an_untrusted_worker_gives_is_never_served(fleet, tmp_path):
    async with (
        fleet.coordinator(),
        fleet.odd_worker("w1") as lines,
        fleet.aggregator(aggregator={"wait": "500ms"}) as node,
    ):
        repo = await asyncio.to_thread(fleet.upstream.create, "one", 3)
        key = f"{fleet.upstream.host}/one"
        false = UpstreamRepo.init(tmp_path / "false.git", "false", "")
        false.bulk_commits(5)
        lines.instead[key] = false.path
        await fleet.register(repo.url)
        await fleet.until(lambda: _attempted(node, 1))
        assert not await fleet.here(node, key)
        answer = await asked(node, key)
        assert answer.status_code == 503
        del lines.instead[key]
        await asyncio.to_thread(repo.commit)
        await fleet.until_tip(node, key, repo.tip())


async def _attempted(node, count):
    return sum(node.side.collecting.figures().attempts.values()) >= count


async def test_a_rewritten_branch_is_followed_and_its_old_tip_is_kept(fleet):
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator() as node:
        repo, key = await fleet.add("one")
        await fleet.until_here(node, key)
        old = repo.tip()
        new = await asyncio.to_thread(repo.force_push)
        await fleet.until_tip(node, key, new)
        kept = await node.side.mirrors.history(RepoKey(key))
        assert [tip.old for tip in kept] == [old]


async def test_what_a_trusted_worker_kept_before_comes_too(fleet):
    async with fleet.coordinator(), fleet.worker("w1") as worker:
        repo, key = await fleet.add("one")

        async def tip_there():
            path = worker.mirror_path(RepoKey(key))
            return path is not None and read_refs(path).get("refs/heads/main") == repo.tip()

        await fleet.until(tip_there)
        old = repo.tip()
        await asyncio.to_thread(repo.force_push)
        await fleet.until(tip_there)
        async with fleet.aggregator() as node:
            await fleet.until_here(node, key)
            kept = await node.side.mirrors.history(RepoKey(key))
            assert [tip.old for tip in kept] == [old]
            run_git(node.side.mirrors.path(RepoKey(key)), "fsck", "--full", "--strict")
            _, seen = await run_client("ls-remote", f"{node.url}/git/{key}")
            assert old not in seen


async def test_a_mirror_that_is_exact_from_now_on_loses_what_upstream_has_no_more(fleet):
    """Else its worker would report upstream's refs and serve others."""
    async with fleet.coordinator(), fleet.worker("w1") as worker, fleet.aggregator() as node:
        repo = await asyncio.to_thread(fleet.upstream.create, "one", 3)
        key = f"{fleet.upstream.host}/one"
        repo.branch("old")
        await fleet.register(repo.url, mode="append-only")
        await fleet.until_here(node, key)
        repo.delete_branch("old")
        await fleet.until_tip(node, key, await asyncio.to_thread(repo.commit))
        paths = worker.mirror_path(RepoKey(key)), node.side.mirrors.path(RepoKey(key))
        assert all("refs/heads/old" in read_refs(path) for path in paths)
        await fleet.register(repo.url, mode="exact")
        for path in paths:
            await fleet.until(lambda path=path: _is(lambda: "refs/heads/old" not in read_refs(path)))
        figures = node.side.collecting.figures
        await fleet.until(lambda: _is(lambda: sum(figures().attempts.values()) >= 3))  # it ends after that
        assert figures().attempts == {End.DONE: 3}


# Away and back


async def test_it_serves_and_resumes_while_and_after_the_coordinator_is_away(fleet):
    async with fleet.worker("w1"), fleet.aggregator() as node:
        async with fleet.coordinator():
            repo, key = await fleet.add("one")
            await fleet.until_here(node, key)
            first = node.side.collecting.figures().changes
        await fleet.until(lambda: _is(lambda: not node.side.uplink.connected))
        tip = await asyncio.to_thread(repo.commit)
        assert (await asked(node, key)).status_code == 200
        async with httpx2.AsyncClient() as client:
            ready = await client.get(f"{node.url}/readyz")
            assert ready.status_code == 200
            assert "away" in ready.json()["reason"]
        async with fleet.coordinator():
            await fleet.until_tip(node, key, tip)
            assert node.side.collecting.figures().changes - first < 5, "only what changed is told again"


async def test_after_a_restart_it_serves_at_once_and_goes_on_from_where_it_was(fleet):
    async with fleet.coordinator(), fleet.worker("w1"):
        async with fleet.aggregator() as node:
            repo, key = await fleet.add("one")
            await fleet.until_here(node, key)
            since = await node.side.store.since()
            await fleet.until(lambda: _serves(fleet, 1))
        tip = await asyncio.to_thread(repo.commit)
        async with fleet.aggregator() as node:
            assert await node.side.store.since() >= since > 0
            assert (await asked(node, key)).status_code == 200
            await fleet.until_tip(node, key, tip)
            await fleet.until(lambda: _serves(fleet, 1))
    async with fleet.aggregator() as node:
        assert await fleet.tip(node, key) == tip, "also with nobody else there"


async def test_it_fetches_as_soon_as_a_line_is_there(fleet, monkeypatch):
    monkeypatch.setattr(collecting, "TICK_S", 0.05)
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator() as node:
        repo, key = await fleet.add("one")
        await fleet.until_here(node, key)
        relay, holder = node.side.reaching.reach, (await row_of(node, key)).here.source
        relay.deny([Denial(holder, time.time() + 1.0)])
        await fleet.until(lambda: _is(lambda: holder not in node.side.collecting._reachable))
        monkeypatch.setattr(collecting, "TICK_S", 3600.0)  # the last look is over before it is let in again
        tip = await asyncio.to_thread(repo.commit)
        await fleet.until_tip(node, key, tip)


async def _serves(fleet, count):
    return [one.serves for one in fleet.lead.lead.feeds.view()] == [count]


async def _is(holds):
    return holds()


async def test_a_mirror_that_vanished_is_fetched_again_and_an_unknown_one_leaves(fleet):
    async with fleet.coordinator(), fleet.worker("w1"):
        async with fleet.aggregator() as node:
            _, key = await fleet.add("one")
            await fleet.until_here(node, key)
            path = node.side.mirrors.path(RepoKey(key))
            stranger = node.side.mirrors.path(RepoKey("h.org/stranger"))
        shutil.copytree(path, stranger)
        (stranger / "description").write_text("mirror of h.org/stranger\n")
        shutil.rmtree(path)
        async with fleet.aggregator() as node:
            await fleet.until_here(node, key)
            assert path.is_dir()
            assert not stranger.exists()
            assert [t.key for t in await node.side.mirrors.trashed()] == ["h.org/stranger"]


async def test_a_mirror_that_vanishes_meanwhile_is_fetched_again_for_the_client_who_asks(fleet):
    waiting = {"wait": "20s"}
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator(aggregator=waiting) as node:
        repo, key = await fleet.add("one")
        await fleet.until_here(node, key)
        await asyncio.to_thread(shutil.rmtree, node.side.mirrors.path(RepoKey(key)))
        assert (await asked(node, key)).status_code == 200
        assert await fleet.tip(node, key) == repo.tip()
        assert node.side.collecting.figures().attempts == {End.DONE: 2}


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_the_folder_of_all_mirrors_removed_meanwhile_is_made_and_they_are_fetched_again(
    fleet, monkeypatch, is_made_again
):
    """By nobody's asking. Whoever takes a lock may have made the folder again before anybody looks."""
    monkeypatch.setattr(collecting, "DISK_S", 0.1)
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator() as node:
        repos = dict([await fleet.add("one"), await fleet.add("two")])
        await fleet.until_here(node, *repos.values())
        root = node.config.data.dir / "collected"
        with structlog.testing.capture_logs() as logs:
            await asyncio.to_thread(shutil.rmtree, root)
            if is_made_again:
                root.mkdir()
            paths = {repo: node.side.mirrors.path(RepoKey(key)) for repo, key in repos.items()}
            await fleet.until(lambda: _is(lambda: all(path.is_dir() for path in paths.values())))
        assert set(node.side.collecting.figures().attempts) == {End.DONE}
        told = [line["log_level"] for line in logs if "folder of mirrors was removed" in line["event"]]
        assert told == ["error"]
        for repo, key in repos.items():
            await fleet.until_tip(node, key, repo.tip())
            assert read_refs(paths[repo]) == read_refs(repo.path)


async def test_trouble_with_our_own_disk_is_no_holders_fault(fleet):
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator() as node:
        locks = node.config.data.dir / "collected" / ".locks"
        locks.write_text("a file where a folder should be")
        await fleet.add("one")
        attempts = node.side.collecting.figures
        await fleet.until(lambda: _is(lambda: sum(attempts().attempts.values()) > 0))
        assert set(attempts().attempts) == {End.FAILED}


async def test_a_mirror_that_upkeep_finds_damaged_is_replaced_and_served_again(fleet, monkeypatch):
    monkeypatch.setattr(collected_care, "SETTLE_S", 0.0)
    often = {"maintenance": {"fsck_every": "1s"}}
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator(**often) as node:
        repo, key = await fleet.add("one")
        await fleet.until_here(node, key)
        path = node.side.mirrors.path(RepoKey(key))
        for pack in path.glob("objects/pack/*.pack"):
            pack.chmod(0o600)
            pack.write_bytes(pack.read_bytes()[:-30] + bytes(30))
        await fleet.until(lambda: _is(lambda: node.side.collecting.figures().attempts[End.DONE] >= 2))
        await fleet.until_tip(node, key, repo.tip())
        run_git(path, "fsck", "--full", "--strict")


@pytest.mark.parametrize("harm", [damage.truncate_pack, damage.null_ref, damage.remove_head])
async def test_a_mirror_that_a_client_finds_damaged_is_replaced_and_served_again(fleet, tmp_path, harm):
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator() as node:
        repo, key = await fleet.add("one")
        await fleet.until_here(node, key)
        path = node.side.mirrors.path(RepoKey(key))
        await asyncio.to_thread(harm, path)
        code, said = await run_client("clone", "--mirror", f"{node.url}/git/{key}", str(tmp_path / "c"))
        assert (code, "0" * 40 in said) == (128, False)
        await fleet.until(lambda: _is(lambda: node.side.collecting.figures().attempts[End.DONE] >= 2))
        await fleet.until_tip(node, key, repo.tip())
        run_git(path, "fsck", "--full", "--strict")


async def test_a_file_that_cannot_be_read_for_a_while_does_not_end_it(fleet, monkeypatch):
    monkeypatch.setattr(patient_store, "AGAIN_S", 0.05)
    monkeypatch.setattr(collecting, "COUNT_S", 0.05)
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator() as node:
        repo, key = await fleet.add("one")
        await fleet.until_here(node, key)
        file = node.side.store._file
        await file.run(lambda connection: connection.execute("ALTER TABLE repos RENAME TO away"))
        tip = await asyncio.to_thread(repo.commit)
        await asyncio.sleep(1.5)
        await file.run(lambda connection: connection.execute("ALTER TABLE away RENAME TO repos"))
        await fleet.until_tip(node, key, tip)
        assert not node.supervisor.failures


# The catalog


async def test_what_leaves_the_catalog_is_in_the_trash_and_comes_back_with_all_that_it_kept(fleet):
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator() as node:
        repo, key = await fleet.add("one")
        await fleet.until_here(node, key)
        old = repo.tip()
        await fleet.until_tip(node, key, await asyncio.to_thread(repo.force_push))
        await fleet.remove(key)
        await fleet.until(lambda: _status(node, key, 404))
        await fleet.until(lambda: _is(lambda: not node.side.mirrors.path(RepoKey(key)).exists()))
        assert [t.key for t in await node.side.mirrors.trashed()] == [key]
        await fleet.register(repo.url)
        await fleet.until_tip(node, key, repo.tip())
        assert old in [tip.old for tip in await node.side.mirrors.history(RepoKey(key))]


async def _status(node, key, status):
    return (await asked(node, key)).status_code == status


async def test_an_alias_is_served_and_what_is_unknown_is_not(fleet):
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator() as node:
        _, key = await fleet.add("one", alias="short")
        await fleet.until_here(node, key)
        assert (await asked(node, "short")).status_code == 200
        assert (await asked(node, f"{key}.git")).status_code == 200
        assert (await asked(node, "h.org/nobody")).status_code == 404


async def test_private_repos_are_there_only_for_those_whom_the_coordinator_knows(fleet):
    async with fleet.coordinator() as lead, fleet.worker("w1"), fleet.aggregator() as node:
        _, key = await fleet.add("one", private=True)
        await fleet.until_here(node, key)
        token, _ = await lead.lead.store.create_token("r", Role.READER)
        assert (await asked(node, key)).status_code == 404
        assert (await asked(node, key, token)).status_code == 200
        assert (await asked(node, key, "evm_nonsense")).status_code == 401
        auth = f"http.extraHeader=Authorization: Bearer {token}"
        code, said = await run_client("-c", auth, "ls-remote", f"{node.url}/git/{key}")
        assert code == 0, said


async def test_the_public_does_not_cause_fetches_of_private_repos(fleet):
    async with (
        fleet.coordinator(),
        fleet.worker("w1"),
        fleet.aggregator(aggregator={"mode": "pull-through", "wait": "500ms"}) as node,
    ):
        _, key = await fleet.add("one", private=True)
        await fleet.until(lambda: _known(node, key))
        assert (await asked(node, key)).status_code == 404
        assert node.side.collecting.figures().attempts == {}


async def _known(node, key):
    row = await row_of(node, key)
    return row is not None and row.wanted is not None


# Pull-through


PULLING = {"mode": "pull-through", "wait": "20s"}


async def test_pulled_through_when_asked_for_once_for_all_who_wait_and_followed_from_then_on(fleet):
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator(aggregator=PULLING) as node:
        repo, key = await fleet.add("one")
        _, other = await fleet.add("two")
        await fleet.until(lambda: _known(node, key))
        await fleet.until(lambda: _known(node, other))
        assert node.side.collecting.figures().attempts == {}
        answers = await asyncio.gather(*(asked(node, key) for _ in range(10)))
        assert {a.status_code for a in answers} == {200}
        assert sum(node.side.collecting.figures().attempts.values()) == 1
        await fleet.until_tip(node, key, await asyncio.to_thread(repo.commit))
        assert not await fleet.here(node, other)


async def test_a_client_that_waits_in_vain_is_told_so_and_when_to_come_again(fleet):
    waiting = {"mode": "pull-through", "wait": "300ms"}
    async with (
        fleet.coordinator(),
        fleet.odd_worker("w1", trusted=True) as lines,
        fleet.aggregator(aggregator=waiting) as node,
    ):
        _, key = await fleet.add("one")
        await fleet.until(lambda: _known(node, key))
        lines.silent = True
        answer = await asked(node, key)
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) >= 1
        assert answer.text.startswith("This repository is in the catalog, but not here yet")
        code, said = await run_client("clone", f"{node.url}/git/{key}", "x", cwd=fleet.folder)
        assert code != 0
        assert "not here yet" in said
        lines.silent = False
        await fleet.until(lambda: _status(node, key, 200))


async def test_above_the_mark_nothing_new_is_fetched_and_clients_are_told_why(fleet):
    full = {"wait": "1s"}
    low = {"disk_high": 1e-9}
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator(aggregator=full, fleet=low) as node:
        _, key = await fleet.add("one")
        await fleet.until(lambda: _known(node, key))
        await fleet.until(lambda: _is(lambda: bool(node.side.collecting.alerts.texts())))
        answer = await asked(node, key)
        assert answer.status_code == 503
        why = r"no room for it here now \(the disk is \d+ % full, above fleet.disk_high = 1e-09\)"
        assert re.search(why, answer.text)
        assert node.side.collecting.figures().attempts == {}


async def test_above_the_mark_what_was_pulled_through_leaves_for_good(fleet):
    async with fleet.coordinator(), fleet.worker("w1"):
        async with fleet.aggregator(aggregator=PULLING) as node:
            _, key = await fleet.add("one")
            await fleet.until(lambda: _known(node, key))
            assert (await asked(node, key)).status_code == 200
            path = node.side.mirrors.path(RepoKey(key))
            assert path.is_dir()
        async with fleet.aggregator(aggregator=PULLING, fleet={"disk_high": 1e-9}) as node:
            await fleet.until(lambda: _is(lambda: not path.exists()))
            row = await row_of(node, key)
            assert row is not None
            assert row.here is None
            assert await node.side.mirrors.trashed() == [], "the trash would take the same room"
            # Whoever asks gets it again: the mark is where it tidies up, not where people are refused.
            assert (await asked(node, key)).status_code == 200


# What people see


async def test_metrics_and_probes_are_its_own_and_the_rest_is_not_here(fleet):
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator() as node:
        _, key = await fleet.add("one")
        await fleet.until_here(node, key)
        async with httpx2.AsyncClient(base_url=node.url) as client:
            assert (await client.get("/healthz")).status_code == 200

            async def counted():
                text = (await client.get("/metrics")).text
                return "evermirror_aggregator_repos_here 1.0" in text

            await fleet.until(counted)
            text = (await client.get("/metrics")).text
            assert 'evermirror_aggregator_attempts_total{end="done"} 1.0' in text
            assert "evermirror_aggregator_relay_holders 1.0" in text
            assert "evermirror_aggregator_coordinator_connected 1.0" in text
            push = await client.get(f"/git/{key}/info/refs?service=git-receive-pack")
            assert push.status_code == 403


async def test_mirrors_here_are_equal_to_upstreams_with_all_their_refs(fleet):
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator() as node:
        repo, key = await fleet.add("one")
        repo.branch("topic")
        repo.tag("v1", annotated=True)
        await fleet.until_here(node, key)

        async def equal():
            return read_refs(node.side.mirrors.path(RepoKey(key))) == repo.public_refs()

        await fleet.until(equal)


async def test_what_fetches_left_in_pieces_is_put_together_and_goes_on_being_followed(fleet, monkeypatch):
    monkeypatch.setattr(collected_care, "SETTLE_S", 0.0)
    monkeypatch.setattr(queue, "AFTER_INTERRUPTION_S", 0.0)  # a fetch may come in the middle of it
    packs = {"maintenance": {"packs_max": 2}}
    async with fleet.coordinator(), fleet.worker("w1"), fleet.aggregator(**packs) as node:
        repo, key = await fleet.add("one")
        await fleet.until_here(node, key)
        for _ in range(5):
            await fleet.until_tip(node, key, await asyncio.to_thread(repo.commit))
        path = node.side.mirrors.path(RepoKey(key))
        await fleet.until(lambda: _is(lambda: len(list(path.glob("objects/pack/*.pack"))) < 6))
        await fleet.until_tip(node, key, await asyncio.to_thread(repo.commit))
        run_git(path, "fsck", "--full", "--strict")


# In the registry of nodes


async def aggregators(lead):
    async with httpx2.AsyncClient(base_url=lead.url) as client:
        return (await client.get("/api/fleet")).json()


async def test_one_that_stays_away_is_down_with_an_alert_and_an_event_until_it_is_back(fleet):
    listens = {"public_url": "https://mirror.example.org"}
    quick = {"max_missed": 1}

    async def status(word):
        return [one["status"] for one in (await aggregators(fleet.lead))["aggregators"]] == [word]

    async def standing():
        return [
            a["about"] for a in (await aggregators(fleet.lead))["alerts"] if a["kind"] == "aggregator-down"
        ]

    async def events():
        return [e.type for e in await fleet.lead.lead.store.events_before(2**62, 1000)][::-1]

    async with fleet.coordinator(fleet=quick):
        async with fleet.aggregator(aggregator=listens):
            await fleet.until(lambda: status("alive"))
            (one,) = (await aggregators(fleet.lead))["aggregators"]
            assert (one["id"], one["role"], one["name"]) == (7, "aggregator", "agg"), "named as its token"
            assert (one["status"], one["url"]) == ("alive", "https://mirror.example.org")
            assert [h["what"] for h in one["history"]] == ["joined"]
            assert await standing() == []
        await fleet.until(lambda: status("down"))
        assert await standing() == ["agg"]
        assert (await events())[-2:] in (
            ["aggregator.joined", "aggregator.down"],
            ["aggregator.down", "alert.raised"],
        )
    async with fleet.coordinator(fleet=quick):
        assert await status("down"), "the registry outlives the coordinator"
        assert await standing() == ["agg"]
        async with fleet.aggregator(aggregator=listens):
            await fleet.until(lambda: status("alive"))
            (one,) = (await aggregators(fleet.lead))["aggregators"]
            assert [h["what"] for h in one["history"]] == ["joined", "suspect", "down", "up"]
            assert one["last_alive_at"] is not None
            assert await standing() == []
            assert "aggregator.up" in await events()


async def test_one_that_never_comes_back_after_a_restart_of_the_coordinator_is_found_out(fleet):
    async with fleet.coordinator(), fleet.aggregator():
        await fleet.until(lambda: _is(lambda: bool(fleet.lead.lead.feeds.view())))
    async with fleet.coordinator(fleet={"max_missed": 1}):

        async def found_out():
            return [a["kind"] for a in (await aggregators(fleet.lead))["alerts"]] == ["aggregator-down"]

        await fleet.until(found_out)
        raised = [a.kind for a in fleet.lead.lead.alerting.stands(["aggregator-down"])]
        assert raised == ["aggregator-down"], "people are told, not only the page"


async def test_two_aggregators_of_one_name_are_not_let_in(fleet):
    async with fleet.coordinator(), fleet.aggregator():
        await fleet.until(lambda: _is(lambda: bool(fleet.lead.lead.feeds.view())))
        other = Dial(fleet.doorway, fleet.identity("agg", Role.AGGREGATOR, trusted=True, operator=""))
        config = fleet.config("other")
        async with aggregating(config, other) as second:
            await fleet.until(
                lambda: _is(lambda: "another aggregator has the name" in second.side.uplink.state.reason)
            )
