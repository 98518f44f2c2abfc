"""Real git reads through gateway, relay and line what a worker that nobody can reach holds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

import pytest

from evermirror.core.keep.names import KEPT
from evermirror.edge.relay.ask import HolderAway, HolderFailed, HolderLacks, ReaderRefused
from evermirror.edge.relay.gateway import Gateway
from evermirror.edge.relay.holder_refs import HolderRefsInvalid, holder_refs
from evermirror.edge.relay.limits import GatewayLimits
from evermirror.edge.relay.serving import Busy
from evermirror.model.access import Role
from evermirror.model.refs import Oid, RefSnapshot
from evermirror.model.relay import Source
from evermirror.model.repo import RepoKey
from tests.edge.relay.relay_world import (
    HOLDER,
    KEY,
    OTHER,
    READER,
    GitService,
    Scripted,
    gather,
    git_server,
    run_git_client,
    until,
)
from tests.support.gitrepo import UpstreamRepo, read_refs
from tests.support.processes import wait_for_no_children


@pytest.mark.parametrize("version", [0, 2])
async def test_git_clones_and_fetches_through_the_relay(fleet, repo, git_service, tmp_path, version):
    flag = f"protocol.version={version}"
    async with fleet.serving(git_service), Gateway(fleet.relay) as gateway:
        async with gateway.open(fleet.source(), fleet.pass_()) as url:
            await run_git_client(tmp_path, "-c", flag, "clone", "-q", "--mirror", url, "copy.git")
            assert read_refs(tmp_path / "copy.git") == repo.public_refs()
            repo.commit()
            await run_git_client(
                tmp_path, "-c", flag, "--git-dir=copy.git", "fetch", "-q", url, "+refs/*:refs/*"
            )
        assert read_refs(tmp_path / "copy.git") == repo.public_refs()
        assert {(r.reader, r.role) for r in git_service.requests} == {(READER, Role.AGGREGATOR)}
        assert fleet.relay.figures().answered == len(git_service.requests) >= 4
        await until(lambda: fleet.relay.figures().running == 0)
    assert not wait_for_no_children()


async def test_a_worker_with_a_ticket_clones_from_another_over_tls(fleet, repo, git_service, tmp_path):
    async with fleet.serving(git_service), fleet.asking() as reach, Gateway(reach) as gateway:
        source = fleet.source(ticket=fleet.ticket())
        async with gateway.open(source, fleet.pass_(OTHER, Role.WORKER)) as url:
            await run_git_client(tmp_path, "clone", "-q", "--mirror", url, "copy.git")
        assert read_refs(tmp_path / "copy.git") == repo.public_refs()
        assert {(r.reader, r.role) for r in git_service.requests} == {(OTHER, Role.WORKER)}
        # The lines are used again: three requests on one asking line.
        assert fleet.relay.figures().asking_lines == 1


async def test_many_megabytes_arrive_as_they_are_and_several_at_once(fleet, repo, git_service, tmp_path):
    repo.big_blob(9_000_000)
    async with (
        fleet.serving(git_service),
        fleet.asking() as far,
        Gateway(fleet.relay) as near_gateway,
        Gateway(far) as far_gateway,
    ):
        openings = [(near_gateway, fleet.pass_()), (far_gateway, fleet.pass_())] * 3

        async def clone(n, gateway, pass_):
            async with gateway.open(fleet.source(), pass_) as url:
                await run_git_client(tmp_path, "clone", "-q", "--mirror", url, f"copy{n}.git")
            await run_git_client(tmp_path / f"copy{n}.git", "fsck", "--full")
            assert read_refs(tmp_path / f"copy{n}.git") == repo.public_refs()

        await asyncio.gather(*(clone(n, *o) for n, o in enumerate(openings)))


async def test_a_request_larger_than_gits_buffer_is_streamed(fleet, repo, git_service, tmp_path):
    """git sends its haves zipped, or chunked after a probe where they are many."""
    async with fleet.serving(git_service), Gateway(fleet.relay) as gateway:
        async with gateway.open(fleet.source(), fleet.pass_()) as url:
            await run_git_client(tmp_path, "clone", "-q", "--mirror", url, "copy.git")
            tip = repo.tip()
            own = UpstreamRepo(tmp_path / "copy.git", "copy", "")
            own.bulk_commits(600, "mine")
            names = "".join(f"create refs/heads/w{i} {tip}\n" for i in range(3_000))
            repo.git("update-ref", "--stdin", stdin=names)
            for i in range(30):
                repo.commit(f"more{i}")
            small_buffer = ("-c", "http.postBuffer=65536", "-c", "fetch.negotiationAlgorithm=consecutive")
            git_dir = "--git-dir=copy.git"
            await run_git_client(
                tmp_path, *small_buffer, git_dir, "fetch", "-q", url, "+refs/heads/*:refs/there/*"
            )
        got = {
            n.replace("refs/there/", "refs/heads/"): o for n, o in read_refs(own.path).items() if "there" in n
        }
        assert got == {n: o for n, o in repo.refs().items() if n.startswith("refs/heads/")}


async def test_the_refs_of_a_holder_in_one_question(fleet, repo, git_service):
    async with fleet.serving(git_service):
        seen = await holder_refs(fleet.relay, fleet.source(), fleet.pass_())
    assert seen == RefSnapshot({n: Oid(o) for n, o in repo.public_refs().items()}, "refs/heads/main")
    assert len(git_service.requests) == 1


async def test_the_refs_of_a_holder_with_sha256(fleet, tmp_path):
    repo = UpstreamRepo.init(tmp_path / "held" / "y.git", "y", "", object_format="sha256")
    repo.bulk_commits(2)
    async with fleet.serving(GitService(git_server(tmp_path), {KEY: repo.path})):
        seen = await holder_refs(fleet.relay, fleet.source(), fleet.pass_())
    assert dict(seen.refs) == repo.public_refs()


async def test_kept_tips_are_asked_for_only_where_wanted(fleet):
    oid = "a" * 40
    kept = KEPT + "20260101T000000000Z/deleted-gone/=x"
    listing = f"{oid} refs/heads/main\n", f"{oid} {kept}\n"
    asked = []

    async def tell(request, body):
        asked.append(await gather(body))
        yield b"".join(b"%04x%b" % (len(x) + 4, x.encode()) for x in listing) + b"0000"

    async with fleet.serving(Scripted(tell)):
        assert kept in (await holder_refs(fleet.relay, fleet.source(), fleet.pass_(), kept=True)).refs
        assert kept not in (await holder_refs(fleet.relay, fleet.source(), fleet.pass_())).refs
    assert [KEPT.encode() in body for body in asked] == [True, False]


async def test_refs_below_further_prefixes_count_where_they_are_mirrored(fleet, repo, git_service):
    repo.git("update-ref", "refs/changes/01/1/1", repo.tip())
    async with fleet.serving(git_service):
        plain = await holder_refs(fleet.relay, fleet.source(), fleet.pass_())
        more = await holder_refs(fleet.relay, fleet.source(), fleet.pass_(), extra=("refs/changes/",))
    assert set(more.refs) - set(plain.refs) == {"refs/changes/01/1/1"}
    assert set(plain.refs) < set(more.refs)


async def test_refs_that_are_none_are_told_apart(fleet):
    async def lie(request, body):
        yield b"0021" + b"z" * 29 + b"0000"

    async with fleet.serving(Scripted(lie)):
        with pytest.raises(HolderRefsInvalid):
            await holder_refs(fleet.relay, fleet.source(), fleet.pass_())


@pytest.mark.parametrize(
    ("error", "told", "status"),
    [(Busy(7.0), HolderAway, "503"), (RuntimeError("a bug"), HolderFailed, "503")],
)
async def test_git_hears_an_error_and_we_hear_why(fleet, tmp_path, error, told, status):
    async def fail(request, body):
        raise error
        yield b""

    heard = []
    async with (
        fleet.serving(Scripted(fail)),
        Gateway(fleet.relay) as gateway,
        gateway.open(fleet.source(), fleet.pass_(), heard=heard.append) as url,
    ):
        said = await run_git_client(tmp_path, "ls-remote", url, fine=False)
    assert status in said
    assert [type(e) for e in heard] == [told]
    if isinstance(error, Busy):
        assert heard[0].retry_after_s == 7.0
    else:
        assert "a bug" not in str(heard[0])


async def test_what_is_not_held_is_not_there(fleet, git_service, tmp_path):
    heard = []
    async with fleet.serving(git_service), Gateway(fleet.relay) as gateway:
        source = Source(RepoKey("example.com/not/here"), HOLDER)
        async with gateway.open(source, fleet.pass_(), heard=heard.append) as url:
            assert "not found" in await run_git_client(tmp_path, "ls-remote", url, fine=False)
        absent = Source(KEY, OTHER)
        async with gateway.open(absent, fleet.pass_(), heard=heard.append) as url:
            assert "503" in await run_git_client(tmp_path, "ls-remote", url, fine=False)
        async with gateway.open(fleet.source(), "no pass", heard=heard.append) as url:
            assert "403" in await run_git_client(tmp_path, "ls-remote", url, fine=False)
    assert [type(e) for e in heard] == [HolderLacks, HolderAway, ReaderRefused]


async def test_a_worker_that_dies_in_the_midst_of_a_pack_fails_the_clone(fleet, repo, git_service, tmp_path):
    repo.big_blob(30_000_000)

    async def dies(request, body):
        sent = 0
        async with contextlib.aclosing(git_service.handle(request, body)) as pieces:
            async for piece in pieces:
                yield piece
                sent += len(piece)
                if sent > 3_000_000:
                    raise RuntimeError("power cut")

    heard = []
    async with (
        fleet.serving(Scripted(dies)),
        Gateway(fleet.relay) as gateway,
        gateway.open(fleet.source(), fleet.pass_(), heard=heard.append) as url,
    ):
        await run_git_client(tmp_path, "clone", "-q", "--mirror", url, "copy.git", fine=False)
    assert [type(e).__name__ for e in heard] == ["AnswerBroken"]
    assert not (tmp_path / "copy.git").exists()
    assert not wait_for_no_children()


async def test_git_at_the_holder_ends_when_the_reader_is_gone(fleet, repo, git_service, tmp_path):
    repo.big_blob(30_000_000)
    async with fleet.serving(git_service), fleet.asking() as reach:
        for reader in (fleet.relay, reach):
            pieces = reader.ask(fleet.ask("pack"), _clone_of(repo))
            assert await anext(pieces)
            await pieces.aclose()
            assert await asyncio.to_thread(wait_for_no_children) == []
            await until(lambda: fleet.relay.figures().running == 0)
        assert await gather(fleet.relay.ask(fleet.ask(), _nothing()))  # and it is there for the next


async def _clone_of(repo):
    want = f"want {repo.tip()}\n"
    command = "command=fetch"
    parts = [f"{len(x) + 4:04x}{x}" for x in (command,)] + ["0001"]
    parts += [f"{len(x) + 4:04x}{x}" for x in (want, "done\n")] + ["0000"]
    yield "".join(parts).encode()


async def _nothing():
    return
    yield b""


async def test_the_gateway_answers_nothing_but_git_inside_its_block(fleet, git_service, tmp_path):
    async with fleet.serving(git_service), Gateway(fleet.relay) as gateway:
        async with gateway.open(fleet.source(), fleet.pass_()) as url:
            await run_git_client(tmp_path, "ls-remote", url)
            secret = url.split("/")[3]
            for path in ("/", f"/{secret}", f"/{secret}/repo", f"/{secret}/repo/HEAD", "/x/repo/info/refs"):
                assert b" 404 " in await _get(url, path)
            push = f"/{secret}/repo/info/refs?service=git-receive-pack"
            assert b" 404 " in await _get(url, push)
            assert b" 200 " in await _get(url, f"/{secret}/repo/info/refs?service=git-upload-pack")
            assert len(secret) >= 43
        assert "not found" in await run_git_client(tmp_path, "ls-remote", url, fine=False)
        async with gateway.open(fleet.source(), fleet.pass_()) as other:
            assert other != url


async def _get(url, path) -> bytes:
    port = int(url.split(":")[2].split("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(200), 10)
    writer.close()
    return answer


async def test_garbage_and_endless_heads_at_the_gateway_are_cut_off(fleet):
    async with (
        Gateway(fleet.relay, GatewayLimits(idle_s=0.3)) as gateway,
        gateway.open(fleet.source(), fleet.pass_()) as url,
    ):
        port = int(url.split(":")[2].split("/")[0])
        for raw in (b"\x16\x03\x01garbage\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000, b""):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(raw)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()


async def test_leaving_the_block_ends_what_runs_in_it(fleet, tmp_path):
    async def endless(request, body):
        while True:
            yield os.urandom(50_000)
            await asyncio.sleep(0.001)

    service = Scripted(endless)
    async with fleet.serving(service), Gateway(fleet.relay) as gateway:
        async with gateway.open(fleet.source(), fleet.pass_()) as url:
            path = "/" + url.split("/", 3)[3] + "/info/refs?service=git-upload-pack"
            assert await _get(url, path)
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.split(":")[2].split("/")[0]))
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await reader.readexactly(10_000)
        await until(lambda: service.closed == 2)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1_000_000_000), 5)
        writer.close()


async def test_endless_data_ends_at_the_readers_bound(fleet):
    sent = 0

    async def endless(request, body):
        nonlocal sent
        while True:
            sent += 100_000
            yield b"x" * 100_000

    heard = []
    async with fleet.serving(Scripted(endless)), Gateway(fleet.relay) as gateway:
        async with gateway.open(
            fleet.source(), fleet.pass_(), heard=heard.append, answer_bytes_max=5_000_000
        ) as url:
            path = "/" + url.split("/", 3)[3] + "/info/refs?service=git-upload-pack"
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.split(":")[2].split("/")[0]))
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            got = 0
            began = time.monotonic()
            with contextlib.suppress(ConnectionResetError):
                while piece := await asyncio.wait_for(reader.read(1_000_000), 5):
                    got += len(piece)
            writer.close()
            assert got < 5_100_000
            assert time.monotonic() - began < 10
        assert [type(e).__name__ for e in heard] == ["AnswerTooLarge"]
    assert sent < 30_000_000  # what was on its way is bounded too: sockets take some 10 MB
