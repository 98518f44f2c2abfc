"""A forge that sends hooks at a steady rate over kept-alive connections, in a process of its own.

All that costs is done before the first is sent (bodies, signatures): the forge shares two cores with what is
measured. Started by ``send_steadily``, which gives it the work on standard input.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import socket
import subprocess
import sys
import time
import uuid
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.sent_hooks import HOOKS_PATH

CONNECTIONS = 100  # a forge waits for nobody
PATIENCE_S = 30.0  # for the last answers
ROOT = Path(__file__).parents[2]

_OF_A_USER = ("followers", "following", "gists", "starred", "subscriptions", "organizations", "repos")
_OF_A_REPO = (
    *("forks", "keys", "collaborators", "teams", "hooks", "issue_events", "events", "assignees", "branches"),
    *("tags", "blobs", "git_tags", "git_refs", "trees", "statuses", "languages", "stargazers", "commits"),
    *("contributors", "subscribers", "subscription", "git_commits", "comments", "issue_comment", "contents"),
    *("compare", "merges", "archive", "downloads", "issues", "pulls", "milestones", "notifications"),
    *("labels", "releases", "deployments"),
)
_OF_A_COMMIT = ("id", "tree_id", "message", "timestamp", "url", "author", "committer", "added", "modified")


@dataclass(frozen=True, slots=True)
class Sent:
    """What was answered, and how long it took."""

    statuses: dict[int, int]
    hook_ms: list[float]
    took_s: float
    cpu_s: float  # of the sender


@dataclass(frozen=True, slots=True)
class Made:
    """A hook but for its number, which is not signed."""

    head: bytes
    body: bytes

    def numbered(self, number: str) -> bytes:
        return b"%sX-GitHub-Delivery: %s\r\n\r\n%s" % (self.head, number.encode(), self.body)


def made(url: str, secret: str) -> Made:
    body = json.dumps(_push(url)).encode()
    lines = [
        f"POST {HOOKS_PATH} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Content-Length: {len(body)}",
        "Content-Type: application/json",
        "X-GitHub-Event: push",
        f"X-Hub-Signature-256: sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}",
        "",
    ]
    return Made("\r\n".join(lines).encode(), body)


def _push(url: str) -> dict[str, object]:
    """As large as GitHub's of one commit, 8 kB, and of the same shape."""
    page = url.removesuffix(".git")
    user: dict[str, Any] = {
        f"{name}_url": f"https://api.github.example/users/someone/{name}" for name in _OF_A_USER
    }
    commit = {name: f"{page}/{name}/6113728f27ae82c7b1a177c8d03f9e96e0adf246" for name in _OF_A_COMMIT}
    repository = {
        f"{name}_url": f"https://api.github.example/repos/{page[7:]}/{name}{{/which}}" for name in _OF_A_REPO
    }
    repository |= {"clone_url": url, "html_url": page, "ssh_url": f"ssh://git@{url[7:]}"}
    return {
        "ref": "refs/heads/main",
        "before": "0" * 40,
        "after": "6113728f27ae82c7b1a177c8d03f9e96e0adf246",
        "repository": {**repository, "owner": user, "private": False, "size": 1, "topics": [], "forks": 1},
        "pusher": {"name": "someone", "email": "someone@users.example"},
        "sender": {**user, "id": 21031067, "type": "User", "site_admin": False},
        "created": False,
        "deleted": False,
        "forced": False,
        "commits": [commit],
        "head_commit": commit,
    }


def send_one(port: int, request: bytes) -> int:
    """The status that it was answered with."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as line:
        line.sendall(request)
        return int(line.recv(65536).split(b" ", 2)[1])


def send_steadily(port: int, urls: Sequence[str], secret: str, rate: float) -> Sent:
    """One about each of ``urls``, each at its time, however late others are."""
    work = {"port": port, "urls": list(urls), "secret": secret, "rate": rate}
    done = subprocess.run(
        [sys.executable, "-m", "bench.worlds.hook_sender"],
        input=json.dumps(work),
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        check=True,
        timeout=len(urls) / rate * 4 + 2 * PATIENCE_S,
    )
    told = json.loads(done.stdout)
    told["statuses"] = {int(status): count for status, count in told["statuses"].items()}
    return Sent(**told)


class _Forge:
    """Connections that are free, and what came of the others."""

    def __init__(self) -> None:
        self.free: deque[_Line] = deque()
        self.statuses: Counter[int] = Counter()
        self.took_ms: list[float] = []

    async def send(self, port: int, requests: Sequence[Made], rate: float) -> float:
        """Returns how long it took."""
        loop, number = asyncio.get_running_loop(), uuid.uuid4()
        for _ in range(CONNECTIONS):
            await loop.create_connection(lambda: _Line(self), "127.0.0.1", port)
        began = time.monotonic()
        for n, request in enumerate(requests):
            await asyncio.sleep(max(0.0, began + n / rate - time.monotonic()))
            while not self.free:  # all wait for their answers: hooks are late, and that shows
                await asyncio.sleep(0.001)
            self.free.popleft().ask(request.numbered(f"{number}-{n}"))
        give_up = time.monotonic() + PATIENCE_S
        while len(self.took_ms) < len(requests) and time.monotonic() < give_up:
            await asyncio.sleep(0.005)
        return time.monotonic() - began


class _Line(asyncio.Protocol):
    """One connection, one hook at a time."""

    _transport: asyncio.Transport

    def __init__(self, forge: _Forge) -> None:
        self._forge = forge
        self._came = b""
        self._asked_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._forge.free.append(self)

    def ask(self, request: bytes) -> None:
        self._asked_at = time.monotonic()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._came += data
        head, found, body = self._came.partition(b"\r\n\r\n")
        if not found:
            return
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if len(body) >= int(length):
            self._forge.took_ms.append((time.monotonic() - self._asked_at) * 1000)
            self._forge.statuses[int(head[9:12])] += 1
            self._came = b""
            self._forge.free.append(self)


def _main() -> None:
    work = json.load(sys.stdin)
    by_url = {url: made(url, work["secret"]) for url in set(work["urls"])}
    requests = [by_url[url] for url in work["urls"]]
    forge, before = _Forge(), time.process_time()
    took_s = asyncio.run(forge.send(work["port"], requests, work["rate"]))
    cpu_s = time.process_time() - before
    told = {"statuses": forge.statuses, "hook_ms": forge.took_ms, "took_s": took_s, "cpu_s": cpu_s}
    print(json.dumps(told))


if __name__ == "__main__":
    _main()
