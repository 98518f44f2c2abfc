"""Mirrors served over HTTP to a real git."""

from __future__ import annotations

import asyncio
import gzip
import os
import subprocess
from dataclasses import replace

import pytest

from evermirror.faces.api.git_service import GitBusy, NotHereYet, ServedRepo
from evermirror.model.access import Role
from evermirror.model.failure import Failure, FailureError, FailureKind
from tests.faces.api.server import serving

KEY = "example.org/o/r"
ENV = {
    **{k: v for k, v in os.environ.items() if not k.startswith("GIT_") and "proxy" not in k.lower()},
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C",
    "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.org", "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.org",
}  # fmt: skip


def git(*args, cwd):
    return subprocess.run(["git", *args], cwd=cwd, env=ENV, capture_output=True, text=True)


class RealGit:
    """Serves one repository with git's own upload-pack."""

    def __init__(self, path):
        self.repo = ServedRepo(KEY, path, private=False, verified_at=1_700_000_000.0)
        self.busy = False
        self.closed = asyncio.Event()

    async def open(self, key, *, begun=False, private=True):
        return self.repo if key == KEY else None

    async def advertise(self, repo, protocol, client=""):
        if self.busy:
            raise GitBusy(4.2)
        if "version=2" not in protocol:
            yield b"001e# service=git-upload-pack\n0000"
        async for chunk in self._run(repo, ["--advertise-refs"], None, protocol):
            yield chunk

    async def upload_pack(self, repo, body, protocol, client=""):
        data = b"".join([chunk async for chunk in body])
        async for chunk in self._run(repo, [], data, protocol):
            yield chunk

    async def _run(self, repo, args, data, protocol):
        process = await asyncio.create_subprocess_exec(
            "git", "upload-pack", "--stateless-rpc", *args, str(repo.path),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**ENV, "GIT_PROTOCOL": protocol},
        )  # fmt: skip
        out, _ = await process.communicate(data)
        yield out


class EndlessGit(RealGit):
    """Sends for as long as somebody reads."""

    async def upload_pack(self, repo, body, protocol, client=""):
        async for _ in body:
            pass
        try:
            while True:
                yield b"x" * 65_536
                await asyncio.sleep(0)
        finally:
            self.closed.set()


@pytest.fixture
def repo(tmp_path):
    work = tmp_path / "work"
    git("init", "-q", "-b", "main", str(work), cwd=tmp_path)
    (work / "a").write_text("one\n")
    git("add", "a", cwd=work)
    git("commit", "-qm", "one", cwd=work)
    for i in range(60):
        git("tag", f"tag-with-a-rather-long-name-{i}", cwd=work)
    git("clone", "-q", "--mirror", str(work), str(tmp_path / "m.git"), cwd=tmp_path)
    return tmp_path / "m.git"


@pytest.mark.parametrize("protocol", ["0", "2"])
@pytest.mark.parametrize("suffix", ["", ".git"])
async def test_a_real_git_clones_and_fetches(house, repo, tmp_path, protocol, suffix):
    house.git = RealGit(repo)
    async with serving(house.app()) as address:
        url = f"http://{address}/git/{KEY}{suffix}"
        option = ("-c", f"protocol.version={protocol}")
        done = await asyncio.to_thread(git, *option, "clone", "-q", url, str(tmp_path / "c"), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "c" / "a").read_text() == "one\n"
        done = await asyncio.to_thread(
            git, *option, "fetch", "-q", url, "+refs/tags/*:refs/x/*", cwd=tmp_path / "c"
        )
        assert done.returncode == 0, done.stderr
        pushed = await asyncio.to_thread(git, "push", url, "HEAD:refs/heads/evil", cwd=tmp_path / "c")
        assert pushed.returncode != 0
        assert "403" in pushed.stderr
        assert "read-only mirror" in pushed.stderr
        missing = await asyncio.to_thread(git, "ls-remote", f"http://{address}/git/no/such", cwd=tmp_path)
        assert "not found" in missing.stderr


@pytest.mark.parametrize(
    ("path", "corrupt", "status"),
    [("git-upload-pack", False, 400), ("git-upload-pack", True, 503), ("info/refs", False, 503)],
)
async def test_a_git_that_ends_without_an_answer_is_no_bug_of_ours(house, repo, path, corrupt, status):
    class FailingGit(RealGit):
        async def _run(self, repo, args, data, protocol):
            raise FailureError(Failure(FailureKind.UNKNOWN, "protocol error", corrupt=corrupt))
            yield b""

    house.git = FailingGit(repo)
    async with house.client() as client:
        if path == "info/refs":
            url = f"/git/{KEY}/info/refs?service=git-upload-pack"
            answer = await client.get(url, headers={"git-protocol": "version=2"})
        else:
            kind = {"content-type": "application/x-git-upload-pack-request"}
            answer = await client.post(f"/git/{KEY}/{path}", content=b"what?", headers=kind)
    assert answer.status_code == status


async def test_what_follows_the_end_of_a_zipped_body_is_not_kept(house, repo):
    house.git = RealGit(repo)
    request = gzip.compress(b"0014command=ls-refs\n00010000")
    headers = {
        "content-type": "application/x-git-upload-pack-request",
        "content-encoding": "gzip",
        "git-protocol": "version=2",
    }
    async with house.client() as client:
        plain = await client.post(f"/git/{KEY}/git-upload-pack", content=request, headers=headers)
        longer = await client.post(
            f"/git/{KEY}/git-upload-pack", content=request + b"x" * 200_000, headers=headers
        )
    assert plain.status_code == longer.status_code == 200
    assert longer.content == plain.content


async def test_a_client_that_takes_nothing_is_left_and_what_it_held_is_free(house, repo):
    house.git = EndlessGit(repo)
    house.settings = replace(house.settings, git_silence_s=0.3)
    async with serving(house.app()) as address:
        host, _, port = address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(
            f"POST /git/{KEY}/git-upload-pack HTTP/1.1\r\nHost: {address}\r\nContent-Length: 4\r\n"
            "Content-Type: application/x-git-upload-pack-request\r\n\r\n0000".encode()
        )
        assert b"200" in await reader.readline()
        async with asyncio.timeout(10):
            await house.git.closed.wait()
        writer.transport.abort()


async def test_a_client_that_leaves_ends_the_work(house, repo):
    house.git = EndlessGit(repo)
    async with serving(house.app()) as address:
        host, _, port = address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"POST /git/{KEY}/git-upload-pack HTTP/1.1\r\nHost: {address}\r\nContent-Length: 4\r\n"
            "Content-Type: application/x-git-upload-pack-request\r\n\r\n0000".encode()
        )
        assert b"200" in await reader.readline()
        writer.close()
        async with asyncio.timeout(10):
            await house.git.closed.wait()


async def test_answers_say_when_the_mirror_was_verified_and_are_not_cached(house, repo):
    house.git = RealGit(repo)
    async with house.client() as client:
        answer = await client.get(f"/git/{KEY}/info/refs?service=git-upload-pack")
        assert answer.headers["x-evermirror-verified-at"] == "2023-11-14T22:13:20Z"
        assert "no-cache" in answer.headers["cache-control"]
        assert answer.headers["content-type"] == "application/x-git-upload-pack-advertisement"


async def test_what_is_not_smart_reading_is_refused(house, repo):
    house.git = RealGit(repo)
    async with house.client() as client:
        get = client.get
        assert (await get(f"/git/{KEY}/info/refs")).status_code == 403
        assert (await get(f"/git/{KEY}/info/refs?service=git-receive-pack")).status_code == 403
        assert (await client.post(f"/git/{KEY}/git-receive-pack")).status_code == 403
        assert (await get(f"/git/{KEY}/HEAD")).status_code == 404
        assert (await get(f"/git/{KEY}/objects/info/packs")).status_code == 404
        assert (await get("/git/%2e%2e/%2e%2e/etc/passwd")).status_code == 404
        assert (await client.post(f"/git/{KEY}/git-upload-pack", content=b"0000")).status_code == 415


async def test_a_zip_bomb_and_a_broken_zip_are_refused(house, repo):
    house.git = RealGit(repo)
    bomb = gzip.compress(b"0" * 100_000_000)
    headers = {"content-type": "application/x-git-upload-pack-request", "content-encoding": "gzip"}
    async with house.client() as client:
        answer = await client.post(f"/git/{KEY}/git-upload-pack", content=bomb, headers=headers)
        assert answer.status_code == 413
        answer = await client.post(f"/git/{KEY}/git-upload-pack", content=b"nonsense", headers=headers)
        assert answer.status_code == 400


async def test_a_busy_server_says_when_to_come_back(house, repo):
    house.git = RealGit(repo)
    house.git.busy = True
    async with house.client() as client:
        answer = await client.get(f"/git/{KEY}/info/refs?service=git-upload-pack")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


HIDDEN = "example.org/o/private"
NOT_YET = "example.org/o/private-not-yet"
UNKNOWN = "example.org/o/unknown"


class ManyGits(RealGit):
    """A public mirror, a private one, and a private repo without a mirror."""

    async def open(self, key, *, begun=False, private=True):
        if key == HIDDEN and private:
            return replace(self.repo, key=key, private=True)
        if key == NOT_YET and private:
            raise NotHereYet("Its first clone is\nnot \x1b[31mfinished.", 4.2)
        return await super().open(key, begun=begun, private=private)


@pytest.fixture
def hiding(house, repo):
    house.with_tokens()
    house.private = True
    house.git = ManyGits(repo)
    return house


async def every_answer(client, key):
    """Of each way to ask for a repo: all that a client sees, apart from the date."""
    refs, pack = f"/git/{key}/info/refs", f"/git/{key}/git-upload-pack"
    kind = {"content-type": "application/x-git-upload-pack-request"}
    asked = [
        await client.get(f"{refs}?service=git-upload-pack"),
        await client.get(f"{refs}?service=git-upload-pack", headers={"git-protocol": "version=1"}),
        await client.get(f"{refs}?service=git-upload-pack", headers={"git-protocol": "version=2"}),
        await client.head(f"{refs}?service=git-upload-pack"),
        await client.get(f"{refs}?service=git-receive-pack"),
        await client.get(refs),
        await client.post(pack, content=b"0014command=ls-refs\n0000", headers=kind),
        await client.post(pack, content=b"0000"),
        await client.post(f"/git/{key}/git-receive-pack", content=b"0000"),
        await client.get(f"/git/{key}", headers={"accept": "text/html"}),
        await client.get(f"/git/{key}.git/HEAD"),
        await client.get(f"/git/{key}/objects/info/packs"),
    ]
    return [
        (a.status_code, sorted(a.headers.items()), a.content.replace(key.encode(), b"KEY")) for a in asked
    ]


async def test_without_a_token_a_private_repo_looks_like_an_unknown_one(hiding):
    async with hiding.client() as public:
        private, not_yet, unknown = [await every_answer(public, k) for k in (HIDDEN, NOT_YET, UNKNOWN)]
    assert private == not_yet == unknown
    assert [status for status, *_ in private] == [401, 401, 401, 401, 403, 403, 401, 415, 403, 401, 401, 401]
    for status, headers, _ in private:
        asked = dict(headers).get("www-authenticate", "")
        assert asked.startswith("Basic realm=") is (status == 401)
    text = private[0][2].decode()
    assert "not mirrored here, or it is private" in text
    assert "a token as the password" in text


@pytest.mark.parametrize("role", ["worker", "aggregator"])
async def test_a_token_that_may_not_read_does_not_learn_either(hiding, role):
    async with hiding.client(token=f"em_{role}") as node:
        private, not_yet, unknown = [await every_answer(node, k) for k in (HIDDEN, NOT_YET, UNKNOWN)]
    assert private == not_yet == unknown
    assert {status for status, *_ in private} == {403}
    assert "is for a worker or an aggregator" in private[0][2].decode(), "plain text, which git shows"


async def test_a_token_holder_is_told_what_is_there(hiding):
    refs = "info/refs?service=git-upload-pack"
    async with hiding.client(token="em_reader") as reader:
        assert (await reader.get(f"/git/{HIDDEN}/{refs}")).status_code == 200
        page = await reader.get(f"/git/{HIDDEN}")
        assert (page.status_code, "a password: a token" in page.text) == (200, True)
        not_yet = await reader.get(f"/git/{NOT_YET}/{refs}")
        assert (not_yet.status_code, not_yet.headers["retry-after"]) == (503, "5")
        assert "Its first clone is not" in not_yet.text
        assert "\x1b" not in not_yet.text
        unknown = await reader.get(f"/git/{UNKNOWN}/{refs}")
        assert (unknown.status_code, unknown.text) == (404, "This repository is not mirrored here.\n")


@pytest.mark.parametrize("roles", [[], [Role.WORKER, Role.AGGREGATOR], [Role.READER]])
@pytest.mark.parametrize("private", [False, True])
async def test_who_has_nothing_to_hide_says_at_once_that_a_repo_is_not_here(house, repo, roles, private):
    for role in roles:
        house.tokens.add(f"em_{role.value}", role)
    house.private = private
    house.git = ManyGits(repo)
    async with house.client(address="192.0.2.7") as public:
        answers = [
            await public.get(f"/git/{key}/info/refs?service=git-upload-pack") for key in (HIDDEN, UNKNOWN)
        ]
    status = 401 if private and Role.READER in roles else 404
    assert [a.status_code for a in answers] == [status, status]
    assert {"www-authenticate" in a.headers for a in answers} == {status == 401}


async def test_wrong_passwords_are_counted_and_told_in_words_that_git_shows(hiding):
    path = f"/git/{HIDDEN}/info/refs?service=git-upload-pack"
    async with hiding.client() as client:
        wrong = [await client.get(path, auth=("me", f"wrong-{n}")) for n in range(12)]
        plain = [await client.get(path) for n in range(12)]
    assert [a.status_code for a in wrong] == [401] * 10 + [429] * 2
    assert all(a.headers["content-type"].startswith("text/plain") for a in wrong)
    assert wrong[0].text.startswith("The token is not known here, or was revoked.\n")
    assert wrong[-1].text.startswith("Too many wrong tokens from this address.\n")
    assert [a.status_code for a in plain] == [401] * 12, "who shows no token guesses none"


def _credentials(how, address, folder):
    """Options, environment and address with which a git shows the reader's token."""
    host = address.partition(":")[0]
    match how:
        case "url":
            return (), {}, f"http://me:em_reader@{address}"
        case "helper":
            script = folder / "helper"
            script.write_text("#!/bin/sh\necho username=me\necho password=em_reader\n")
            script.chmod(0o700)
            return ("-c", f"credential.helper={script}"), {}, f"http://{address}"
        case "netrc":
            (folder / ".netrc").write_text(f"machine {host} login me password em_reader\n")
            return (), {"HOME": str(folder)}, f"http://{address}"
        case _:
            return ("-c", "http.extraHeader=Authorization: Bearer em_reader"), {}, f"http://{address}"


@pytest.mark.parametrize("protocol", ["0", "1", "2"])
@pytest.mark.parametrize("how", ["url", "helper", "netrc", "header"])
async def test_a_real_git_clones_a_private_mirror(hiding, tmp_path, how, protocol):
    async with serving(hiding.app()) as address:
        options, env, base = _credentials(how, address, tmp_path)

        def clone(key, to):
            argv = [
                "git",
                *options,
                "-c",
                f"protocol.version={protocol}",
                "clone",
                "-q",
                f"{base}/git/{key}",
                to,
            ]
            return subprocess.run(argv, cwd=tmp_path, env={**ENV, **env}, capture_output=True, text=True)

        done = await asyncio.to_thread(clone, HIDDEN, "c")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "c" / "a").read_text() == "one\n"
        missing = await asyncio.to_thread(clone, UNKNOWN, "m")
        assert "remote: This repository is not mirrored here." in missing.stderr
        assert "not found" in missing.stderr
        waits = await asyncio.to_thread(clone, NOT_YET, "w")
        assert "remote: Its first clone is not" in waits.stderr
        assert "503" in waits.stderr


async def test_a_git_without_a_good_token_is_told_what_to_do(hiding, tmp_path):
    async with serving(hiding.app()) as address:
        ask = f"http://{address}/git/{HIDDEN}"
        nobody = await asyncio.to_thread(git, "ls-remote", ask, cwd=tmp_path)
        assert "could not read Username" in nobody.stderr
        ask = f"http://me:wrong@{address}/git/{HIDDEN}"
        wrong = await asyncio.to_thread(git, "ls-remote", ask, cwd=tmp_path)
        assert "remote: The token is not known here, or was revoked." in wrong.stderr
        assert "a token as the password" in wrong.stderr
        assert "Authentication failed" in wrong.stderr


async def test_a_browser_is_told_how_to_clone(house, repo):
    house.git = RealGit(repo)
    async with house.client() as client:
        page = await client.get(f"/git/{KEY}", headers={"accept-language": "zh-CN,zh;q=0.9,en;q=0.5"})
        assert f"git clone http://127.0.0.1:8420/git/{KEY}" in page.text
        assert "只读镜像" in page.text
        assert "令牌" not in page.text


async def test_without_mirrors_every_clone_address_is_404(client):
    assert (await client.get(f"/git/{KEY}/info/refs?service=git-upload-pack")).status_code == 404
    assert (await client.get(f"/git/{KEY}")).status_code == 404
