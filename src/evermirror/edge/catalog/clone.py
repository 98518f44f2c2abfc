"""A catalog in a git repository: a bare clone of ours, fetched again and again, read by blob.

    fetch ──▶ refs/evermirror/catalog ──ls-tree──▶ path → blob id ──cat-file──▶ content of what changed

Listings are compared by blob ids, so a rewritten history needs no rule of its own. Nothing is checked out.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from evermirror.core.catalog.formats import FILE_MAX_BYTES, is_catalog_path
from evermirror.edge.catalog.files import FileTree, is_git_repository
from evermirror.edge.catalog.tree import BATCH_BYTES, Content, FileRef, Listing, Wanted, batches, check_count
from evermirror.edge.git import folder
from evermirror.edge.git.command import Git
from evermirror.edge.git.credentials import Credentials
from evermirror.edge.git.environment import GitSettings, Remote
from evermirror.edge.git.fsck import fetch_config
from evermirror.edge.git.progress import ProgressReader
from evermirror.errors import EnvironmentUnfit
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.repo import Host, RepoKey, RepoSpec
from evermirror.model.source import CatalogSource

CLONE_MAX_BYTES = 2 * 2**30  # of one transfer: a million URLs with their history are some 100 MB
LISTING_MAX_BYTES = 256 * 2**20  # of one ls-tree: over a million files
PACKS_MAX = 50  # each fetch brings one; more make reading slow
TIP = "refs/evermirror/catalog"

_OID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_FETCH = (
    "fetch", "--progress", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-prune",
    "--no-recurse-submodules", "--force",
)  # fmt: skip


class GitTree:
    """One source in git. ``git`` may use no transport but the source's own."""

    def __init__(self, source: CatalogSource, repo: Path, git: Git, lock: asyncio.Lock) -> None:
        self.source = source
        self.repo = repo
        self.git = git
        self.writing = lock  # of those who write into the same folder

    @property
    def label(self) -> str:
        return f"{self.source.place}:"

    @property
    def remote(self) -> Remote:
        """Where it is fetched from and pushed to, with the credential that it names."""
        credential = None
        if self.source.credential is not None:
            named = RepoSpec(RepoKey(self.source.place), self.source.place, Host(""))
            credential = self.git.credentials.find(replace(named, credential=self.source.credential))
        if not self.source.is_address:
            return Remote(str(Path(self.source.place).absolute()), "file", "", 0, (), credential)
        return Remote.of(self.source.place, (), credential)

    async def look(self) -> Listing:
        tip = await self.fetch()
        return await self._list(tip)

    async def at(self, version: str | None) -> Listing | None:
        tip = version or await self.tip()
        if tip is None or not await self._has(tip):
            return None
        return await self._list(tip)

    async def read(self, wanted: Sequence[Wanted]) -> AsyncIterator[list[Content]]:
        for batch in batches(wanted):
            blobs = await self.blobs(ref.id for _, ref in batch)
            yield [(path, blobs[ref.id]) for path, ref in batch]

    def settle(self, listing: Listing) -> None:
        """Old blobs stay where they are: in the clone."""

    async def fetch(self) -> str:
        """Bring the clone up to date; returns the tip."""
        async with self.writing:
            return await self._fetch()

    async def _fetch(self) -> str:
        if not (self.repo / "HEAD").exists():
            await self._init()
        folder.clean_leftovers(self.repo)
        branch = self.source.branch
        reader = ProgressReader()

        def listen(data: bytes) -> None:
            reader.feed(data)
            if reader.received_bytes > CLONE_MAX_BYTES:
                words = f"the catalog is larger than {CLONE_MAX_BYTES // 2**20} MB"
                raise FailureError(Failure(FailureKind.UNKNOWN, words, hint="Is this a catalog?"))

        remote = self.remote
        await self.git.run(
            [
                *_FETCH,
                "--end-of-options",
                remote.url,
                f"+{f'refs/heads/{branch}' if branch else 'HEAD'}:{TIP}",
            ],
            repo=self.repo,
            remote=remote,
            config=await fetch_config(self.git),
            on_stderr=listen,
            no_progress_s=self.git.settings.no_progress_s,
        )
        tip = await self.tip()
        if tip is None:
            raise FailureError(Failure(FailureKind.NOT_FOUND, "the fetch brought no commit"))
        await self._tidy()
        return tip

    async def tip(self) -> str | None:
        """What was fetched last; None where nothing was."""
        if not (self.repo / "HEAD").exists():
            return None
        found = await self.git.run(["for-each-ref", "--format=%(objectname)", TIP], repo=self.repo)
        return found.stdout.decode("ascii", "replace").strip() or None

    async def blobs(self, ids: Iterable[str]) -> dict[str, bytes]:
        """The content of these blobs, of which there are a few megabytes."""
        wanted = list(dict.fromkeys(ids))
        limit = 2 * BATCH_BYTES + FILE_MAX_BYTES + 200 * len(wanted)
        asked = "".join(f"{oid}\n" for oid in wanted).encode("ascii")
        done = await self.git.run(["cat-file", "--batch"], repo=self.repo, stdin=asked, stdout_limit=limit)
        found: dict[str, bytes] = {}
        at = 0
        for oid in wanted:
            end = done.stdout.index(b"\n", at)
            head = done.stdout[at:end].split()
            if len(head) != 3 or head[1] != b"blob":
                raise FailureError(Failure(FailureKind.UNKNOWN, f"the clone of the catalog lacks {oid}"))
            size = int(head[2])
            found[oid] = done.stdout[end + 1 : end + 1 + size]
            at = end + size + 2
        return found

    async def _list(self, commit: str) -> Listing:
        args = ["--literal-pathspecs", "ls-tree", "-r", "-z", "-l", "--full-tree", "--end-of-options", commit]
        args += ["--", self.source.path] if self.source.path else []
        done = await self.git.run(args, repo=self.repo, stdout_limit=LISTING_MAX_BYTES)
        files: dict[str, FileRef] = {}
        for record in done.stdout.split(b"\0"):
            head, tab, raw = record.partition(b"\t")
            path = raw.decode("utf-8", "surrogateescape")
            if tab and (path == self.source.path or is_catalog_path(path)):
                files[path] = _ref(*head.decode("ascii").split())
        check_count(len(files), self.source.place)
        if not files and self.source.path:
            words = f"there is no {self.source.path} in the catalog {self.source.place}"
            raise FailureError(Failure(FailureKind.NOT_FOUND, words, hint="Check the path of the source"))
        return Listing(files, commit)

    async def _has(self, commit: str) -> bool:
        if not _OID.fullmatch(commit) or not (self.repo / "HEAD").exists():
            return False
        done = await self.git.run(["cat-file", "-e", f"{commit}^{{tree}}"], repo=self.repo, check=False)
        return done.returncode == 0

    async def _init(self) -> None:
        try:
            self.repo.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise EnvironmentUnfit(
                f"cannot write to {self.repo.parent}: {error.strerror}",
                hint="set data.dir to a folder that is yours",
            ) from error
        await self.git.run(["init", "--quiet", "--bare", "--template=", str(self.repo)])

    async def _tidy(self) -> None:
        """Many small packs into one; what no history reaches any more stays, for it may be compared with."""
        packs = sum(1 for _ in (self.repo / "objects" / "pack").glob("*.pack"))
        if packs > PACKS_MAX:
            await self.git.run(
                ["repack", "-a", "-d", "-k", "-q", "--no-write-bitmap-index"], repo=self.repo, background=True
            )


def open_trees(
    sources: Iterable[CatalogSource], clones: Path, settings: GitSettings, credentials: Credentials
) -> list[FileTree | GitTree]:
    """Each source as it can be read; those in git are cloned below ``clones``."""
    lock = asyncio.Lock()
    return [
        _git_tree(s, clones, settings, credentials, lock) if is_git_source(s) else FileTree(Path(s.place))
        for s in sources
    ]


def is_git_source(source: CatalogSource) -> bool:
    """Whether it is read through git: an address, a repository on this machine, or said to be one."""
    return source.needs_git or is_git_repository(Path(source.place))


def _git_tree(
    source: CatalogSource, clones: Path, settings: GitSettings, credentials: Credentials, lock: asyncio.Lock
) -> GitTree:
    scheme = source.place.partition("://")[0] if source.is_address else "file"
    name = hashlib.sha256(f"{source.place}\0{source.branch or ''}".encode()).hexdigest()[:32]
    git = Git(replace(settings, schemes=frozenset({scheme})), credentials)
    return GitTree(source, clones / f"{name}.git", git, lock)


def _ref(mode: str, kind: str, oid: str, size: str) -> FileRef:
    if mode == "120000":
        return FileRef(oid, trouble="a symbolic link: not followed")
    if kind != "blob":
        return FileRef(oid, trouble="a submodule: not followed")
    if int(size) > FILE_MAX_BYTES:
        return FileRef(oid, int(size), trouble=f"the file is over {FILE_MAX_BYTES // 2**20} MB: split it")
    return FileRef(oid, int(size))
