"""An upstream, a git and a folder of mirrors for tests that sync for real."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from evermirror.edge.git.command import Git
from evermirror.edge.git.credentials import Credential, Credentials
from evermirror.edge.git.environment import GitSettings
from evermirror.edge.git.mirror import Mirrors, MirrorSettings
from evermirror.model.repo import Host, Mode, RepoKey, RepoSpec
from tests.support.gitrepo import read_refs, run_git
from tests.support.upstream import UpstreamServer

ADDRESSES = ("127.0.0.1",)


@dataclass
class World:
    root: Path
    upstream: UpstreamServer
    credentials: list[Credential] = field(default_factory=list)
    settings: MirrorSettings = field(default_factory=MirrorSettings)
    no_progress_s: float = 30.0
    memory_bytes: int | None = None
    object_bytes: int | None = None
    mode: Mode = Mode.EXACT
    allow: tuple[str, ...] = ()
    clock: Callable[[], float] = time.time

    def __post_init__(self):
        self.git = Git(
            GitSettings(
                self.root / "data",
                schemes=frozenset({"http", "https"}),
                ca_file=self.upstream.ca_file if self.upstream.tls else None,
                no_progress_s=self.no_progress_s,
                memory_bytes=self.memory_bytes,
                object_bytes=self.object_bytes,
            ),
            Credentials(self.credentials),
        )
        self.mirrors = Mirrors(self.root / "mirrors", self.git, self.settings, clock=self.clock)

    def spec(self, repo, credential=None) -> RepoSpec:
        key = RepoKey(f"{self.upstream.host}/{repo.name}")
        return RepoSpec(key, repo.url, Host(self.upstream.host), credential=credential)

    async def look(self, spec):
        return await self.git.ls_remote(spec, ADDRESSES)

    async def sync(
        self, repo, *, seen=None, reprobe=None, on_progress=None, force=False, credential=None, **more
    ):
        spec = replace(self.spec(repo, credential), mode=self.mode, fsck_allow=self.allow)

        async def look_again():
            return await self.look(spec)

        seen = seen if seen is not None else await self.look(spec)
        return await self.mirrors.sync(
            spec, ADDRESSES, seen, reprobe or look_again, on_progress, force=force, **more
        )

    def path(self, repo) -> Path:
        return self.mirrors.path(self.spec(repo).key)

    def public(self, repo) -> dict[str, str]:
        """The mirror's refs without our hidden ones."""
        refs = read_refs(self.path(repo))
        return {name: oid for name, oid in refs.items() if not name.startswith("refs/evermirror/kept/")}

    def assert_equal(self, repo):
        """The mirror is upstream's twin, and sound."""
        assert self.public(repo) == repo.public_refs()
        fsck = subprocess.run(
            ["git", "fsck", "--full"], cwd=self.path(repo), capture_output=True, text=True, check=False
        )
        assert fsck.returncode == 0, fsck.stderr
        assert not list((self.root / "mirrors" / ".incoming").iterdir())


def mirror_git(path: Path, *args: str) -> str:
    return run_git(path, *args)


def lose_object(mirror: Path, oid: str) -> None:
    """As a bad disk does: all others are there."""
    for pack in list((mirror / "objects" / "pack").glob("*.pack")):
        content = pack.read_bytes()
        for file in pack.parent.glob(f"{pack.stem}.*"):
            file.unlink()
        subprocess.run(["git", "unpack-objects", "-q"], cwd=mirror, input=content, check=True)
    (mirror / "objects" / oid[:2] / oid[2:]).unlink()
