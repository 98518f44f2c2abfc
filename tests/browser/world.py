"""What the house in these tests mirrors: about forty real repositories on five servers, in every condition.

code    what is well; pushed to several times; hostile names; 300 refs; rewritten; emptied; not there
docs    a second host, in other classes
slow    one large repository whose pack stops half-way, until ``let_on``
busy    answers 429 to everyone
forge   what is pushed to: two targets, one of which refuses a branch
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tests.support.gitrepo import UpstreamRepo
from tests.support.http_sink import HttpSink, Reply
from tests.support.ports import free_port
from tests.support.pull_processes import target_at
from tests.support.upstream import UpstreamServer

HOSTILE = {
    "markup": "hostile/<img src=x onerror=boom()>",
    "quotes": "hostile/\"quoted\" & 'apostrophes'",
    "chinese": "hostile/镜像仓库",
    "right to left": "hostile/مستودع",
    "long": "hostile/" + "very-long-" * 20 + "name",
}
HOSTILE_REF = "<img/src=x/onerror=boom()>"
HOSTILE_ALIAS = '"><svg/onload=boom()>'
HOSTILE_WORDS = "<script>boom()</script> & no"  # of a target's hook
LANGUAGES = ("python", "ruby", "rust", "go", "perl", "lua", "julia", "kotlin", "swift", "scala")
BOOKS = ("guide", "manual", "handbook", "reference", "cookbook", "faq")
REFS_MANY = 300
SLOW_FILES, SLOW_FILE_BYTES = 400, 12_000
SLOW_AT = 2_500_000  # bytes: about half of it
REFUSED_BRANCH = "secret"
PASSWORD = "not-the-right-one"


class World:
    """Servers and their repositories; ``lines`` are the catalog's."""

    def __init__(self, folder: Path) -> None:
        self.code = UpstreamServer(folder / "code")
        self.docs = UpstreamServer(folder / "docs", address="127.0.0.2")
        self.slow = UpstreamServer(folder / "slow", address="127.0.0.3")
        self.busy = UpstreamServer(folder / "busy", address="127.0.0.4")
        self.forge = UpstreamServer(folder / "forge", address="127.0.0.5")
        self.hotline = HttpSink(lambda _: Reply())  # where people are told of alerts
        self.nobody = f"127.0.0.6:{free_port()}"  # a host where nothing listens
        self.repos: dict[str, UpstreamRepo] = {}
        self.lines: list[str] = []
        self._model = self.code.create("model", commits=5)

    def close(self) -> None:
        for server in (self.code, self.docs, self.slow, self.busy, self.forge, self.hotline):
            server.close()

    @property
    def hosts(self) -> list[str]:
        servers = (self.code, self.docs, self.slow, self.busy, self.forge)
        return [*(server.host for server in servers), self.nobody]

    def key(self, name: str) -> str:
        """As the house calls a repository."""
        return self.repos[name].url.removeprefix("http://").removesuffix(".git")

    def add(self, server: UpstreamServer, name: str, *attributes: str) -> UpstreamRepo:
        """A repository like the model, listed in the catalog."""
        made = server.copy(self._model, name)
        repo = self.repos[name] = UpstreamRepo(made.path, name, server.url(quote(f"{name}.git")))
        self.lines.append(" ".join([repo.url, *attributes]))
        return repo

    def let_on(self, at: int | None = None) -> None:
        """The slow pack goes on: to so many bytes, or to its end."""
        self.slow.stall_after_bytes = at

    # What is there

    def build(self) -> None:
        self._well()
        self._strange()
        self._failing()
        self._pulled()
        self._stopped_half_way()

    def _well(self) -> None:
        classes = ("critical", "high", "normal", "low")
        for n, name in enumerate(LANGUAGES):
            self.add(self.code, f"lang/{name}", f"priority={classes[n % 4]}")
        for n, name in enumerate(BOOKS):
            self.add(self.docs, f"books/{name}", f"priority={classes[-1 - n % 2]}")
        self.add(self.code, "team/named", "alias=our/favourite")

    def _strange(self) -> None:
        for name in HOSTILE.values():
            self.add(self.code, name)
        self.add(self.code, "hostile/alias", f"alias={HOSTILE_ALIAS}")
        self.add(self.code, "hostile/refs").branch(HOSTILE_REF)
        self.add(self.code, "team/many-refs").bulk_refs(REFS_MANY)
        self.add(self.code, "team/rewritten").branch("feature")
        self.add(self.code, "team/emptied", "priority=high").bulk_refs(20)

    def _failing(self) -> None:
        for name in ("gone/one", "gone/two"):
            self.code.delete(self.add(self.code, name))
        self.add(self.code, "locked/vault", "credential=vault", "priority=critical")
        self.code.require_basic("robot", "the-right-one", "/locked/")
        self.add(self.code, "broken/answers", "priority=high")
        self.code.fail_with(200, {"Content-Type": "text/html"}, "<h1>It works!</h1>", path="/broken/answers")
        self.add(self.code, "broken/server")
        self.code.fail_with(500, body="boom", path="/broken/server")
        for name in ("limited/one", "limited/two"):
            self.add(self.busy, name)
        self.busy.fail_with(429, {"Retry-After": "3600"})
        self.lines += [f"http://{self.nobody}/nobody/{name}.git" for name in ("home", "there")]

    def _pulled(self) -> None:
        """A project with a target that takes all, and one that refuses a branch."""
        self.add(self.code, "team/pulled").branch(REFUSED_BRANCH)
        targets = [target_at(self.forge, f"copies/{name}") for name in ("willing", "choosy")]
        hook = targets[1].path / "hooks" / "update"
        hook.parent.mkdir(exist_ok=True)
        refused = f"""[ "$1" != refs/heads/{REFUSED_BRANCH} ] || {{ echo '{HOSTILE_WORDS}' >&2; exit 1; }}"""
        hook.write_text(f"#!/bin/sh\n{refused}\n")
        hook.chmod(0o755)
        self.lines[-1] += "".join(f" target={target.url}" for target in targets)
        self.lines[-1] += " alias=pulled/project interval=60m priority=high"

    def _stopped_half_way(self) -> None:
        files = {f"part-{n}.bin": os.urandom(SLOW_FILE_BYTES) for n in range(SLOW_FILES)}
        self.add(self.slow, "large/archive").commit(files=files)
        self.let_on(SLOW_AT)

    # What happens to it

    def push_round(self, round_: int) -> list[str]:
        """Pushes to some; returns their names."""
        pushed = [f"lang/{name}" for name in LANGUAGES[: 3 + round_ % 2]]
        for name in pushed:
            self.repos[name].commit()
        return pushed

    def rewrite(self) -> list[str]:
        """A branch is pushed by force, another is deleted: two tips are kept."""
        self.repos["team/rewritten"].force_push()
        self.repos["team/rewritten"].delete_branch("feature")
        return ["team/rewritten"]

    def empty(self) -> list[str]:
        """All refs go: a guard holds that back."""
        repo = self.repos["team/emptied"]
        repo.git("update-ref", "--stdin", stdin="".join(f"delete {name}\n" for name in repo.refs()))
        return ["team/emptied"]


@contextmanager
def world(folder: Path) -> Iterator[World]:
    made = World(folder)
    try:
        made.build()
        yield made
    finally:
        made.close()
