"""The doctor's checks: each looks at one thing and says what it saw and, where it is wrong, what to do."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from evermirror.config import Config, split_host_port
from evermirror.errors import EvermirrorError
from evermirror.faces.cli.output import counted
from evermirror.model.duration import format_size

PYTHON_MIN = (3, 11)
FREE_BYTES_MIN = 1_000_000_000  # less and the next clone may not fit
FILES_MIN = 1024  # 256 polls and 10 gits with pipes need several hundred
RESOLVE_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 3.0
RELEASED_AT = 1_790_000_000.0  # UTC seconds, September 2026: a clock before this is wrong
NAME_TO_RESOLVE = "github.com"
PROBLEMS_SHOWN = 20  # of a catalog; the rest is counted


class Level(Enum):
    """NOTE: worth knowing, but no reason to fail."""

    FINE = "fine"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Check:
    """What one check saw, with its details line by line; ``todo`` says what to do next."""

    name: str
    level: Level
    what: str
    todo: str = ""
    details: tuple[str, ...] = ()


def run_checks(config: Config) -> Iterator[Check]:
    """One after the other, so that a slow one is seen; one that fails itself is told as wrong."""
    if server := os.environ.get("EVERMIRROR_SERVER") or config.client.server:
        what = f"{server} is named for commands, and is not looked at: this is about this machine"
        yield Check("server", Level.NOTE, what)
    for name, look in _CHECKS.items():
        try:
            yield look(name, config)
        except EvermirrorError as error:
            yield Check(name, Level.WRONG, error.message, error.hint)
        except OSError as error:
            yield Check(name, Level.WRONG, str(error.strerror or error))


def _python(name: str, config: Config) -> Check:
    version = ".".join(str(n) for n in sys.version_info[:3])
    if sys.version_info[:2] < PYTHON_MIN:
        return Check(name, Level.WRONG, version, "Install Python 3.11 or newer")
    return Check(name, Level.FINE, version)


def _git(name: str, config: Config) -> Check:
    from evermirror.edge.git.command import Git
    from evermirror.edge.git.environment import GitSettings
    from evermirror.model.failure import FailureError

    with tempfile.TemporaryDirectory(prefix="evermirror-doctor-") as folder:
        try:
            git = Git(GitSettings(data_dir=Path(folder), binary=config.git.binary))
            version = asyncio.run(git.version())
        except FailureError as error:
            return Check(name, Level.WRONG, error.failure.message, error.failure.hint)
    return Check(name, Level.FINE, ".".join(str(n) for n in version))


def _data_dir(name: str, config: Config) -> Check:
    folder = _existing(config.data.dir)
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check(
            name,
            Level.WRONG,
            f"{folder} is not writable",
            "Change its owner, or choose another with data.dir",
        )
    if not _tells_case_apart(folder):
        return Check(
            name,
            Level.WRONG,
            f"{folder} does not tell upper from lower case: mirrors would mix up",
            "Choose a folder on a case-sensitive file system",
        )
    there = "" if config.data.dir.exists() else " (not made yet)"
    return Check(name, Level.FINE, f"{config.data.dir}{there} is writable and tells case apart")


def _disk(name: str, config: Config) -> Check:
    from evermirror.core.schedule.disk import DiskGuard, percent_full
    from evermirror.edge.git.folder import disk_usage

    usage = disk_usage(_existing(config.data.dir))
    guard = DiskGuard(config.fleet.disk_high)
    free, total = format_size(usage.free_bytes), format_size(usage.total_bytes)
    what = f"{free} free of {total} ({percent_full(usage.used_share)} used)"
    if usage.free_bytes < FREE_BYTES_MIN:
        return Check(name, Level.WRONG, what, "Make room: new clones may not fit")
    if not guard.observe(usage.used_share, 0.0):
        todo = f"No new clone begins: {guard.why_closed}. Make room, or raise it"
        return Check(name, Level.WRONG, what, todo)
    return Check(name, Level.FINE, what)


def _database(name: str, config: Config) -> Check:
    from evermirror.edge.store.migrate import pending_migrations
    from evermirror.model.failure import FailureError

    try:
        pending = asyncio.run(pending_migrations(config.store_url))
    except FailureError as error:
        return Check(name, Level.WRONG, error.failure.message, error.failure.hint)
    kind = "SQLite" if config.store_url.startswith("sqlite") else "PostgreSQL"
    if pending:
        return Check(
            name, Level.NOTE, f"{kind}: {counted(len(pending), 'migration')} will run at the next start"
        )
    return Check(name, Level.FINE, f"{kind}: reachable, tables up to date")


def _port(name: str, config: Config) -> Check:
    host, port = split_host_port(config.server.listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if _we_answer(config):
                return Check(name, Level.FINE, f"{config.server.listen}: our server answers")
            what = f"{config.server.listen}: {error.strerror}, and no evermirror answers there"
            return Check(
                name, Level.WRONG, what, "Stop the other program, or choose another with server.listen"
            )
    return Check(name, Level.FINE, f"{config.server.listen} is free")


def _clock(name: str, config: Config) -> Check:
    if time.time() < RELEASED_AT:
        return Check(
            name, Level.WRONG, f"it is {time.ctime()}, before this program was made", "Set the clock (NTP)"
        )
    return Check(name, Level.FINE, time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))


def _certificates(name: str, config: Config) -> Check:
    try:
        if config.upstreams.ca_file is not None:
            context = ssl.create_default_context(cafile=config.upstreams.ca_file)
            return Check(name, Level.FINE, f"{len(context.get_ca_certs())} in {config.upstreams.ca_file}")
        paths = ssl.get_default_verify_paths()
        count = len(ssl.create_default_context().get_ca_certs())
        folder = Path(paths.capath) if paths.capath else None
        count = count or (sum(1 for _ in folder.iterdir()) if folder and folder.is_dir() else 0)
    except (OSError, ssl.SSLError) as error:
        return Check(name, Level.WRONG, f"cannot be read: {error}", "Check upstreams.ca_file")
    if not count:
        return Check(
            name, Level.WRONG, "none", "Install the package ca-certificates, or set upstreams.ca_file"
        )
    return Check(name, Level.FINE, f"{count} of the system's")


def _names(name: str, config: Config) -> Check:
    """getaddrinfo cannot be timed out: it runs in a thread that is left behind where it hangs."""
    outcome: list[str] = []

    def resolve() -> None:
        try:
            socket.getaddrinfo(NAME_TO_RESOLVE, 443)
            outcome.append("")
        except OSError as error:
            outcome.append(str(error.strerror or error))

    thread = threading.Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(RESOLVE_TIMEOUT_S)
    if outcome == [""]:
        return Check(name, Level.FINE, f"{NAME_TO_RESOLVE} resolves")
    what = outcome[0] if outcome else f"no answer in {RESOLVE_TIMEOUT_S:g} s"
    return Check(name, Level.NOTE, f"{NAME_TO_RESOLVE}: {what}", "Fine offline; else check the resolver")


def _files(name: str, config: Config) -> Check:
    from evermirror.edge.net.accept import open_files_max

    allowed, (_, hard) = open_files_max(), resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(FILES_MIN, 2 * config.limits.polls_in_flight + 20 * config.schedule.slots)
    if allowed < wanted:
        return Check(
            name, Level.WRONG, f"{allowed} (at most {hard})", f"Raise it to {wanted}: ulimit -n {wanted}"
        )
    return Check(name, Level.FINE, str(allowed))


def _catalog(name: str, config: Config) -> Check:
    if not config.catalog.sources:
        return Check(name, Level.NOTE, "no sources: only what the API adds is mirrored")
    from evermirror.edge.catalog.check import check_sources
    from evermirror.nodes.basics import credentials_of, git_settings, url_rules

    sources, rules = config.catalog.sources, url_rules(config)
    found = asyncio.run(check_sources(sources, rules, git_settings(config), credentials_of(config)))
    what = f"{counted(found.repos, 'repository', 'repositories')}, {counted(found.problems_total, 'problem')}"
    if not found.problems:
        return Check(name, Level.FINE, what)
    details = [str(problem) for problem in found.problems[:PROBLEMS_SHOWN]]
    if found.problems_total > PROBLEMS_SHOWN:
        details.append(f"and {found.problems_total - PROBLEMS_SHOWN} more")
    return Check(name, Level.WRONG, what, "Correct these lines; the others are mirrored", tuple(details))


_CHECKS: dict[str, Callable[[str, Config], Check]] = {
    "python": _python,
    "git": _git,
    "data folder": _data_dir,
    "disk": _disk,
    "database": _database,
    "port": _port,
    "clock": _clock,
    "certificates": _certificates,
    "names": _names,
    "open files": _files,
    "catalog": _catalog,
}


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    folder = folder.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _tells_case_apart(folder: Path) -> bool:
    with tempfile.NamedTemporaryFile(prefix="evermirror-case-a", dir=folder) as made:
        path = Path(made.name)
        return not path.with_name(path.name.replace("case-a", "case-A")).exists()


def _we_answer(config: Config) -> bool:
    import httpx2

    from evermirror.faces.cli.client import listen_url

    # Our own port, only to tell us from another program: the certificate may well name another host.
    url = listen_url(config.server.listen, tls=config.server.tls_cert is not None)
    try:
        answer = httpx2.get(f"{url}/api/overview", timeout=ANSWER_TIMEOUT_S, trust_env=False, verify=False)
    except httpx2.HTTPError:
        return False
    return "total_repos" in answer.text or "/problems/" in answer.text
