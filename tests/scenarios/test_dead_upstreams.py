"""Lists in which many URLs are dead, as in every real list: whatever lives is mirrored all the same.

Real processes: ``evermirror up --catalog`` on the upstreams of tests/support/mixed_upstreams.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.gitrepo import read_refs
from tests.support.mixed_upstreams import Alive, Dead, MixedUpstreams, Url
from tests.support.up_process import UpProcess, up

# Far more than live repositories need on a busy machine, and less than a hanging poll is waited for (1 min).
SOON_S = 50.0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedUpstreams]:
    with MixedUpstreams(tmp_path_factory.mktemp("upstreams"), huge_bytes=5_000_000) as world:
        yield world


@pytest.fixture
def mirroring(tmp_path: Path, world: MixedUpstreams) -> Callable[[Sequence[Url]], None]:
    """Mirrors a list, in its order, and sees that all that lives is here soon, as it is upstream."""

    def mirror(urls: Sequence[Url], *, malformed: bool = False, within_s: float = SOON_S) -> None:
        catalog = world.write_list(urls, tmp_path / "urls.txt", malformed=malformed)
        settings = {**world.settings, "EVERMIRROR_LIMITS__HOST_RATE": "100/s"}
        with up(tmp_path, settings, catalog) as node:
            until_mirrored(node, urls, within_s)
            for url in urls:
                if isinstance(url.kind, Alive):
                    assert read_refs(node.mirror(url.key)) == world.refs(url.kind)
            assert node.mirrors() == {url.key for url in urls if url.alive}

    return mirror


def until_mirrored(node: UpProcess, urls: Sequence[Url], within_s: float) -> None:
    wanted = {url.key for url in urls if url.alive}
    node.until(lambda: wanted <= node.mirrors(), within_s)


def test_ten_that_are_gone_do_not_stop_the_five_after_them(mirroring, world):
    mirroring([*world.dead(10, Dead.GONE), *world.live(5)])


@pytest.mark.parametrize("way", Dead, ids=lambda way: way.value)
def test_twenty_that_are_dead_in_one_way_do_not_stop_the_three_after_them(mirroring, world, way):
    mirroring([*world.dead(20, way), *world.live(3)])


def test_a_shuffled_list_with_dead_and_malformed_lines_is_mirrored_as_far_as_it_lives(mirroring, world):
    urls = world.mixed(live=60, dead=26, seed=19)
    mirroring(urls, malformed=True)
    assert all(world.tried(url) for url in urls if url.kind in (Dead.GONE, Dead.MALFORMED))


def test_where_most_hang_at_a_few_hosts_the_rest_is_mirrored_soon(mirroring, world):
    urls = [*world.dead(120, Dead.HANGING, hosts=6), *world.live(10)]
    random.Random(7).shuffle(urls)
    mirroring(urls)


def test_where_hundreds_of_hosts_hang_the_rest_is_mirrored_soon(mirroring, world):
    """More than polls may be under way at the same time (256): each of them takes its whole timeout."""
    urls = [*world.dead(400, Dead.HANGING, hosts=400), *world.live(10)]
    random.Random(7).shuffle(urls)
    mirroring(urls)
