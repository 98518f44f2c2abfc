"""The only place that starts git: one call, one process group, one outcome or one ``Failure``."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from evermirror.edge.git.classify import CAUSE, classify
from evermirror.edge.git.credentials import Credentials, install_askpass
from evermirror.edge.git.environment import (
    DEFAULT_PORTS,
    MINIMUM_VERSION,
    Asker,
    GitSettings,
    Remote,
    environment,
)
from evermirror.edge.git.process import Ended, Limits, Stop, run_process
from evermirror.edge.git.wordings import HOST_KEY, HOST_KEY_CHANGED
from evermirror.errors import EnvironmentUnfit
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.refs import PUBLIC_PREFIXES, Oid, RefSnapshot
from evermirror.model.repo import RepoSpec

log = structlog.get_logger(__name__)

LOCAL_TIMEOUT_S = 3600.0  # for commands that print no progress: a million refs are written in minutes
VERSION_TIMEOUT_S = 20.0  # git --version takes 2 ms; a machine that needs longer than this is not usable
BACKGROUND_NICENESS = "19"  # the least: everything else goes first
SHOWN_OUTPUT_BYTES = 8192  # of stdout and stderr each, kept in a Failure
_FSCK_SETTING = re.compile(rb"^fsck\.(?!skipList$)([a-z][A-Za-z0-9]+)$", re.MULTILINE)
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
# What a smart server's first packet is, in git's trace: older protocols name the service, v2 its version.
_SMART_PACKET = re.compile(r"packet: +\S+< (?:# service=git-upload-pack|version 2)")
_TRACE_PACKETS = {"GIT_TRACE_PACKET": "2"}  # 2: to stderr
_LS_REMOTE_HEAD = re.compile(rb"ref: (refs/[^\t\n]+)\tHEAD")
_LS_REMOTE_REF = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64})\t(refs/[^\n]+)")


@dataclass(frozen=True, slots=True)
class Completed:
    """A git that ended by itself. ``stderr`` is the tail of what it said, secrets removed."""

    returncode: int
    stdout: bytes
    stderr: str


@dataclass(frozen=True, slots=True)
class Installed:
    """The git that is installed: its version, and the message ids of its fsck, as it spells them."""

    version: str
    fsck_ids: frozenset[str]


class Git:
    """Starts git with the environment of environment.py, and turns what goes wrong into a ``Failure``."""

    def __init__(self, settings: GitSettings, credentials: Credentials | None = None) -> None:
        self.settings = settings
        self.credentials = credentials if credentials is not None else Credentials()
        self.large_pack = asyncio.Lock()  # held by the one fetch that may hold large objects in memory
        self._binary = shutil.which(settings.binary)
        self._installed: tuple[tuple[int, ...], Installed] | None = None  # with what its file was like
        # git's own helpers, ssh and sh are found here and nowhere else.
        folders = [str(Path(self._binary).parent)] if self._binary else []
        self._path = ":".join(dict.fromkeys([*folders, "/usr/bin", "/bin"]))
        nice = shutil.which("nice", path=self._path)  # also sets its place at the disk
        self._nice = (nice, "-n", BACKGROUND_NICENESS) if nice is not None else ()
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        install_askpass(settings.askpass)

    async def run(
        self,
        args: Sequence[str],
        *,
        repo: Path | None = None,
        remote: Remote | None = None,
        stdin: bytes | None = None,
        config: Iterable[tuple[str, str]] = (),
        on_stderr: Callable[[bytes], None] | None = None,
        stdout_limit: int | None = None,
        timeout_s: float | None = None,
        no_progress_s: float | None = None,
        keep_fds: Sequence[int] = (),
        check: bool = True,
        background: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run ``git args``. Where ``check``, an exit code other than 0 is raised as a classified
        FailureError; a process that we had to end always is. ``background``: only on idle processors.
        ``env`` comes on top of environment.py's."""
        if timeout_s is None and no_progress_s is None:
            timeout_s = LOCAL_TIMEOUT_S
        limits = Limits(
            stdout_bytes=self.settings.output_bytes if stdout_limit is None else stdout_limit,
            timeout_s=timeout_s,
            silence_s=no_progress_s,
            memory_bytes=self.settings.memory_bytes,
        )
        try:
            ended = await run_process(
                [*(self._nice if background else ()), self.binary, *args],
                env=self.environment(repo=repo, remote=remote, config=config) | dict(env or {}),
                cwd=self.settings.home,
                limits=limits,
                stdin=stdin,
                on_stderr=on_stderr,
                keep_fds=keep_fds,
            )
        except OSError as error:
            raise self._failed(_not_started(error), args, None) from error
        clean = self.credentials.redactor.clean
        stderr = clean(ended.stderr.decode("utf-8", "replace"))
        if ended.stop is not None:
            raise self._failed(_stopped(ended.stop, limits, remote), args, ended)
        if check and ended.returncode != 0:
            url = remote.url if remote is not None else ""
            failure = classify(ended.returncode, stderr, authenticated=_authenticated(remote), url=url)
            if remote is not None and failure.context.get(CAUSE) == HOST_KEY:
                failure = _host_key(failure, stderr, remote, new_hosts=self.settings.accept_new_ssh_hosts)
            raise self._failed(failure, args, ended)
        return Completed(ended.returncode, ended.stdout, stderr)

    @property
    def binary(self) -> str:
        """git's absolute path."""
        if self._binary is None:
            raise EnvironmentUnfit(
                f"git was not found ({self.settings.binary})",
                hint=f"install git {_dotted(MINIMUM_VERSION)} or newer, or set git.binary to its path",
            )
        return self._binary

    def environment(
        self,
        *,
        repo: Path | None = None,
        remote: Remote | None = None,
        config: Iterable[tuple[str, str]] = (),
    ) -> dict[str, str]:
        """The environment of one git process; serve.py needs it for a process that streams."""
        return environment(self.settings, path=self._path, repo=repo, remote=remote, config=config)

    def remote(self, spec: RepoSpec, addresses: Iterable[str], ask: Asker | None = None) -> Remote:
        """Where ``spec`` is, with the addresses that were checked and the credential that it names."""
        return replace(Remote.of(spec.url, addresses, self.credentials.find(spec)), ask=ask)

    async def version(self) -> tuple[int, ...]:
        """git's version; missing or too old is ``EnvironmentUnfit``, with what to do."""
        completed = await self.run(["--version"], timeout_s=VERSION_TIMEOUT_S, check=False)
        match = re.match(rb"git version (\d+)\.(\d+)(?:\.(\d+))?", completed.stdout)
        if match is None:
            raise EnvironmentUnfit(
                f"{self.binary} does not say which git it is", hint="set git.binary to a real git"
            )
        version = tuple(int(part) for part in match.groups(b"0"))
        if version < MINIMUM_VERSION:
            raise EnvironmentUnfit(
                f"git {_dotted(version)} is too old",
                hint=f"install git {_dotted(MINIMUM_VERSION)} or newer, or set git.binary to its path",
            )
        return version

    async def installed(self) -> Installed:
        """Asked once, and again when the program was replaced. git dies of ids that it does not know, so it
        is asked for those that it does: they are in its own list of settings."""
        stamp = _stamp(self.binary)
        if self._installed is not None and self._installed[0] == stamp:
            return self._installed[1]
        version = _dotted(await self.version())
        listing = await self.run(
            ["help", "--config-for-completion"], timeout_s=VERSION_TIMEOUT_S, check=False
        )
        ids = frozenset(found.decode("ascii") for found in _FSCK_SETTING.findall(listing.stdout))
        if not ids:
            log.warning("git does not list its checks: every malformed object is refused", git=version)
        known = Installed(version, ids)
        self._installed = stamp, known
        return known

    async def ls_remote(self, spec: RepoSpec, addresses: Iterable[str]) -> RefSnapshot:
        """Upstream's refs, asked by git itself: for transports that the prober does not speak."""
        prefixes = (*PUBLIC_PREFIXES, *self.settings.refs_extra)
        patterns = ["HEAD", *(f"{p}*" for p in prefixes)]
        remote = self.remote(spec, addresses)
        args = ["ls-remote", "--quiet", "--symref", "--end-of-options", remote.url, *patterns]
        limit_s = self.settings.no_progress_s
        completed = await self.run(args, remote=remote, no_progress_s=limit_s)
        snapshot = parse_ls_remote(completed.stdout, prefixes)
        if snapshot.refs or remote.scheme not in ("http", "https"):
            return snapshot
        # git takes any text with HTTP 200 for the dumb protocol, and one line of it for no refs at all. It
        # is believed only where it says that packets of the smart protocol came.
        traced = await self.run(args, remote=remote, no_progress_s=limit_s, env=_TRACE_PACKETS)
        if _SMART_PACKET.search(traced.stderr) is None:
            raise self._failed(_no_smart_answer(), args, None)
        return parse_ls_remote(traced.stdout, prefixes)

    def shown(self, output: bytes) -> str:
        """The end of it, for people. Secrets are removed first: of one that is cut, half would stay."""
        text = output[-2 * SHOWN_OUTPUT_BYTES :].decode("utf-8", "replace")
        return self.credentials.redactor.clean(text)[-SHOWN_OUTPUT_BYTES:]

    def _failed(self, failure: Failure, args: Sequence[str], ended: Ended | None) -> FailureError:
        told = Failure(
            kind=failure.kind,
            message=failure.message,
            hint=failure.hint,
            retry_after_s=failure.retry_after_s,
            git_command=" ".join(["git", *args]),
            stdout=self.shown(ended.stdout) if ended is not None else "",
            stderr=self.shown(ended.stderr) if ended is not None else "",
            corrupt=failure.corrupt,
            context=failure.context,
        )
        return FailureError(self.credentials.redactor.clean_failure(told))


def parse_ls_remote(output: bytes, prefixes: tuple[str, ...] = PUBLIC_PREFIXES) -> RefSnapshot:
    """Read ``ls-remote --symref``; peeled tags and refs outside ``prefixes`` are left out."""
    refs: dict[str, Oid] = {}
    head: str | None = None
    for line in output.split(b"\n"):
        if (match := _LS_REMOTE_HEAD.fullmatch(line)) is not None:
            head = match[1].decode("utf-8", "surrogateescape")
        elif (match := _LS_REMOTE_REF.fullmatch(line)) is not None:
            name = match[2].decode("utf-8", "surrogateescape")
            if name.startswith(prefixes) and not name.endswith("^{}"):
                refs[name] = Oid(match[1].decode("ascii"))
    return RefSnapshot(refs, head)


def _authenticated(remote: Remote | None) -> bool:
    return remote is not None and remote.credential is not None


def _host_key(failure: Failure, stderr: str, remote: Remote, *, new_hosts: bool) -> Failure:
    """With the host, and what to do. Only the fingerprint is taken from ssh: servers may write the rest."""
    host = remote.host_key_alias
    shown = _FINGERPRINT.search(stderr)
    key = f" ({shown[0]})" if shown is not None else ""
    changed = HOST_KEY_CHANGED.search(stderr) is not None
    steps = [f"ssh-keygen -f git/known_hosts -R '{host}'"] if changed else []
    if not new_hosts:
        port = f"-p {remote.port} " if remote.port != DEFAULT_PORTS["ssh"] else ""
        steps.append(f"ssh-keyscan {port}{remote.host} >> git/known_hosts")
    hint = (
        f"ask the operator of {remote.host} whether that is its key. If so, run in the worker's data folder: "
        f"{' and '.join(steps)}. Its repositories are tried again within 10 minutes, or by `evermirror sync`"
    )
    what = "has changed" if changed else "is not known here"
    return replace(failure, message=f"the ssh host key of {host} {what}{key}", hint=hint)


def _not_started(error: OSError) -> Failure:
    return Failure(FailureKind.UNKNOWN, f"git could not be started: {error.strerror or error}")


def _no_smart_answer() -> Failure:
    return Failure(
        FailureKind.UNKNOWN,
        "HTTP 200, but not from git: an empty answer is no empty repository",
        hint="upstream may be under maintenance: it is asked again. Otherwise check the URL",
    )


def _stopped(stop: Stop, limits: Limits, remote: Remote | None) -> Failure:
    match stop:
        case Stop.SILENT:
            kind = FailureKind.UNKNOWN if remote is None else FailureKind.NETWORK_TIMEOUT
            return Failure(kind, f"no progress for {limits.silence_s:g} s")
        case Stop.TOO_SLOW:
            return Failure(FailureKind.UNKNOWN, f"git did not end within {limits.timeout_s:g} s")
        case Stop.TOO_MUCH:
            return Failure(FailureKind.UNKNOWN, f"git printed more than {limits.stdout_bytes} bytes")


def _stamp(file: str) -> tuple[int, ...]:
    try:
        status = os.stat(file)
    except OSError:  # being replaced just now
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
