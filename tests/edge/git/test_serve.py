"""Mirrors are served to real git clients, read-only, streamed, and bounded."""

from __future__ import annotations

import asyncio
import gzip
import subprocess

import pytest

from evermirror.edge.git.refs import OWN_NAMESPACE
from evermirror.edge.git.serve import (
    BadRequest,
    GitServer,
    RequestTooLarge,
    ServerBusy,
    ServeSettings,
    bounded_body,
)
from evermirror.model.failure import FailureError
from tests.edge.git.mirror_world import World
from tests.support.gitrepo import clean_git_env, read_refs, run_git
from tests.support.processes import wait_for_no_children


@pytest.fixture
async def served(tmp_path, upstream):
    world = World(tmp_path, upstream)
    repo = upstream.create("x", commits=5)
    repo.tag("v1", annotated=True)
    await world.sync(repo)
    path = world.path(repo)
    run_git(path, "update-ref", OWN_NAMESPACE + "kept/secret", "refs/heads/main")
    return world, repo, path


async def gather(stream) -> bytes:
    return b"".join([chunk async for chunk in stream])


async def chunks(*data):
    for piece in data:
        yield piece


def clone_of(repo, who="git/2.39.5"):
    first = f"want {repo.tip()} side-band-64k agent={who}\n"
    return f"{len(first) + 4:04x}{first}00000009done\n".encode()


class Face:
    """The thinnest HTTP in front of it."""

    def __init__(self, server, path):
        self._server, self._path = server, path

    async def __aenter__(self):
        self._listener = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}/x"
        return self

    async def __aexit__(self, *_):
        self._listener.close()
        await self._listener.wait_closed()

    async def _handle(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
        protocol = headers.get("git-protocol", "")
        if head[0].startswith("GET"):
            kind, answer = "advertisement", self._server.advertise(self._path, protocol)
        else:
            body = await reader.readexactly(int(headers["content-length"]))
            zipped = headers.get("content-encoding") == "gzip"
            answer = self._server.upload_pack(self._path, chunks(body), protocol, gzipped=zipped)
            kind = "result"
        content = f"Content-Type: application/x-git-upload-pack-{kind}"
        writer.write(f"HTTP/1.1 200 OK\r\n{content}\r\nConnection: close\r\n\r\n".encode())
        async for chunk in answer:
            writer.write(chunk)
            await writer.drain()
        writer.close()


async def client(tmp_path, *args):
    process = await asyncio.create_subprocess_exec(
        "git",
        *args,
        env=clean_git_env(tmp_path),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_real_client_clones_and_fetches_and_sees_no_hidden_ref(served, tmp_path, version):
    world, repo, path = served
    async with Face(GitServer(world.git), path) as face:
        flag = f"protocol.version={version}"
        await client(tmp_path, "-c", flag, "clone", "-q", "--mirror", face.url, "copy.git")
        assert read_refs(tmp_path / "copy.git") == repo.public_refs()
        repo.commit()
        await world.sync(repo)
        await client(tmp_path, "-c", flag, "--git-dir=copy.git", "fetch", "-q", face.url, "+refs/*:refs/*")
        assert read_refs(tmp_path / "copy.git") == repo.public_refs()


async def test_a_partial_clone_is_allowed(served, tmp_path):
    world, _, path = served
    async with Face(GitServer(world.git), path) as face:
        await client(tmp_path, "clone", "-q", "--bare", "--filter=blob:none", face.url, "partial.git")


async def test_a_mirror_without_a_head_does_not_tell_our_stand_in(served, tmp_path):
    world, repo, path = served
    repo.git("update-ref", "--no-deref", "HEAD", repo.tip())  # detached
    await world.sync(repo)
    body = b"0014command=ls-refs\n0001000bunborn\n000csymrefs\n0000"
    answer = await gather(GitServer(world.git).upload_pack(path, chunks(body), "version=2"))
    assert b"refs/heads/main" in answer
    assert b"no-head" not in answer


async def test_large_packs_flow_to_a_slow_reader_without_being_gathered(served):
    world, repo, path = served
    repo.big_blob(20_000_000)
    await world.sync(repo)
    server = GitServer(world.git)
    want = f"0032want {repo.tip()}\n00000009done\n".encode()
    stream = server.upload_pack(path, chunks(want))
    total = 0
    async for chunk in stream:
        total += len(chunk)
        assert len(chunk) <= 1 << 20
        await asyncio.sleep(0)
    assert total > 20_000_000


async def test_a_client_that_goes_away_takes_its_process_with_it(served):
    world, repo, path = served
    repo.big_blob(20_000_000)
    await world.sync(repo)
    stream = GitServer(world.git).upload_pack(path, chunks(f"0032want {repo.tip()}\n00000009done\n".encode()))
    await anext(stream)
    await stream.aclose()
    left = [c for c in await asyncio.to_thread(wait_for_no_children) if "upload-pack" in c.command]
    assert left == []


async def test_a_client_that_takes_nothing_is_ended(served):
    world, repo, path = served
    repo.big_blob(20_000_000)
    await world.sync(repo)
    server = GitServer(world.git, ServeSettings(silence_s=0.3))
    stream = server.upload_pack(path, chunks(f"0032want {repo.tip()}\n00000009done\n".encode()))
    await anext(stream)
    left = await asyncio.to_thread(wait_for_no_children, 10, "upload-pack")
    assert left == []
    with pytest.raises(TimeoutError):
        await gather(stream)


async def test_too_many_at_once_wait_a_little_and_are_told_to_come_back(served):
    world, repo, path = served
    repo.big_blob(20_000_000)
    await world.sync(repo)
    server = GitServer(world.git, ServeSettings(packs_max=1, queue_wait_s=0.05))
    first = server.upload_pack(path, chunks(clone_of(repo)))
    await anext(first)
    with pytest.raises(ServerBusy):
        await gather(server.upload_pack(path, chunks(clone_of(repo))))
    assert await gather(server.advertise(path, "version=2"))  # a look needs no turn
    await first.aclose()
    assert await gather(server.upload_pack(path, chunks(clone_of(repo))))
    assert server.figures().refused == 1


async def test_requests_are_bounded_also_when_they_are_small_until_unpacked():
    bomb = gzip.compress(bytes(10_000_000))
    assert len(bomb) < 20_000
    with pytest.raises(RequestTooLarge):
        await gather(bounded_body(chunks(bomb), 1_000_000, gzipped=True))
    with pytest.raises(RequestTooLarge):
        await gather(bounded_body(chunks(bytes(600), bytes(600)), 1_000, gzipped=False))
    with pytest.raises(BadRequest):
        await gather(bounded_body(chunks(b"not gzip"), 1_000, gzipped=True))
    packed = gzip.compress(b"hello" * 1000)
    pieces = chunks(*(packed[i : i + 7] for i in range(0, len(packed), 7)))
    assert await gather(bounded_body(pieces, 10_000, gzipped=True)) == b"hello" * 1000


async def test_a_request_that_is_too_large_ends_the_answer(served):
    world, _, path = served
    server = GitServer(world.git, ServeSettings(request_bytes_max=10))
    with pytest.raises(RequestTooLarge):
        await gather(server.upload_pack(path, chunks(bytes(100))))


async def test_a_folder_that_is_no_repository_fails_before_any_byte(served, tmp_path):
    world, _, _ = served
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "HEAD").write_text("ref: refs/heads/main\n")
    with pytest.raises(FailureError):
        await gather(GitServer(world.git).advertise(tmp_path / "empty", "version=2"))


async def test_hostile_protocol_words_are_dropped(served):
    world, _, path = served
    answer = await gather(GitServer(world.git).advertise(path, "version=2\nx; touch pwned"))
    assert answer.startswith(b"001e# service=git-upload-pack\n0000")


async def test_a_clone_survives_its_mirror_being_moved_away(served):
    world, repo, path = served
    repo.big_blob(5_000_000)
    await world.sync(repo)
    stream = GitServer(world.git).upload_pack(path, chunks(f"0032want {repo.tip()}\n00000009done\n".encode()))
    total = len(await anext(stream))
    await world.mirrors.discard(world.spec(repo).key)
    async for chunk in stream:
        total += len(chunk)
    assert total > 5_000_000
