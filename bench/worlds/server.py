"""A git server in a process of its own: real answers of ``git http-backend``, remembered until refs move.

Remembering keeps the server from being what is measured: the bytes are git's own, and what a client spends is
its own CPU alone. Where its burden is what is measured, git is asked each time (``remembers=False``). Started
by ``GitServer``; ends when its standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import ssl
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlsplit

import trustme

from tests.support.gitrepo import UpstreamRepo, clean_git_env

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60  # of one http-backend
MANIFEST = "/manifest.js.gz"


@dataclass(frozen=True, slots=True)
class Served:
    """What clients cost a server. CPU is of the gits that it started, without the Python that starts them."""

    requests: float = 0
    sent_bytes: float = 0  # before TLS
    git_cpu_s: float = 0.0

    def __add__(self, other: Served) -> Served:
        return Served(
            self.requests + other.requests,
            self.sent_bytes + other.sent_bytes,
            self.git_cpu_s + other.git_cpu_s,
        )

    def __mul__(self, times: float) -> Served:
        return Served(self.requests * times, self.sent_bytes * times, self.git_cpu_s * times)

    def __sub__(self, other: Served) -> Served:
        return self + other * -1


class GitServer:
    """``with GitServer(folder) as server``: serves the bare repositories below ``folder`` on 127.0.0.1.

    A repository that is not there is answered as ``stand_in``, where one is named: thousands of equal
    upstreams for the price of one."""

    def __init__(self, folder: Path, *, tls: bool = True, stand_in: str = "", remembers: bool = True) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "bench.worlds.server", str(folder), "--stand-in", stand_in]
        command += ["--tls"] if tls else []
        command += [] if remembers else ["--forgetful"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        told = json.loads(self._process.stdout.readline())
        self.port: int = told["port"]
        self.ca_file: Path | None = Path(told["ca_file"]) if tls else None

    def __enter__(self) -> GitServer:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def url(self, name: str) -> str:
        return f"{'https' if self.ca_file else 'http'}://127.0.0.1:{self.port}/{name}.git"

    def requests(self) -> int:
        """How many requests for repositories there were so far."""
        return int(self.served().requests)

    def served(self) -> Served:
        """Since it was started."""
        context = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else None
        address = f"{'https' if self.ca_file else 'http'}://127.0.0.1:{self.port}/-/served"
        with urllib.request.urlopen(address, context=context, timeout=TIMEOUT_S) as answer:
            return Served(**json.load(answer))

    def create(self, name: str, commits: int = 3) -> UpstreamRepo:
        repo = UpstreamRepo.init(self.folder / f"{name}.git", name, self.url(name))
        if commits:
            repo.bulk_commits(commits)
        return repo

    def git_env(self, home: Path) -> dict[str, str]:
        """What a client's git needs, with the same bundle of certificates that ours gets."""
        trust = {"GIT_SSL_CAINFO": str(self.ca_file)} if self.ca_file else {}
        return {**clean_git_env(home), **trust}


class _Front:
    """Answers kept-alive HTTP/1.1 requests; what depends on refs alone is remembered until they move."""

    def __init__(self, folder: Path, stand_in: str, remembers: bool) -> None:
        self._folder = folder
        self._stand_in = stand_in
        self._remembers = remembers
        self._requests = 0
        self._sent_bytes = 0
        self._known: dict[tuple[object, ...], bytes] = {}

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (h.partition(":") for h in head[1:] if h)}
                body = await _read_body(reader, headers)
                method, target, _ = head[0].split(" ")
                if target == "/-/served":
                    writer.write(self._served())
                elif target == MANIFEST:
                    writer.write(self._manifest())
                else:
                    self._requests += 1
                    answer = await self._answer(method, self._present(target), headers, body)
                    self._sent_bytes += len(answer)
                    writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            return  # the client is done
        finally:
            writer.close()

    def _served(self) -> bytes:
        gits = resource.getrusage(resource.RUSAGE_CHILDREN)
        told = {
            "requests": self._requests,
            "sent_bytes": self._sent_bytes,
            "git_cpu_s": gits.ru_utime + gits.ru_stime,
        }
        text = json.dumps(told).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)

    def _manifest(self) -> bytes:
        """A plain file: grokmirror's list of what there is."""
        file = Path(f"{self._folder}{MANIFEST}")
        content, at = file.read_bytes(), formatdate(file.stat().st_mtime, usegmt=True).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nLast-Modified: %s\r\n\r\n"
        return head % (len(content), at) + content

    async def _answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> bytes:
        of_refs = method == "GET" or b"command=ls-refs" in body
        if not of_refs or not self._remembers:
            return await self._ask_git(method, target, headers, body)
        key = (method, target, headers.get("git-protocol"), body, self._stamp(target))
        answer = self._known.get(key)
        if answer is None:
            answer = self._known[key] = await self._ask_git(method, target, headers, body)
        return answer

    def _present(self, target: str) -> str:
        name, dot_git, rest = target.partition(".git/")
        if self._stand_in and dot_git and not os.path.exists(f"{self._folder}{name}.git"):
            return f"/{self._stand_in}.git/{rest}"
        return target

    def _stamp(self, target: str) -> tuple[int, ...]:
        """Changes when a ref of the repository does (branches are loose files of one level, or packed)."""
        repo = self._folder / urlsplit(target).path.partition(".git/")[0].lstrip("/")
        folder = f"{repo}.git"
        stamps = []
        for name in ("HEAD", "packed-refs", "refs/heads", "refs/tags", "refs/heads/main"):
            try:
                stamps.append(os.stat(f"{folder}/{name}").st_mtime_ns)
            except OSError:
                stamps.append(0)
        return tuple(stamps)

    async def _ask_git(self, method: str, target: str, headers: dict[str, str], body: bytes) -> bytes:
        split = urlsplit(target)
        env = {
            **clean_git_env(self._folder),
            "GIT_PROJECT_ROOT": str(self._folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": method,
            "PATH_INFO": split.path,
            "QUERY_STRING": split.query,
            "CONTENT_TYPE": headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
            "GIT_PROTOCOL": headers.get("git-protocol", ""),
        }
        child = await asyncio.create_subprocess_exec(
            "git", "http-backend", env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(child.communicate(body), TIMEOUT_S)
        fields, _, content = out.partition(b"\r\n\r\n")
        lines = [line for line in fields.split(b"\r\n") if not line.lower().startswith(b"status:")]
        status = next(
            (x[7:].strip() for x in fields.split(b"\r\n") if x.lower().startswith(b"status:")), b"200 OK"
        )
        lines = [b"HTTP/1.1 " + status, *lines, b"Content-Length: %d" % len(content)]
        return b"\r\n".join(lines) + b"\r\n\r\n" + content


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", ""):
        return await reader.readexactly(int(headers.get("content-length", "0")))
    parts = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(parts)


def _tls(folder: Path) -> tuple[ssl.SSLContext, Path]:
    ca = trustme.CA()
    ca_file = folder.with_name(folder.name + ".ca.pem")
    ca.cert_pem.write_to_path(str(ca_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    return context, ca_file


async def _serve(folder: Path, tls: bool, stand_in: str, remembers: bool) -> None:
    context, ca_file = _tls(folder) if tls else (None, None)
    front = _Front(folder, stand_in, remembers)
    server = await asyncio.start_server(front.talk, "127.0.0.1", 0, ssl=context, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"port": port, "ca_file": str(ca_file)}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)  # connections that are kept alive need no farewell


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--stand-in", default="")
    parser.add_argument("--forgetful", action="store_true")
    given = parser.parse_args()
    asyncio.run(_serve(given.folder, given.tls, given.stand_in, not given.forgetful))
