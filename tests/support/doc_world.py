"""A world in which the commands of a page work: a running server, upstreams, two GitLabs, receivers.

The commands are the page's own; only addresses, tokens, dates and commit ids that are examples are replaced
by those of this world. What runs until it is stopped (`up`, `worker join`, `--watch` …) is stopped.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2

from tests.support.doc_blocks import Block
from tests.support.forges.gitlab import GitLabServer
from tests.support.gitrepo import UpstreamRepo
from tests.support.http_sink import Reply, http_sink
from tests.support.ports import free_port
from tests.support.upstream import UpstreamServer

WITHIN_S = 60.0
FOLLOWED_S = 3.0  # what goes on for ever, and has nothing to tell, is watched for so long
NAMES = ("git/git", "owner/name", "owner/other", "team/app", "new/one", "linux/kernel")
BROKEN = "linux/broken"  # upstream answers 500
LISTED = (*NAMES[:4], BROKEN)  # in the catalog
PROJECTS = ("devops/core", "devops/payment")
CREDENTIALS = ("source", "target", "mirror", "forge", "gitlab-hooks")
SECRET = "a-secret-of-this-world"
TOKEN = "glpat-of-this-world"
ANSWERS = b"y\n" * 3  # to whoever asks at the terminal
_MAKES_PROJECT = re.compile(r"pull add devops/core|api/pull/projects ")  # other blocks find it there
_NODE = re.compile(r"^evermirror (?:up|(?:coordinator|worker|aggregator)(?: join\b| --|$))")
_AGAIN = re.compile(r"^evermirror (?:worker|aggregator) --")  # on the machine that joined before
_JOIN = re.compile(r"(?P<role>worker|aggregator) join \S+ TOKEN\b")
_ENDLESS = re.compile(r"--watch|--follow|^curl -N")
_COMMIT = re.compile(r"\b[0-9a-f]{40}\b|<40 hex digits>")
_PROBLEM = re.compile(r'"type": ?"/problems/([a-z-]+)"')
_PROBLEMS = {"conflict": 1, "not-found": 5}  # as the command line ends with them


class World:
    """``begin`` a page, ``run`` its blocks in their order, ``end`` it."""

    def __init__(self, folder: Path, upstream: UpstreamServer, source: GitLabServer, target: GitLabServer):
        self.folder = folder
        self.upstream, self.source, self.target = upstream, source, target
        self.host = f"localhost:{upstream.port}"
        self.port, self.grpc_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx2.Client(base_url=self.url, trust_env=False, timeout=WITHIN_S)
        self.repos: dict[str, UpstreamRepo] = {}
        self.tips: dict[str, str] = {}
        self.kept_on = ""  # the day on which upstream rewrote what is kept
        self._at = folder
        self._nodes: list[subprocess.Popen[bytes]] = []  # the first is our own
        self._persons: list[int] = []  # their ends of terminals

    # The page's commands

    def begin(self, text: str) -> None:
        """Nothing is left of the page before that would be in the way of this one's ``text``."""
        tokens = json.loads(self._evermirror("token", "list", "--json")) if "token create" in text else ()
        for token in tokens:
            if token["revoked_at"] is None and token["name"] != "door":
                self._evermirror("token", "revoke", str(token["id"]))

    def run(self, block: Block) -> list[str]:
        """What went wrong, each with its place."""
        wrong: list[str] = []
        self.tidy(makes_project=_MAKES_PROJECT.search(block.text) is not None)
        self._at = self.folder
        for command in map(self.adapted, commands_of(block.text)):
            code, shown = self._command(command)
            told = f"{block.page}:{block.line}: {command}\nended with {code}:\n{shown}"
            if code not in block.may_end or "Traceback" in shown:
                wrong.append(told)
        return wrong

    def end(self) -> None:
        """The page's nodes stop, and do not come back: what its workers held is mirrored by ours again."""
        while len(self._nodes) > 1:
            _stop(self._nodes.pop())
        for worker in self.client.get("/api/fleet").json()["workers"]:
            if not worker["own"]:
                self.client.post(f"/api/fleet/workers/{worker['name']}/retire").raise_for_status()

    def close(self) -> None:
        self.client.close()
        for process in self._nodes:
            _stop(process)
        for person in self._persons:
            os.close(person)

    def tidy(self, *, makes_project: bool = False) -> None:
        """What blocks take for granted, whatever those before them removed, or made."""
        if makes_project:
            for address in ("/api/pull/projects", "/api/git_urls"):
                self.client.delete(f"{address}/{PROJECTS[0]}")
        else:
            source = f"{self.source.base_url}/{PROJECTS[0]}.git"
            self.client.post("/api/pull/projects", json={"project_key": PROJECTS[0], "source_url": source})
        for name in LISTED:
            info = {"enabled": True} | ({"alias": name} if name == "team/app" else {})
            body = {"git_url": f"https://{self.host}/{name}", "additional_info": info}
            answer = self.client.post("/api/git_urls", json=body)
            assert answer.status_code == 200, answer.text
        for clone in ("git", "app"):
            shutil.rmtree(self.folder / clone, ignore_errors=True)

    def adapted(self, text: str) -> str:
        """With this world's names in place of the page's."""
        source, target = self.source.base_url, self.target.base_url
        for old, new in (
            ("https://gitlab.corp.example.org", source),
            ("https://gitlab.example.org", source),
            ("gitlab.example.org/devops", source.removeprefix("https://") + "/devops"),
            ("https://mirror.example.org/devops/core.git", f"{target}/mirror/core.git"),
            ("https://gitlab.example.com", target),
            ("https://mirror.example.org/git/", f"{self.url}/git/"),
            ("http://front.example.org:8420", self.url),
            ("http://127.0.0.1:8420", self.url),
            ("mirror.example.org:8421", f"127.0.0.1:{self.grpc_port}"),
            ("git.example.org", self.host),
            ("github.com", self.host),
            ("/backups/", f"{self.folder}/backups/"),
            ("/etc/evermirror/", f"{self.folder}/etc/"),
            ("2026-11-15T20:30", self.kept_on),
            ("2026-11-15", self.kept_on),
        ):
            text = text.replace(old, new)
        if joins := _JOIN.search(text):
            role, name = joins["role"], f"{joins['role']}-{len(self._nodes)}"
            made = ["token", "create", "--role", role, "--name", name, "--trusted"]
            text = text.replace(" TOKEN", " " + self._evermirror(*made).strip())
        if "https://ann:TOKEN@" in text:
            token = self._evermirror("token", "create", "--role", "reader", "--name", "anns-clones").strip()
            text = text.replace(
                "https://ann:TOKEN@mirror.example.org", f"http://ann:{token}@127.0.0.1:{self.port}"
            )
        return _COMMIT.sub(self.tips["git/git" if "git/git" in text else "team/app"], text)

    def _evermirror(self, *args: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "evermirror", *args],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=True,
        )
        return done.stdout

    def _command(self, command: str) -> tuple[int, str]:
        """Its exit code, and what it showed."""
        if command.startswith("evermirror coordinator init"):
            self._at = self._machine()  # a coordinator of its own has a machine of its own
        if _NODE.match(command):
            return self._node(command)
        if _ENDLESS.search(command):
            return self._endless(command)
        process = self.start(command)
        try:
            shown = process.communicate(timeout=WITHIN_S)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return -1, "does not end: " + process.communicate()[0].decode(errors="replace")
        problem = _PROBLEM.search(shown) if command.startswith("curl") else None
        return (_PROBLEMS.get(problem[1], 2) if problem else process.returncode), shown

    def start(self, command: str, cwd: Path | None = None, **more: str) -> subprocess.Popen[bytes]:
        """As a person at a terminal does, who says yes to what is asked."""
        person, terminal = pty.openpty()
        self._persons.append(person)
        os.write(person, ANSWERS)
        try:
            return subprocess.Popen(
                ["sh", "-c", command],
                cwd=cwd or self._at,
                env={**self._environment, **more},
                stdin=terminal,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            os.close(terminal)

    @property
    def _environment(self) -> dict[str, str]:
        ours = ("EVERMIRROR", "GIT_", "XDG", "LC_")
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(ours)},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "GIT_SSL_CAINFO": str(self.folder / "ca.pem"),
        }

    def _endless(self, command: str) -> tuple[int, str]:
        """Until it has told something, or for a while; then Ctrl-C."""
        process, shown = self.start(command), list[bytes]()
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        reader = threading.Thread(target=lambda: shown.append(os.read(pipe, 65536)))
        reader.start()
        reader.join(FOLLOWED_S)
        ended = process.poll()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        reader.join()
        rest = process.communicate(timeout=WITHIN_S)[0]
        told = b"".join([*shown, rest]).decode(errors="replace")
        stopped = ended is None and process.returncode in (0, 130, -signal.SIGINT)
        return (0 if stopped else process.returncode or 1), told

    def _node(self, command: str) -> tuple[int, str]:
        """On a machine of its own, until it is ready; it is left running till the page's end."""
        port, grpc_port = free_port(), free_port()
        if _AGAIN.match(command):
            _stop(self._nodes.pop())
            place = max((self.folder / "machines").iterdir())
        else:
            place = self._machine() if self._at == self.folder else self._at
        command = re.sub(r"--listen \S+", f"--listen 127.0.0.1:{port}", command)
        command = re.sub(r"--grpc-listen \S+", f"--grpc-listen 127.0.0.1:{grpc_port}", command)
        process = self.start(
            f"exec {command.partition(' #')[0]} > log 2>&1",
            place,
            EVERMIRROR_SERVER__LISTEN=f"127.0.0.1:{port}",
            EVERMIRROR_SERVER__GRPC_LISTEN=f"127.0.0.1:{grpc_port}",
            EVERMIRROR_UPSTREAMS__ALLOW='["localhost", "127.0.0.1"]',
            EVERMIRROR_UPSTREAMS__CA_FILE=str(self.folder / "ca.pem"),
            EVERMIRROR_WORKER__NAME=place.name,  # as another machine has another name
            EVERMIRROR_AGGREGATOR__NAME=place.name,
        )
        self._nodes.append(process)
        ready = _until(lambda: process.poll() is not None or is_ready(port))
        return (0 if ready and process.poll() is None else process.poll() or 1), (place / "log").read_text()

    def _machine(self) -> Path:
        """Another one, with the files that a person took along."""
        place = self.folder / "machines" / f"m{time.monotonic_ns()}"
        place.mkdir(parents=True)
        for file in (*self.folder.glob("*.txt"), *self.folder.glob("*.token")):
            shutil.copy(file, place)
        return place


def commands_of(text: str) -> Iterator[str]:
    """One after the other, each whole: a quote or a backslash at the end of a line goes on in the next."""
    begun = ""
    for line in text.splitlines():
        begun += line.strip() if not begun else "\n" + line
        checked = subprocess.run(["sh", "-n", "-c", begun], capture_output=True, check=False)
        if checked.returncode == 0 and not begun.endswith("\\"):
            if begun and not begun.startswith("#"):
                yield begun
            begun = ""
    assert not begun, f"{begun!r} is no whole command"


def is_ready(port: int) -> bool:
    with contextlib.suppress(httpx2.HTTPError):
        return httpx2.get(f"http://127.0.0.1:{port}/readyz", trust_env=False, timeout=5).status_code == 200
    return False


@contextlib.contextmanager
def world(folder: Path) -> Iterator[World]:
    with (
        UpstreamServer(folder / "git", tls=True) as upstream,
        GitLabServer(folder / "source", tls=True) as source,
        GitLabServer(folder / "target", tls=True) as target,
        http_sink(Reply()) as receiver,
    ):
        for below in ("backups", "etc"):
            (folder / "house" / below).mkdir(parents=True)
        made = World(folder / "house", upstream, source, target)
        _furnish(made, receiver.base)
        made._nodes.append(up := made.start("exec evermirror up > log 2>&1"))
        try:
            _until(lambda: is_ready(made.port) or up.poll() is not None)
            assert is_ready(made.port), (made.folder / "log").read_text()
            _live_in(made)
            yield made
        finally:
            made.close()


def _furnish(made: World, receiver: str) -> None:
    """Upstreams, forges, settings and files."""
    first = made.upstream.create(NAMES[0], commits=3)
    made.repos = {NAMES[0]: first, **{name: made.upstream.copy(first, name) for name in NAMES[1:]}}
    catalog = made.upstream.create("team/catalog", commits=0)
    catalog.commit(files={"urls.txt": f"https://{made.host}/linux/kernel\n"})
    made.upstream.fail_with(500, path=f"/{BROKEN}")
    for forge in (made.source, made.target):
        forge.add_token(TOKEN, scopes=frozenset({"api", "read_api", "read_repository", "write_repository"}))
    for path in PROJECTS:
        made.source.add_project(path, commits=2, visibility="public")
    made.target.add_project("mirror/core")
    authorities = (made.upstream.ca_file, made.source.ca_file, made.target.ca_file)
    (made.folder / "ca.pem").write_text("".join(Path(file).read_text() for file in authorities))
    (made.folder / "my-urls.txt").write_text(f"https://{made.host}/linux/kernel\n")
    (made.folder / "urls.txt").write_text(f"https://{made.host}/linux/kernel priority=high\n")
    forges = [url.removeprefix("https://") for url in (made.source.base_url, made.target.base_url)]
    hosts = json.dumps([made.host, *forges])
    credentials = "".join(
        f'[credentials.{name}]\ntoken = "{TOKEN}"\nforge = "gitlab"\nhosts = {hosts}\n'
        for name in CREDENTIALS
    )
    (made.folder / "evermirror.toml").write_text(
        f'[server]\nlisten = "127.0.0.1:{made.port}"\ngrpc_listen = "127.0.0.1:{made.grpc_port}"\n'
        f'[upstreams]\nallow = ["localhost", "127.0.0.1"]\nca_file = "{made.folder / "ca.pem"}"\n'
        '[catalog]\nsources = ["my-urls.txt"]\n'
        "[auth]\ntokens_required = false\n"  # else the first token would shut out who has none
        f'[webhooks]\nurl = "{made.url}"\ngitlab_secret = "{SECRET}"\ngithub_secret = "{SECRET}"\n'
        f'[channels.ops]\ntype = "webhook"\nurl = "{receiver}/alerts"\nsecret = "{SECRET}"\n'
        f'[event_hooks.ci]\nurl = "{receiver}/events"\nsecret = "{SECRET}"\n' + credentials
    )


def _live_in(made: World) -> None:
    """Repositories that are mirrored, two of which upstream rewrote; one that fails."""
    made._evermirror("token", "create", "--role", "worker", "--name", "door")  # it opens with the first
    assert _until(lambda: _listens(made.grpc_port))
    made.tidy()
    for name in ("git/git", "team/app"):
        _sync(made, name)
        made.tips[name] = made.repos[name].force_push()
        _sync(made, name)
    kept = made.client.get(f"/api/repos/{made.host}/git/git/-/history").json()["items"]
    made.kept_on = kept[0]["date"][:10]


def _sync(made: World, name: str) -> None:
    body = {"git_url": f"https://{made.host}/{name}", "additional_params": {}}
    task = made.client.post("/api/tasks", json=body).json()["task_id"]
    assert _until(lambda: made.client.get(f"/api/tasks/{task}").json()["status"] in ("success", "skipped"))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _until(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + WITHIN_S
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
    process.communicate(timeout=WITHIN_S)
