"""Upstreams that are gone, private, slow, endless, lying or worse, each met by a whole node.

Every test says what its repo's caller is told, that the mirror stayed as it was, and (``scene``, on the way
out) that another repo of the same host goes on as if nothing had been.
"""

from __future__ import annotations

import gzip
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from evermirror.edge.git.pktline import encode
from tests.support.backend import Behaviour, Reply, Request, run_backend
from tests.support.gitrepo import UpstreamRepo, run_git
from tests.support.hostile import (
    BLOB,
    COMMIT,
    RESULT,
    TREE,
    Answer,
    as_object,
    git_says,
    pack_of,
    ref_list,
    sends_pack,
    twist,
)
from tests.support.raw_server import always, http, raw_server
from tests.support.stage import Running, Stage
from tests.support.upstream import UpstreamServer

NAME, GOOD = "bad/x", "good/one"
# The longest any of these may take to be told: less than what a poll or a fetch that hangs is given. Most
# take a tenth of a second, on a machine that has nothing else to do.
SOON_S = 25.0
QUICK_S = 3  # what a test gives answers and silences instead: also the good repo's gits keep to it
ADVERTISEMENT = "application/x-git-upload-pack-advertisement"
NOWHERE = "0123456789" * 4  # an object id that nobody has


@pytest.fixture
def stage(tmp_path: Path, upstream: UpstreamServer) -> Stage:
    return Stage(tmp_path, upstream)


class Scene:
    """A node that is up, a repo that will turn hostile, and what its mirror is before that."""

    def __init__(self, up: Running, bad: UpstreamRepo) -> None:
        self.up = up
        self.bad = bad
        self.before: dict[str, str] = {}

    async def mirrored(self) -> None:
        """The first sync, while upstream still behaves."""
        await self.up.add(self.bad.url)
        await self.up.until_status(NAME, "active")
        self.before = self.up.refs(NAME)
        assert self.before == self.bad.public_refs()

    async def told(self, error_type: str, *words: str, **params: object) -> None:
        """A sync asked for now fails so, in time, and changes nothing here."""
        started = time.monotonic()
        task = await self.up.sync(NAME, **params)
        assert time.monotonic() - started < SOON_S
        assert task["status"] == "failure", task
        result = task["result"]
        assert isinstance(result, dict)
        assert result["error_type"] == error_type, result
        for word in words:
            assert word in result["error_message"], result
        self.untouched()

    def untouched(self) -> None:
        path = self.up.stage.mirror(self.up.key(NAME))
        if not self.before:
            assert not path.exists()
            return
        assert self.up.refs(NAME) == self.before
        run_git(path, "fsck", "--strict")

    async def status(self) -> str:
        return (await self.up.repo(NAME)).status.value


@asynccontextmanager
async def scene(stage: Stage, *, commits: int = 2, **sections: dict[str, object]) -> AsyncIterator[Scene]:
    """Polls happen only when asked for. On leaving, a repo next door must follow its upstream as ever."""
    upstream = stage.upstream
    good = upstream.create(GOOD, commits=1)
    bad = upstream.create(NAME, commits=commits)
    async with stage.up(**{"schedule": {"min_gap": "1h"}, **sections}) as up:
        await up.add(good.url)
        await up.until_status(GOOD, "active")
        yield Scene(up, bad)
        good.commit()
        started = time.monotonic()
        assert (await up.sync(GOOD))["status"] in ("success", "skipped")
        assert time.monotonic() - started < SOON_S
        assert up.refs(GOOD) == good.public_refs()
        assert (await up.client.get("/api/overview")).json()["accepting_clones"] is True


def is_poll(request: Request, body: bytes) -> bool:
    """Not a fetch: a small one is asked for over the polls' connection too."""
    ours = request.headers.get("user-agent", "").startswith("git/evermirror")
    return ours and b"command=fetch" not in body


def polls_see(*lines: bytes) -> Answer:
    """Our own poll is told these refs; git hears the truth."""
    return lambda request, body: git_says(ref_list(*lines)) if is_poll(request, body) else None


# Gone, private, elsewhere


REFUSALS = (
    (404, {}, "NOT_FOUND", "gone"),
    (401, {"WWW-Authenticate": "Basic"}, "NOT_FOUND", "gone"),
    (403, {}, "AUTH_FAILED", "auth"),
    (200, {"Content-Type": "text/html"}, "NOT_FOUND", "gone"),  # a login page
    (302, {"Location": "/users/sign_in"}, "NOT_FOUND", "gone"),
)


async def test_an_upstream_that_turns_us_away_keeps_its_mirror_and_is_followed_when_it_is_back(stage):
    async with scene(stage) as s:
        await s.mirrored()
        for status, headers, error_type, becomes in REFUSALS:
            stage.upstream.fail_with(status, headers, b"<html>sign in</html>", path=NAME)
            await s.told(error_type)
            assert await s.status() == becomes, status
            shown = (await s.up.client.get(f"/api/repos/{s.up.key(NAME)}")).json()
            assert shown["last_error"]["error_type"] == error_type
            stage.upstream.heal()
            s.bad.commit()
            assert (await s.up.sync(NAME))["status"] == "success"
            assert await s.status() == "active"
            s.before = s.up.refs(NAME)
            assert s.before == s.bad.public_refs()


@pytest.mark.parametrize("status", [404, 401])
async def test_an_upstream_that_never_was_leaves_nothing_behind(stage, status):
    async with scene(stage) as s:
        stage.upstream.fail_with(status, path=NAME)
        await s.told("NOT_FOUND")
        assert await s.status() == "gone"
        assert list((stage.data / "mirrors" / ".incoming").iterdir()) == []


async def test_a_dumb_server_is_refused_by_name(stage):
    async with scene(stage) as s:
        await s.mirrored()
        s.bad.git("update-server-info")
        dumb = Behaviour(stage.upstream.root, True, True, {})
        twist(stage.upstream, lambda request, body: run_backend(dumb, request, body))
        await s.told("UNKNOWN", "dumb http")
        assert await s.status() == "failing"


@pytest.mark.parametrize("who", ["everybody", "git alone"])
async def test_a_redirect_inward_reaches_nobody(stage, who):
    """The other port is on this very machine and would answer with refs, if it were asked."""
    async with raw_server(always(http(b"0000"))) as inside, scene(stage) as s:
        await s.mirrored()
        s.bad.commit()
        target = f"http://127.0.0.1:{inside.port}/{NAME}.git/info/refs?service=git-upload-pack"
        twist(
            stage.upstream,
            lambda request, body: (
                None
                if who == "git alone" and is_poll(request, body)
                else Reply(302, [("Location", target)], iter([b""]))
            ),
        )
        await s.told("NOT_FOUND" if who == "everybody" else "UNKNOWN")
        assert inside.connections == 0


async def test_a_redirect_outward_is_named_and_its_host_is_not_even_looked_up(stage, monkeypatch):
    asked: list[object] = []
    real = socket.getaddrinfo

    def listen(host: object, *args: object, **more: object) -> object:
        asked.append(host)
        return real(host, *args, **more)  # type: ignore[arg-type]

    async with scene(stage) as s:
        await s.mirrored()
        monkeypatch.setattr(socket, "getaddrinfo", listen)
        stage.upstream.redirect(f"/{NAME}.git", "https://user:hunter22@elsewhere.example/x.git", 301)
        await s.told("NOT_FOUND", "moved to https://elsewhere.example/x.git")
        assert "elsewhere.example" not in asked
        assert "hunter22" not in (await s.up.client.get(f"/api/repos/{s.up.key(NAME)}/-/tasks")).text


# Empty, emptied, rewritten


async def test_an_empty_upstream_is_mirrored_as_empty_and_followed_when_it_fills(stage):
    async with scene(stage, commits=0) as s:
        await s.up.add(s.bad.url)
        await s.up.until_status(NAME, "active")
        assert s.up.refs(NAME) == {}
        tip = s.bad.commit()
        assert (await s.up.sync(NAME))["status"] == "success"
        assert s.up.refs(NAME) == {"refs/heads/main": tip}


async def test_an_emptied_upstream_is_followed_and_its_objects_stay(stage):
    async with scene(stage) as s:
        await s.mirrored()
        tip = s.bad.tip()
        s.bad.delete_branch("main")
        task = await s.up.sync(NAME)
        path = stage.mirror(s.up.key(NAME))
        assert run_git(path, "cat-file", "-t", tip) == "commit"
        if task["status"] == "success":
            assert s.up.refs(NAME) == {}
        s.bad.git("update-ref", "refs/heads/main", tip)
        await s.up.sync(NAME)
        assert s.up.refs(NAME) == {"refs/heads/main": tip}


async def test_a_force_push_is_followed_and_what_it_replaced_stays(stage):
    async with scene(stage) as s:
        await s.mirrored()
        old, new = s.bad.tip(), s.bad.force_push()
        task = await s.up.sync(NAME)
        assert task["result"]["changes"] == [{"ref": "refs/heads/main", "old": old, "new": new}]
        assert s.up.refs(NAME) == {"refs/heads/main": new}
        assert run_git(stage.mirror(s.up.key(NAME)), "cat-file", "-t", old) == "commit"


async def test_twenty_thousand_refs_come_in_bounded_time_and_one_that_moves_costs_little(stage):
    async with scene(stage) as s:
        tip = s.bad.tip()
        names = [f"refs/heads/bulk/{n:05d}" for n in range(20_000)]
        (s.bad.path / "packed-refs").write_text("".join(f"{tip} {name}\n" for name in names))
        started = time.monotonic()
        await s.up.add(s.bad.url)
        assert (await s.up.sync(NAME, wait=60))["status"] in ("success", "skipped")
        first_s = time.monotonic() - started
        assert first_s < 60
        assert s.up.refs(NAME) == s.bad.public_refs()
        assert (await s.up.repo(NAME)).refs_count == 20_001
        s.bad.git("update-ref", "-d", names[0])
        moved = s.bad.commit(names[1].removeprefix("refs/heads/"))
        started = time.monotonic()
        task = await s.up.sync(NAME)
        assert time.monotonic() - started < max(first_s / 2, 2)
        assert task["result"]["changes"] == [
            {"ref": names[0], "old": tip, "new": None},
            {"ref": names[1], "old": tip, "new": moved},
        ]


# Slow, stalled, endless, cut short


async def test_a_poll_that_drips_is_ended_in_its_time(stage):
    def drip() -> Iterator[bytes]:
        for byte in ref_list(*(b"%040d refs/heads/b%d" % (n + 1, n) for n in range(1000))):
            if stage.upstream.closing.wait(0.02):
                return
            yield bytes([byte])

    async with scene(stage, limits={"answer_timeout": f"{QUICK_S}s"}) as s:
        await s.mirrored()
        twist(stage.upstream, lambda request, body: git_says(drip()))
        await s.told("NETWORK_TIMEOUT", f"no complete answer in {QUICK_S} s")


async def test_a_poll_that_is_never_answered_is_ended_in_its_time(stage):
    async with scene(stage, limits={"answer_timeout": f"{QUICK_S}s"}) as s:
        await s.mirrored()

        def silence(request: Request, body: bytes) -> Reply:
            stage.upstream.closing.wait(2 * SOON_S)
            return Reply(200, [], iter([b""]))

        twist(stage.upstream, silence)
        await s.told("NETWORK_TIMEOUT")


async def test_a_fetch_that_stalls_is_ended_by_the_watchdog_and_its_git_with_it(stage):
    async with scene(stage, limits={"no_progress": f"{QUICK_S}s"}) as s:
        await s.mirrored()
        s.bad.big_blob(2_000_000)

        def stall(request: Request, body: bytes) -> Reply | None:
            if b"command=fetch" not in body:
                return None
            reply = type(stage.upstream).answer(stage.upstream, request, body)

            def some() -> Iterator[bytes]:
                yield next(reply.body)
                stage.upstream.closing.wait(2 * SOON_S)

            return Reply(reply.status, reply.headers, some())

        twist(stage.upstream, stall)
        await s.told("NETWORK_TIMEOUT")
        assert not list(stage.mirror(s.up.key(NAME)).rglob("tmp_*"))


async def test_a_fetch_that_is_slow_but_moves_is_let_be(stage):
    """It takes longer than no_progress as a whole; only silence is a reason to end it."""
    async with scene(stage, limits={"no_progress": f"{QUICK_S}s"}) as s:
        s.bad.big_blob(1_500_000)

        def slowly(request: Request, body: bytes) -> Reply | None:
            if b"command=fetch" not in body:
                return None
            reply = type(stage.upstream).answer(stage.upstream, request, body)

            def pieces() -> Iterator[bytes]:
                for data in reply.body:
                    for at in range(0, len(data), 16_384):
                        time.sleep(0.05)
                        yield data[at : at + 16_384]

            return Reply(reply.status, reply.headers, pieces())

        twist(stage.upstream, slowly)
        started = time.monotonic()
        await s.up.add(s.bad.url)
        assert (await s.up.sync(NAME))["status"] in ("success", "skipped")
        assert time.monotonic() - started > QUICK_S
        assert s.up.refs(NAME) == s.bad.public_refs()


async def test_an_endless_answer_is_cut_at_its_bound(stage):
    def endless() -> Iterator[bytes]:
        for n in range(1, 10**9):
            yield b"".join(encode(b"%040d refs/heads/%d-%d\n" % (n, n, i)) for i in range(500))

    async with scene(stage, limits={"answer_bytes": "1MB"}) as s:
        await s.mirrored()
        twist(stage.upstream, lambda request, body: git_says(endless()))
        received = s.up.node.worker.status().received_bytes_total
        await s.told("UNKNOWN", "answer larger than")
        assert s.up.node.worker.status().received_bytes_total - received < 5_000_000


async def test_a_packed_answer_that_unfolds_without_end_is_cut_at_its_bound(stage):
    bomb = gzip.compress(bytes(200_000_000), 1)
    async with scene(stage, limits={"answer_bytes": "1MB"}) as s:
        await s.mirrored()
        twist(stage.upstream, lambda request, body: git_says(bomb, RESULT, ("Content-Encoding", "gzip")))
        await s.told("UNKNOWN", "answer larger than")


async def test_headers_that_never_end_after_the_body_are_cut_too(stage):
    """Trailers of a chunked answer: they are no part of the body, and its bound does not hold them."""
    sent = 0

    async def talk(c) -> None:
        nonlocal sent
        await c.request()
        await c.say(
            b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % RESULT.encode()
        )
        await c.say(b"4\r\n0000\r\n0\r\n")
        while sent < 40_000_000:
            await c.say(b"x-more: " + b"a" * 100_000 + b"\r\n")
            sent += 100_000

    async with raw_server(talk) as endless, scene(stage, upstreams={"allow": ["127.0.0.1"]}) as s:
        answer = await s.up.client.post(
            "/api/tasks",
            json={"git_url": f"http://127.0.0.1:{endless.port}/x", "additional_params": {"wait": SOON_S}},
        )
        assert answer.json()["result"]["error_type"] == "UNKNOWN"
        assert sent < 20_000_000


async def test_a_ref_list_cut_short_is_never_fewer_refs(stage):
    async with scene(stage) as s:
        s.bad.branch("other")
        await s.mirrored()
        lines = [b"%b %b" % (oid.encode(), name.encode()) for name, oid in sorted(s.before.items())]
        whole = ref_list(*lines)
        after_one = len(encode(lines[0] + b"\n"))  # a list that is complete but for its end

        for part in (b"", whole[:1], whole[:40], whole[:after_one], whole[:-4], whole[:-1]):
            twist(
                stage.upstream,
                lambda request, body, part=part: git_says(part) if is_poll(request, body) else None,
            )
            task = await s.up.sync(NAME)
            # Where the poll's answer is of no use, git itself is asked, and it is told the truth.
            assert task["status"] in ("failure", "skipped"), task
            s.untouched()


async def test_a_pack_cut_short_leaves_the_mirror_as_it_was(stage):
    async with scene(stage) as s:
        await s.mirrored()
        s.bad.big_blob(500_000)
        s.up.stage.upstream.drop_after_bytes = 100_000
        await s.told("NETWORK_TIMEOUT")
        stage.upstream.heal()
        assert (await s.up.sync(NAME))["status"] == "success"
        assert s.up.refs(NAME) == s.bad.public_refs()


# Lies


async def test_a_ref_whose_object_nobody_has_is_not_success(stage):
    async with scene(stage) as s:
        await s.mirrored()
        twist(stage.upstream, polls_see(NOWHERE.encode() + b" refs/heads/main"))
        await s.told("UNKNOWN", "upstream changed while it was fetched")
        assert await s.status() == "failing"


IMPOSSIBLE = (
    b"%b refs/heads/../../../../x",
    b"%b refs/heads/a/../b",
    b"%b refs/heads/x.lock",
    b"%b refs/heads/.hidden",
    b"%b refs/heads/a\x1b[2J",
    b"%b refs/heads/@{-1}",
    b"%b refs/heads/-x\0y",
    b"%b ../../HEAD",
    b"g" * 40 + b" refs/heads/main",
    b"0" * 40 + b" refs/heads/main",
    b"12345 refs/heads/main",
    b"%b HEAD symref-target:refs/heads/../../config",
)


async def test_names_and_ids_that_no_git_has_are_believed_in_nothing(stage):
    async with scene(stage) as s:
        await s.mirrored()
        files = {p for p in (stage.data / "mirrors").rglob("*") if ".locks" not in p.parts}
        tip = s.bad.tip().encode()
        for line in IMPOSSIBLE:
            twist(stage.upstream, polls_see(tip + b" refs/heads/new", line.replace(b"%b", tip)))
            await s.told("UNKNOWN")
            record = await s.up.repo(NAME)
            assert "\x1b" not in record.last_failure.message, line
        assert {p for p in (stage.data / "mirrors").rglob("*") if ".locks" not in p.parts} == files


async def test_our_own_namespace_cannot_be_written_from_outside(stage):
    async with scene(stage) as s:
        await s.mirrored()
        tip = s.bad.tip()
        twist(
            stage.upstream,
            polls_see(
                f"{tip} refs/heads/main".encode(),
                f"{tip} refs/evermirror/staging/{NOWHERE}".encode(),
                f"{tip} refs/replace/{tip}".encode(),
            ),
        )
        assert (await s.up.sync(NAME))["status"] == "skipped"
        s.untouched()


_BY = b"author A <a@b.c> 1700000000 +0000\ncommitter A <a@b.c> 1700000000 +0000\n\nhello\n"


@pytest.mark.parametrize("first", [True, False], ids=["first clone", "fetch"])
async def test_a_pack_without_all_that_its_refs_need_is_refused(stage, first):
    async with scene(stage) as s:
        if not first:
            await s.mirrored()
        commit = b"tree " + NOWHERE.encode() + b"\n" + _BY
        tip = as_object(b"commit", commit)
        twist(stage.upstream, sends_pack(tip, pack_of((COMMIT, commit))))
        await s.told("UNKNOWN", "upstream sends less than its refs need" if first else "")
        assert not list((stage.data / "mirrors" / ".trash").iterdir())  # no mirror was taken for damaged


@pytest.mark.parametrize("first", [True, False], ids=["first clone", "fetch"])
async def test_a_malformed_object_is_refused_and_called_so(stage, first):
    async with scene(stage) as s:
        if not first:
            await s.mirrored()
        blob = b"evil"
        tree = b"100644 .git\0" + bytes.fromhex(as_object(b"blob", blob))
        commit = b"tree " + as_object(b"tree", tree).encode() + b"\n" + _BY
        tip = as_object(b"commit", commit)
        pack = pack_of((COMMIT, commit), (TREE, tree), (BLOB, blob))
        twist(stage.upstream, sends_pack(tip, pack))
        await s.told("UNKNOWN", "malformed object")


@pytest.mark.parametrize("first", [True, False], ids=["first clone", "fetch"])
async def test_a_server_that_turns_dumb_for_git_alone_does_not_get_around_the_checks(stage, first):
    """git checks objects as they come (fsckObjects) in the smart protocol only."""
    async with scene(stage) as s:
        if not first:
            await s.mirrored()
        blob = s.bad.git("hash-object", "-w", "--stdin", stdin="evil")
        content = b"100644 .git\0" + bytes.fromhex(blob)
        tree = s.bad.git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=content)
        evil = s.bad.git("commit-tree", tree, "-m", "evil")
        s.bad.git("update-ref", "refs/heads/main", evil)
        s.bad.git("update-server-info")
        dumb = Behaviour(stage.upstream.root, True, True, {})
        twist(
            stage.upstream,
            lambda request, body: None if is_poll(request, body) else run_backend(dumb, request, body),
        )
        await s.told("UNKNOWN", "dumb http")
        await s.told("UNKNOWN", "dumb http")  # nothing of the first attempt is taken for granted
        twist(stage.upstream, lambda request, body: None)
        await s.told("UNKNOWN", "malformed object")


async def test_a_pack_that_unfolds_to_much_more_costs_the_disk_little(stage):
    async with scene(stage) as s:
        blob = bytes(60_000_000)
        tree = b"100644 zeros\0" + bytes.fromhex(as_object(b"blob", blob))
        commit = b"tree " + as_object(b"tree", tree).encode() + b"\n" + _BY
        tip = as_object(b"commit", commit)
        twist(stage.upstream, sends_pack(tip, pack_of((COMMIT, commit), (TREE, tree), (BLOB, blob))))
        started = time.monotonic()
        await s.up.add(s.bad.url)
        assert (await s.up.sync(NAME))["status"] in ("success", "skipped")
        assert time.monotonic() - started < SOON_S
        assert s.up.refs(NAME) == {"refs/heads/main": tip}
        assert (await s.up.repo(NAME)).size_bytes < 1_000_000


@pytest.mark.parametrize("first", [True, False], ids=["first clone", "fetch"])
async def test_a_repo_beyond_its_size_is_stopped(stage, first):
    async with scene(stage, upstreams={"max_repo_size": "500kB"}) as s:
        if not first:
            await s.mirrored()
        s.bad.big_blob(3_000_000)
        await s.told("UNKNOWN", "max_repo_size")
        assert list((stage.data / "mirrors" / ".incoming").iterdir()) == []


async def test_an_upstream_cannot_talk_us_into_a_full_disk(stage):
    """git quotes what it does not understand; those are upstream's words, not the disk's."""
    words = b"x: No space left on device"

    def say(request: Request, body: bytes) -> Reply | None:
        if is_poll(request, body):
            return None
        lines = (b"version 2", b"fetch", b"ls-refs", b"object-format=" + words)
        return git_says(encode(b"# service=git-upload-pack\n") + b"0000" + ref_list(*lines), ADVERTISEMENT)

    async with scene(stage) as s:
        await s.mirrored()
        s.bad.commit()
        twist(stage.upstream, say)
        await s.told("UNKNOWN")


async def test_what_upstream_says_of_itself_reaches_people_without_its_escape_codes(stage):
    async with scene(stage) as s:
        await s.mirrored()
        words = encode(b"ERR \x1b]0;owned\x07 no\r\nsuch \xff\xfe repository \xe2\x80\xae")
        twist(stage.upstream, lambda request, body: git_says(words))
        await s.told("NOT_FOUND", "such")
        for path in ("", "/-/tasks"):
            text = (await s.up.client.get(f"/api/repos/{s.up.key(NAME)}{path}")).text
            assert not set("\x1b\x07\r\u202e") & set(text)
            assert "\\u001b" not in text


# The host as a whole


async def test_a_rate_limit_met_by_git_makes_the_host_wait_and_counts_against_nobody(stage, tmp_path):
    with UpstreamServer(tmp_path / "other") as other:
        elsewhere = other.create("calm/y")
        async with stage.up(
            schedule={"min_gap": "1h"}, upstreams={"allow": [stage.upstream.host, other.host]}
        ) as up:
            bad = stage.upstream.create(NAME)
            await up.add(bad.url)
            await up.until_status(NAME, "active")
            before = up.refs(NAME)
            bad.commit()
            twist(
                stage.upstream,
                lambda request, body: (
                    None
                    if is_poll(request, body)
                    else Reply(429, [("Retry-After", "600")], iter([b"slow down"]))
                ),
            )
            task = await up.sync(NAME)
            assert task["result"]["error_type"] == "RATE_LIMITED"
            assert up.refs(NAME) == before
            record = await up.repo(NAME)
            assert (record.status.value, record.consecutive_failures) == ("active", 0)
            hosts = (up.node.worker.status()).hosts
            assert [(h.host, h.state) for h in hosts] == [(stage.upstream.host, "waiting")]
            assert await task_at(up, elsewhere.url) in ("success", "skipped")


async def test_a_host_that_fails_for_all_is_weather_and_counts_against_none_of_its_repos(stage, tmp_path):
    with UpstreamServer(tmp_path / "other") as other:
        elsewhere = other.create("calm/y")
        seed = stage.upstream.create("team/r0", commits=1)
        names = ["team/r0"] + [stage.upstream.copy(seed, f"team/r{n}").name for n in range(1, 4)]
        async with stage.up(
            schedule={"min_gap": "1h"}, upstreams={"allow": [stage.upstream.host, other.host]}
        ) as up:
            await up.add(elsewhere.url)
            for name in names:
                await up.add(stage.upstream.url(f"{name}.git"))
            for name in names:
                await up.until_status(name, "active")
            before = {name: up.refs(name) for name in names}
            assert await task_at(up, elsewhere.url) in ("success", "skipped")
            stage.upstream.fail_with(503, body=b"down for maintenance")
            for name in names[:3]:
                task = await up.sync(name)
                assert task["result"]["error_type"] == "NETWORK_TIMEOUT", task

            async def uncounted() -> bool:
                return all([(await up.repo(name)).consecutive_failures == 0 for name in names])

            await up.until(uncounted)
            assert {name: up.refs(name) for name in names} == before
            assert [h.state for h in up.node.worker.status().hosts] == ["stormy"]
            elsewhere.commit()
            assert await task_at(up, elsewhere.url) == "success"


async def task_at(up: Running, url: str) -> object:
    body = {"git_url": url, "additional_params": {"wait": SOON_S}}
    return (await up.client.post("/api/tasks", json=body)).json()["status"]
