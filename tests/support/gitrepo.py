"""A bare repository on disk that tests push to, made by real git in a clean environment."""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

GIT_TIMEOUT_S = 120  # a test's git that takes longer hangs
IDENTITY = "A U Thor <author@example.com>"

_OID = re.compile("([0-9a-f]{40}|[0-9a-f]{64})\n")


def clean_git_env(home: Path) -> dict[str, str]:
    """Nothing of the machine's or the developer's git settings; fixed identity and zone."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "LC_ALL": "C",
        "TZ": "UTC",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": "A U Thor",
        "GIT_AUTHOR_EMAIL": "author@example.com",
        "GIT_COMMITTER_NAME": "A U Thor",
        "GIT_COMMITTER_EMAIL": "author@example.com",
    }


def run_git(
    cwd: Path, *args: str, stdin: bytes | str | None = None, env: Mapping[str, str] | None = None
) -> str:
    """Runs git in ``cwd`` and returns what it printed, stripped; its stderr is in the error when it fails."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        ["git", *args],
        cwd=cwd,
        env={**clean_git_env(cwd), **(env or {})},
        input=data if data is not None else b"",
        capture_output=True,
        timeout=GIT_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(
            f"git {' '.join(args)} → {done.returncode}\n{done.stderr.decode(errors='replace')}"
        )
    return done.stdout.decode("utf-8", "surrogateescape").strip()


def read_ref(path: Path, ref: str) -> str | None:
    """One ref's object id, as ``git rev-parse`` says it but without a process; None where there is none."""
    if (path / "reftable").exists():
        return run_git(path, "for-each-ref", "--format=%(objectname)", ref) or None
    try:
        loose = (path / ref).read_text()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        loose = ""
    if loose:
        found = _OID.fullmatch(loose)
        return found[1] if found else run_git(path, "rev-parse", "--verify", ref)
    packed = path / "packed-refs"
    lines = packed.read_text(errors="surrogateescape").splitlines() if packed.exists() else []
    return next((line.partition(" ")[0] for line in lines if line.endswith(f" {ref}")), None)


def read_refs(path: Path) -> dict[str, str]:
    """Every ref of the repository at ``path`` with its (unpeeled) object id."""
    lines = run_git(path, "for-each-ref", "--format=%(objectname) %(refname)").splitlines()
    return {name: oid for oid, name in (line.split(" ", 1) for line in lines)}


def read_head(path: Path) -> str:
    """Where HEAD points: a branch's full name, or an object id where it is detached."""
    return (path / "HEAD").read_text().strip().removeprefix("ref: ")


@functools.cache
def _empty(object_format: str) -> Path:
    """A repository without a commit, to copy: much quicker than a git for each."""
    folder = Path(tempfile.mkdtemp(prefix="evermirror-empty-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    init = ("init", "--quiet", "--bare", "--template=", "-b", "main", f"--object-format={object_format}", ".")
    run_git(folder, *init)
    folder.chmod(0o755)
    return folder


class UpstreamRepo:
    """What a forge would hold. Every helper changes it at once, as a push would."""

    def __init__(self, path: Path, name: str, url: str) -> None:
        self.path = path
        self.name = name
        self.url = url
        self._serial = 0

    @classmethod
    def init(cls, path: Path, name: str, url: str, *, object_format: str = "sha1") -> UpstreamRepo:
        path.mkdir(parents=True)
        shutil.copytree(_empty(object_format), path, dirs_exist_ok=True)
        return cls(path, name, url)

    def git(self, *args: str, stdin: bytes | str | None = None) -> str:
        return run_git(self.path, *args, stdin=stdin)

    def configure(self, settings: Iterable[tuple[str, str]]) -> None:
        """As ``git config --add`` does for each: "section.name" and its value."""
        lines = [
            f"[{name.partition('.')[0]}]\n\t{name.partition('.')[2]} = {value}\n" for name, value in settings
        ]
        with (self.path / "config").open("a") as file:
            file.writelines(lines)

    # Reading

    def refs(self) -> dict[str, str]:
        """Every ref, hidden ones included: full name to object id."""
        return read_refs(self.path)

    def public_refs(self) -> dict[str, str]:
        """Branches and tags: what a mirror must equal."""
        return {n: o for n, o in self.refs().items() if n.startswith(("refs/heads/", "refs/tags/"))}

    def head(self) -> str:
        return read_head(self.path)

    def tip(self, branch: str = "main") -> str:
        return self._at(f"refs/heads/{branch}")

    # Commits

    def commit(
        self,
        branch: str = "main",
        files: Mapping[str, str | bytes] | None = None,
        when: float | None = None,
        message: str | None = None,
    ) -> str:
        """One commit on ``branch`` (made where it is not there); by default one file with new content."""
        return self._commit(f"refs/heads/{branch}", self._tip_or_none(branch), files, when, message)

    def force_push(self, branch: str = "main", when: float | None = None) -> str:
        """Replaces the branch's last commit by another with the same parent."""
        old = self.git("rev-list", "--parents", "-n", "1", f"refs/heads/{branch}").split()
        return self._commit(f"refs/heads/{branch}", old[1] if len(old) > 1 else None, None, when, "rewritten")

    def bulk_commits(self, n: int, branch: str = "main", when: float | None = None, gap_s: float = 60) -> str:
        """``n`` commits in one go, ``gap_s`` apart, the last one at ``when`` (now); returns the tip."""
        last = int(when if when is not None else time.time())
        ref = f"refs/heads/{branch}"
        parent = self._tip_or_none(branch)
        stream = bytearray()
        for i in range(n):
            at = last - int((n - 1 - i) * gap_s)
            body = {f"bulk/{i % 50}.txt": f"{branch} {self._next()}\n"}
            stream += _commit_stream(ref, at, f"bulk {i}", parent if i == 0 else None, body, fresh=i == 0)
        return self._import(bytes(stream), ref)

    def big_blob(self, size: int, branch: str = "main") -> str:
        """One commit with ``size`` bytes that do not compress."""
        return self.commit(branch, {f"blob-{self._next()}.bin": os.urandom(size)})

    # Refs

    def branch(self, name: str, at: str = "refs/heads/main") -> str:
        self.git("update-ref", f"refs/heads/{name}", at)
        return self.tip(name)

    def delete_branch(self, name: str) -> None:
        self.git("update-ref", "-d", f"refs/heads/{name}")

    def tag(self, name: str, annotated: bool = False, at: str = "refs/heads/main") -> str:
        """Returns what the tag ref holds: the tag object where ``annotated``, else the commit."""
        message = ["-a", "-m", f"tag {name}"] if annotated else []
        self.git("tag", "-f", *message, name, at)
        return self._at(f"refs/tags/{name}")

    def delete_tag(self, name: str) -> None:
        self.git("update-ref", "-d", f"refs/tags/{name}")

    def set_head(self, branch: str) -> None:
        self.git("symbolic-ref", "HEAD", f"refs/heads/{branch}")

    def hidden_ref(self, ref: str = "refs/pull/1/head") -> str:
        """A ref outside branches and tags with a commit of its own, as forges keep for merge requests."""
        return self._commit(ref, self._tip_or_none("main"), None, None, f"for {ref}")

    def bulk_refs(self, n: int, prefix: str = "refs/heads/bulk/", at: str = "refs/heads/main") -> None:
        """``n`` packed refs that point to ``at``."""
        oid = self.git("rev-parse", "--verify", at)
        lines = "".join(f"create {prefix}{i:07d} {oid}\n" for i in range(n))
        self.git("update-ref", "--stdin", stdin=lines)
        self.git("pack-refs", "--all")

    # Inside

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    def _tip_or_none(self, branch: str) -> str | None:
        return read_ref(self.path, f"refs/heads/{branch}")

    def _at(self, ref: str) -> str:
        """Where it is not there, git says so."""
        return read_ref(self.path, ref) or self.git("rev-parse", "--verify", ref)

    def _commit(
        self,
        ref: str,
        parent: str | None,
        files: Mapping[str, str | bytes] | None,
        when: float | None,
        message: str | None,
    ) -> str:
        n = self._next()
        content = (
            files
            if files is not None
            else {f"file-{n}.txt": f"{self.name} {ref} {n} {os.urandom(8).hex()}\n"}
        )
        at = int(when if when is not None else time.time())
        return self._import(
            _commit_stream(ref, at, message or f"commit {n}", parent, content, fresh=True), ref
        )

    def _import(self, stream: bytes, ref: str) -> str:
        self.git("fast-import", "--quiet", "--force", "--date-format=raw", stdin=stream + b"done\n")
        return self._at(ref)


def _commit_stream(
    ref: str, at: int, message: str, parent: str | None, files: Mapping[str, str | bytes], *, fresh: bool
) -> bytes:
    """One commit for ``git fast-import``; ``fresh`` starts the branch over from ``parent``."""
    out = bytearray()
    if fresh:
        out += f"reset {ref}\n".encode() + (f"from {parent}\n\n".encode() if parent else b"\n")
    out += f"commit {ref}\ncommitter {IDENTITY} {at} +0000\n".encode() + _data(message.encode())
    for name, content in files.items():
        out += f"M 100644 inline {name}\n".encode()
        out += _data(content.encode() if isinstance(content, str) else content)
    return bytes(out)


def _data(content: bytes) -> bytes:
    return f"data {len(content)}\n".encode() + content + b"\n"
