"""The upstreams of a real list are as they say: some can be cloned, others are dead, each in its own way."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.support.gitrepo import clean_git_env, read_refs
from tests.support.mixed_upstreams import VARIETIES, Alive, Dead, MixedUpstreams, Url
from tests.support.processes import children_of_me


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedUpstreams]:
    with MixedUpstreams(tmp_path_factory.mktemp("upstreams"), huge_bytes=1_000_000) as world:
        yield world


def git(world: MixedUpstreams, *args: str) -> subprocess.CompletedProcess[str]:
    env = {**clean_git_env(world.folder), "GIT_SSL_CAINFO": str(world.ca_file)}
    command = ["git", "-c", "http.followRedirects=false", *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("kind", Alive, ids=lambda kind: kind.value)
def test_what_lives_can_be_cloned(world, tmp_path, kind):
    first, second = world.live(2, kind)
    for url in (first, second):
        done = git(world, "clone", "--quiet", "--mirror", url.url, str(tmp_path / url.key))
        assert done.returncode == 0, done.stderr
        assert read_refs(tmp_path / url.key) == world.refs(kind)
        assert world.tried(url)
    assert first.url != second.url


WORDS = {
    "gone": "not found",
    "refused": "Failed to connect|onnection refused",
    "inward": "unable to update url base from redirection|redirect|HTTP 302|returned error: 302",
    "loop": "redirect|301",
    "login": "redirect|302",
    "html": "not valid: is this a git repository",
    "cut": "transfer closed|early EOF|hung up|partial|end of file",
    "garbage": "invalid server response|bad line length|protocol error",
    "expired": "certificate has expired|certificate",
    "selfsigned": "certificate",
    "otherhost": "does not match|certificate",
}


def test_what_is_dead_is_dead_in_its_own_way(world):
    ways = [way for way in Dead if way is not Dead.HANGING]
    urls = [url for way in ways for url in world.dead(len(VARIETIES.get(way, "x")), way)]
    said = {variety(url): git(world, "ls-remote", url.url) for url in urls}
    assert set(said) == set(WORDS)
    for name, done in said.items():
        assert done.returncode != 0, name
        assert any(word in done.stderr for word in WORDS[name].split("|")), (name, done.stderr)


def variety(url: Url) -> str:
    return "refused" if url.kind is Dead.REFUSED else urlsplit(url.url).path.split("/")[1]


def test_what_hangs_takes_the_request_and_says_nothing_whole(world):
    for url, said in zip(world.dead(2, Dead.HANGING), (b"", b"HTTP/1.1 200 OK"), strict=True):
        split = urlsplit(url.url)
        with socket.create_connection((split.hostname, split.port), timeout=10) as connection:
            connection.sendall(f"GET {split.path}/info/refs HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            connection.settimeout(1.0)
            answer = until_silent(connection)
            assert answer.startswith(said)
            assert b"\r\n\r\n" not in answer


def until_silent(connection: socket.socket) -> bytes:
    answer = b""
    while True:
        try:
            data = connection.recv(1000)
        except TimeoutError:
            return answer
        assert data, "it hung up"
        answer += data


def test_the_dead_as_a_whole_have_hosts_of_their_own_and_the_others_share(world):
    def hosts(urls: list[Url]) -> set[str]:
        return {str(urlsplit(url.url).hostname) for url in urls}

    alive = hosts(world.live(100))
    assert len(alive) == world.hosts
    for way in (Dead.GONE, Dead.REDIRECTING, Dead.MALFORMED):
        assert hosts(world.dead(100, way)) == alive
    for way in (Dead.REFUSED, Dead.HANGING, Dead.TLS):
        assert len(hosts(world.dead(400, way, hosts=300))) == 300
        assert hosts(world.dead(10, way)).isdisjoint(alive)


def test_a_mixed_list_has_as_many_of_each_as_it_says_and_is_the_same_for_a_seed(tmp_path):
    with MixedUpstreams(tmp_path / "a", huge_bytes=1000) as world:
        urls = world.mixed(live=70, dead=30, seed=1)
    assert sum(url.alive for url in urls) == 70
    assert [sum(url.kind is way for url in urls) for way in Dead] == [5] * 6
    assert {url.kind for url in urls if url.alive} == set(Alive)
    assert len({url.key for url in urls}) == 100
    assert [url.alive for url in urls[:10]] != [True] * 10


def test_nothing_is_left_behind(tmp_path):
    before = {thread.name for thread in threading.enumerate()}
    with MixedUpstreams(tmp_path / "a", huge_bytes=1000) as world:
        assert git(world, "ls-remote", world.live(1)[0].url).returncode == 0
    assert {thread.name for thread in threading.enumerate()} - before == set()
    assert [child for child in children_of_me() if "http-backend" in child.command] == []
