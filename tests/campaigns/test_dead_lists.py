"""Long lists in which many URLs are dead: whatever lives is mirrored, by one process and by a fleet.

The short ones are in tests/scenarios/test_dead_upstreams.py; how long it takes is measured by
``make bench BENCH=dead-list``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.fleet_processes import FleetProcesses
from tests.support.gitrepo import read_refs
from tests.support.mixed_upstreams import Alive, Dead, MixedUpstreams, Url
from tests.support.up_process import UpProcess, up
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.timeout(900)

LONG_S = 400.0  # hundreds of clones on a busy machine; what is stuck stays stuck for longer
PROMPT_S = 60.0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedUpstreams]:
    with MixedUpstreams(tmp_path_factory.mktemp("upstreams"), hosts=40, huge_bytes=100_000_000) as world:
        yield world


def living(urls: Sequence[Url]) -> set[str]:
    return {url.key for url in urls if url.alive}


def assert_mirrored(node: UpProcess, world: MixedUpstreams, urls: Sequence[Url]) -> None:
    assert node.mirrors() == living(urls)
    for url in urls:
        if isinstance(url.kind, Alive):
            assert read_refs(node.mirror(url.key)) == world.refs(url.kind)


def is_told(node: UpProcess, urls: Sequence[Url], way: Dead) -> bool:
    """Of hosts that are silent as a whole single repositories are asked, and only those have an error."""
    errors = [node.repo(url.key)["last_error"] for url in urls if url.kind is way]
    return any(errors) if way in (Dead.REFUSED, Dead.HANGING) else all(errors)


def test_seven_hundred_urls_of_which_30_percent_are_dead(world, tmp_path):
    urls = world.mixed(live=490, dead=210, seed=11)
    catalog = world.write_list(urls, tmp_path / "urls.txt", malformed=True)
    with up(tmp_path, world.settings, catalog) as node:
        node.until(lambda: living(urls) <= node.mirrors(), LONG_S, look_s=0.5)
        assert_mirrored(node, world, urls)
        node.until(lambda: all(is_told(node, urls, way) for way in Dead), LONG_S, look_s=2)
        assert node.stop() == 0
        assert "Traceback" not in node.log()


def test_a_list_of_which_nearly_all_hang_is_mirrored_as_far_as_it_lives(world, tmp_path):
    """1,500 URLs at 50 hosts that accept and never answer, and 60 that live, shuffled."""
    urls = [*world.dead(1500, Dead.HANGING, hosts=50), *world.live(60)]
    random.Random(5).shuffle(urls)
    catalog = world.write_list(urls, tmp_path / "urls.txt")
    with up(tmp_path, world.settings, catalog) as node:
        node.until(lambda: living(urls) <= node.mirrors(), LONG_S, look_s=0.5)
        assert_mirrored(node, world, urls)


def test_who_asks_for_a_repo_gets_it_at_once_behind_hundreds_of_dead_ones(world, tmp_path):
    urls = world.dead_in_all_ways(600)
    asked, urgent = world.live(2)
    catalog = world.write_list(urls, tmp_path / "urls.txt")
    with up(tmp_path, world.settings, catalog) as node:
        node.until(lambda: node.client.get("/api/overview").json()["total_repos"] == len(urls))
        node.add(asked.url)
        task = node.sync(asked.url, wait_s=PROMPT_S)
        assert task["status"] in ("success", "skipped"), task
        done = node.command("add", urgent.url, "--priority", "critical")
        assert done.returncode == 0, done.stderr
        node.until(lambda: {asked.key, urgent.key} <= node.mirrors(), PROMPT_S)


def test_a_kill_in_the_middle_changes_nothing_in_the_end(world, tmp_path):
    urls = world.mixed(live=120, dead=52, seed=12)
    catalog = world.write_list(urls, tmp_path / "urls.txt")
    with up(tmp_path, world.settings, catalog) as node:
        for part in (0.2, 0.6):
            node.until(lambda part=part: len(node.mirrors()) >= part * len(living(urls)), LONG_S)
            node.kill()
            node.start("up", "--catalog", str(catalog))
        node.until(lambda: living(urls) <= node.mirrors(), LONG_S, look_s=0.5)
        assert_mirrored(node, world, urls)


def test_a_fleet_mirrors_all_that_lives(world, tmp_path: Path):
    urls = world.mixed(live=120, dead=52, seed=13)
    with UpstreamServer(tmp_path / "none") as unused:
        fleet = FleetProcesses(tmp_path / "fleet", unused, world.settings)
        try:
            world.write_list(urls, fleet.catalog, malformed=True)
            fleet.prepare()
            fleet.lead()
            workers = [fleet.join("one"), fleet.join("two")]
            fleet.until(
                lambda: living(urls) <= workers[0].mirrors() | workers[1].mirrors(), LONG_S, look_s=0.5
            )
            assert all(worker.mirrors() for worker in workers)
        finally:
            fleet.close()
