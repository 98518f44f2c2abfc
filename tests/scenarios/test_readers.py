"""Clones that run while their mirror is updated, rewritten, repacked, replaced or removed all end well."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import threading
import time
from pathlib import Path

import pytest

from evermirror.edge.git import folder
from evermirror.edge.store.store import Store
from evermirror.model.access import Role
from tests.support.gitrepo import clean_git_env, run_git
from tests.support.node import NodeThread
from tests.support.upstream import UpstreamServer

READERS = 4
ROUND_S = 8.0


class Readers:
    """Clients that clone again and again, slowly enough to be overtaken, and check what they got."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(READERS)]
        self.clones = 0
        self.missing = 0
        self.failures: list[str] = []

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, n: int) -> None:
        turn = 0
        while not self._stop.is_set():
            turn += 1
            target = self._folder / f"{n}-{turn}.git"
            depth = ["--depth=2"] if turn % 3 == 0 else []
            version = f"protocol.version={0 if turn % 2 else 2}"
            done = subprocess.run(
                ["git", "-c", version, "clone", "-q", "--bare", *depth, self._url, str(target)],
                env=clean_git_env(self._folder), capture_output=True, text=True, check=False, timeout=60,
            )  # fmt: skip
            if done.returncode == 0:
                checked = subprocess.run(
                    ["git", "fsck", "--connectivity-only"],
                    cwd=target,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if checked.returncode:
                    self.failures.append(checked.stderr)
                self.clones += 1
            elif "not found" in done.stderr:
                self.missing += 1
                time.sleep(0.05)
            else:
                self.failures.append(done.stderr)
            subprocess.run(["rm", "-rf", str(target)], check=True)


@pytest.fixture
def node(tmp_path, upstream: UpstreamServer):
    with NodeThread(tmp_path, upstream.host, schedule__min_gap="100ms") as node:
        yield node


def sync(node: NodeThread, url: str) -> None:
    answer = node.client.post("/api/tasks", json={"git_url": url, "additional_params": {"wait": 20}})
    assert answer.status_code < 300, answer.text


def test_nobody_who_clones_is_disturbed_by_what_happens_to_the_mirror(node, upstream, tmp_path):
    repo = upstream.create("busy", commits=30)
    repo.big_blob(4_000_000)
    key = f"{upstream.host}/busy"
    node.add(repo.url)
    node.until_active(key)
    mirror = next((node.data / "mirrors").rglob("busy.git"))
    clones = tmp_path / "clones"
    clones.mkdir()
    env = clean_git_env(tmp_path)
    with Readers(f"{node.url}/git/{key}", clones) as readers:
        end = time.monotonic() + 2 * ROUND_S
        turn = 0
        while time.monotonic() < end:
            turn += 1
            match turn % 4:
                case 0:
                    repo.force_push()
                case 1:
                    repo.commit()
                case 2:
                    repo.branch(f"b/{turn}")
                case 3:
                    run_git(mirror, "repack", "-adlq", "--keep-unreachable")
                    run_git(mirror, "pack-refs", "--all")
            sync(node, repo.url)
        # As after corruption: a fresh clone takes its place, the old one goes to the trash.
        for n in range(3):
            before = readers.clones
            fresh = tmp_path / "data" / "mirrors" / ".incoming" / f"fresh{n}"
            subprocess.run(["git", "clone", "-q", "--mirror", repo.url, str(fresh)], env=env, check=True)
            folder.exchange(fresh, mirror)
            fresh.rename(tmp_path / "data" / "mirrors" / ".trash" / f"{int(time.time())}-{n}")
            node.until(lambda before=before: readers.clones > before + READERS)
        # Removed while they read
        answer = node.client.delete(f"/api/git_urls/{key}")
        assert answer.status_code == 200, answer.text
        node.until(lambda: readers.missing > READERS)
    assert readers.failures == []
    assert readers.clones > 3 * READERS


def test_a_clone_goes_on_through_the_exchange_and_the_removal_of_its_mirror(node, upstream, tmp_path):
    """The slowest of clients: it has read its first bytes when its mirror goes."""
    repo = upstream.create("slow", commits=3)
    repo.big_blob(12_000_000)
    key = f"{upstream.host}/slow"
    node.add(repo.url)
    node.until_active(key)
    body = f"0032want {repo.tip()}\n00000009done\n".encode()
    kind = {"content-type": "application/x-git-upload-pack-request"}
    sizes = []
    for change in ("exchange", "remove"):
        with node.client.stream("POST", f"/git/{key}/git-upload-pack", content=body, headers=kind) as answer:
            pieces = answer.iter_bytes(65_536)
            size = len(next(pieces))
            if change == "exchange":
                mirror = next((node.data / "mirrors").rglob("slow.git"))
                aside = mirror.with_name("aside")
                subprocess.run(["cp", "-a", str(mirror), str(aside)], check=True)
                mirror.rename(mirror.with_name("old"))
                aside.rename(mirror)
            else:
                assert node.client.delete(f"/api/git_urls/{key}").status_code == 200
                node.until(lambda mirror=mirror: not mirror.exists())
            sizes.append(size + sum(len(piece) for piece in pieces))
    assert sizes[0] == sizes[1] > 12_000_000


def test_a_client_that_takes_too_many_is_told_to_come_back_and_others_are_not(tmp_path, upstream):
    repo = upstream.create("wide", commits=1)
    repo.big_blob(30_000_000)
    key = f"{upstream.host}/wide"
    limits = {"serve__per_client": 2, "serve__queue_wait": "300ms"}
    kind = {"content-type": "application/x-git-upload-pack-request"}
    body = f"0032want {repo.tip()}\n00000009done\n".encode()
    with NodeThread(tmp_path, upstream.host, **limits) as node, contextlib.ExitStack() as stack:
        node.add(repo.url)
        node.until_active(key)
        for _ in range(2):  # they take their first bytes, and no more
            stack.enter_context(
                node.client.stream("POST", f"/git/{key}/git-upload-pack", content=body, headers=kind)
            )
        refused = node.client.post(f"/git/{key}/git-upload-pack", content=body, headers=kind)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert node.client.get(f"/git/{key}/info/refs?service=git-upload-pack").status_code == 200
        stack.close()
        answers = [refused.status_code]

        def let_in():
            answer = node.client.post(f"/git/{key}/git-upload-pack", content=body, headers=kind)
            answers.append(answer.status_code)
            return answers[-1] == 200

        node.until(let_in)
        text = node.client.get("/metrics").text
        assert 'evermirror_git_requests_total{cached="yes",service="pack"}' in text
        assert f"evermirror_git_refused_total {answers.count(503)}.0" in text


async def make_tokens(data: Path) -> dict[Role, str]:
    data.mkdir(exist_ok=True)
    store = await Store.open(f"sqlite:///{data}/evermirror.db")
    try:
        return {
            role: (await store.create_token(role.value, role))[0] for role in (Role.READER, Role.OPERATOR)
        }
    finally:
        await store.close()


def test_a_repo_that_turns_private_is_gone_for_the_public_at_once_cached_or_not(tmp_path, upstream):
    repo = upstream.create("turn", commits=3)
    key = f"{upstream.host}/turn"
    tokens = asyncio.run(make_tokens(tmp_path / "data"))
    body = f"0032want {repo.tip()}\n00000009done\n".encode()
    kind = {"content-type": "application/x-git-upload-pack-request"}
    refs = f"/git/{key}/info/refs?service=git-upload-pack"
    with NodeThread(tmp_path, upstream.host, auth__tokens_required=True) as node:

        def as_role(role: Role) -> dict[str, str]:
            return {"authorization": f"Bearer {tokens[role]}"}

        def change(**info: object) -> None:
            sent = {"git_url": repo.url, "additional_info": info}
            answer = node.client.post("/api/git_urls", json=sent, headers=as_role(Role.OPERATOR))
            assert answer.status_code == 200, answer.text

        def answers(headers: dict[str, str]) -> list[int]:
            asked = [
                node.client.get(f"/git/{key}", headers=headers),
                node.client.head(f"/git/{key}.git", headers=headers),
                node.client.head(refs, headers=headers),
                node.client.get(refs, headers=headers),
                node.client.get(refs, headers={**headers, "git-protocol": "version=2"}),
                node.client.post(f"/git/{key}/git-upload-pack", content=body, headers={**headers, **kind}),
            ]
            return [answer.status_code for answer in asked]

        change()
        node.until_active(key)
        time.sleep(0.3)  # so that its answers can be kept
        assert answers({}) == answers({}) == [200] * 6
        change(private=True)
        assert answers({}) == [401] * 6
        assert answers(as_role(Role.READER)) == [200] * 6
        assert answers({}) == [401] * 6
