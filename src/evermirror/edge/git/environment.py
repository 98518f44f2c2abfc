"""What a git process may know: an environment that starts empty, and settings that no file can change.

Configuration travels in ``GIT_CONFIG_KEY_n``/``GIT_CONFIG_VALUE_n``, not in argv: argv is readable by
everybody on the machine, and a value in the environment cannot be mistaken for an option or a part of a key.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from evermirror.edge.git.credentials import Credential

MINIMUM_VERSION = (2, 38)  # safe.bareRepository and core.fsync; http.curloptResolve is from 2.37
DEFAULT_PORTS = {"https": 443, "http": 80, "ssh": 22}
DOOR_HEADER = "Evermirror-Door"  # has the secret of a gateway

THREADS_MAX = 4  # of one git: each that resolves deltas holds objects of its own

# An object that any fetch may hold in memory; whoever needs more takes its turn. At core.bigFileThreshold:
# what is larger and no delta is streamed. index-pack's table of a million objects has this size too.
OBJECT_BYTES_AT_ONCE = 64 * 1024 * 1024
# For taking in a pack. Each thread of index-pack that resolves deltas holds two objects of the largest size.
ONE_THREAD = ("pack.threads", "1")

_FIXED_CONFIG: tuple[tuple[str, str], ...] = (
    ("transfer.fsckObjects", "true"),  # what is let through all the same: fsck.py
    ("http.followRedirects", "false"),
    ("transfer.credentialsInUrl", "die"),
    ("credential.helper", ""),
    ("http.emptyAuth", "false"),  # else an upstream that asks for Kerberos gets the ticket of our own user
    ("core.hooksPath", "/dev/null"),
    ("core.alternateRefsCommand", "true"),  # /bin/true prints no refs
    ("core.askPass", "/bin/false"),
    ("core.fsmonitor", "false"),
    ("fetch.recurseSubmodules", "no"),
    ("fetch.writeCommitGraph", "false"),
    # A pack is two files and two fsyncs, whatever it holds; loose objects would be one fsync each.
    ("fetch.unpackLimit", "1"),
    ("transfer.bundleURI", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("safe.bareRepository", "explicit"),
    ("protocol.version", "2"),
    ("advice.fetchShowForcedUpdates", "false"),
    # Memory. A larger blob is streamed and never held, unless it is a delta; more of it: memory_bytes.
    ("core.bigFileThreshold", "64m"),
    ("pack.windowMemory", "100m"),  # of each thread that looks for deltas
    ("pack.deltaCacheSize", "64m"),
    ("pack.threads", str(min(THREADS_MAX, os.cpu_count() or 1))),
)

DURABLE = ("core.fsync", "objects,derived-metadata,reference")
# For refs that a crash may take: in staging, in a clone not visible yet, in bulk changes packed at once.
DURABLE_OBJECTS_ONLY = ("core.fsync", "objects,derived-metadata")


@dataclass(frozen=True, slots=True)
class GitSettings:
    """What the operator decides about git. Durations are seconds, sizes bytes."""

    data_dir: Path  # our own files (home, askpass, known_hosts) live in its folder "git"
    binary: str = "git"
    schemes: frozenset[str] = frozenset({"https"})
    ca_file: Path | None = None
    refs_extra: tuple[
        str, ...
    ] = ()  # prefixes like "refs/pull/" that are asked for besides branches and tags
    connect_timeout_s: float = 10.0
    no_progress_s: float = 300.0
    output_bytes: int = 64_000_000  # a list of some 600,000 refs
    memory_bytes: int | None = None  # of each git process; None: no bound
    object_bytes: int | None = None  # of an object that git holds in memory when it takes a pack in
    accept_new_ssh_hosts: bool = True  # False: only hosts that are in our known_hosts file already

    @property
    def own_dir(self) -> Path:
        return self.data_dir / "git"

    @property
    def taking_in(self) -> dict[str, str]:
        """The environment of a git that takes in a pack from elsewhere, beside others. git looks at the size
        that an object claims before it allocates; a larger blob that is no delta is streamed, and not
        concerned."""
        if self.object_bytes is None:
            return {}
        return {"GIT_ALLOC_LIMIT": str(min(self.object_bytes, OBJECT_BYTES_AT_ONCE))}

    @property
    def taking_in_large(self) -> dict[str, str]:
        """The same for the one git at a time that may hold objects up to ``object_bytes``."""
        return {} if self.object_bytes is None else {"GIT_ALLOC_LIMIT": str(self.object_bytes)}

    @property
    def home(self) -> Path:
        """Empty, and stays empty: no ~/.gitconfig, ~/.netrc, ~/.ssh can say anything."""
        return self.own_dir / "home"

    @property
    def askpass(self) -> Path:
        return self.own_dir / "askpass"

    @property
    def known_hosts(self) -> Path:
        return self.own_dir / "known_hosts"


# One request to git-upload-pack in protocol v2, and its answer, without a git of our own in between.
Asker: TypeAlias = Callable[[bytes], AsyncGenerator[bytes, None]]
PACK_BYTES_MAX = 4_000_000  # of that answer, held in memory of each fetch; a larger change is git's business


@dataclass(frozen=True, slots=True)
class Remote:
    """One upstream or target for one command: where it is, its checked addresses, who we are there."""

    url: str
    scheme: str
    host: str
    port: int
    addresses: tuple[str, ...] = ()
    credential: Credential | None = None
    own: bool = False  # a gateway of this very process, on loopback, whatever upstreams.schemes allows
    door: str = field(default="", repr=False)  # the gateway's secret
    ask: Asker | None = field(default=None, repr=False, compare=False)  # for what is small: short_fetch.py

    @classmethod
    def gateway(cls, url: str, ask: Asker | None = None) -> Remote:
        """Our own door to a holder (edge/relay/gateway.py): plain http to 127.0.0.1, nobody signed in. The
        secret in its URL goes by a header: what git is called with, everybody on the machine can read."""
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname != "127.0.0.1" or not parts.port:
            raise ValueError("a gateway is at http://127.0.0.1:PORT/")
        door, _, path = parts.path.removeprefix("/").partition("/")
        bare = f"http://127.0.0.1:{parts.port}/{path}"
        return cls(bare, parts.scheme, parts.hostname, parts.port, own=True, door=door, ask=ask)

    @classmethod
    def of(cls, url: str, addresses: Iterable[str] = (), credential: Credential | None = None) -> Remote:
        """Take apart a URL that model/url.py has re-serialised."""
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
        return cls(url, parts.scheme, parts.hostname or "", port, tuple(addresses), credential)

    @property
    def netloc(self) -> str:
        """As git names the host in its prompts: with the port only where the URL gives one."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def host_key_alias(self) -> str:
        """The name that the host has in known_hosts."""
        return self.host if self.port == DEFAULT_PORTS["ssh"] else f"[{self.host}]:{self.port}"


def environment(
    settings: GitSettings,
    *,
    path: str,
    repo: Path | None = None,
    remote: Remote | None = None,
    config: Iterable[tuple[str, str]] = (),
) -> dict[str, str]:
    """The whole environment of one git process; nothing of our own is inherited."""
    env = {
        "PATH": path,
        "HOME": str(settings.home),
        "XDG_CONFIG_HOME": str(settings.home),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "SSH_ASKPASS": "/bin/false",
        "GIT_ALLOW_PROTOCOL": ":".join(sorted(settings.schemes)),
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
    }
    entries = [*_FIXED_CONFIG, DURABLE]
    if repo is not None:
        env["GIT_DIR"] = str(repo)
    if remote is not None:
        entries += _remote_config(settings, remote)
        env |= _remote_environment(settings, remote)
    entries += config
    env["GIT_CONFIG_COUNT"] = str(len(entries))
    for i, (key, value) in enumerate(entries):
        env[f"GIT_CONFIG_KEY_{i}"] = key
        env[f"GIT_CONFIG_VALUE_{i}"] = value
    return env


def _remote_config(settings: GitSettings, remote: Remote) -> list[tuple[str, str]]:
    if remote.scheme not in ("http", "https"):
        return []
    entries = [
        # The watchdog looks at git's output; this one looks at the socket, so that a silent peer ends too.
        ("http.lowSpeedLimit", "1"),
        ("http.lowSpeedTime", str(max(1, round(settings.no_progress_s)))),
        ("http.sslVerify", "true"),
    ]
    if remote.addresses:
        pinned = ",".join(f"[{a}]" if ":" in a else a for a in remote.addresses)
        entries.append(("http.curloptResolve", f"{remote.host}:{remote.port}:{pinned}"))
    if remote.door:
        entries.append(("http.extraHeader", f"{DOOR_HEADER}: {remote.door}"))
    if settings.ca_file is not None:
        entries.append(("http.sslCAInfo", str(settings.ca_file)))
    return entries


def _remote_environment(settings: GitSettings, remote: Remote) -> dict[str, str]:
    if remote.own:
        return {"GIT_ALLOW_PROTOCOL": remote.scheme}
    if remote.scheme == "ssh":
        return {"GIT_SSH_COMMAND": ssh_command(settings, remote), "GIT_SSH_VARIANT": "ssh"}
    credential = remote.credential
    if credential is None or not credential.secret or remote.scheme not in ("http", "https"):
        return {}
    return {
        "GIT_ASKPASS": str(settings.askpass),
        "EVERMIRROR_HOST": remote.netloc,
        "EVERMIRROR_USERNAME": credential.login,
        "EVERMIRROR_SECRET": credential.secret,
    }


def ssh_command(settings: GitSettings, remote: Remote) -> str:
    """An ssh that reads no configuration, asks nothing, forwards nothing, and goes to the checked address."""
    options = [
        "BatchMode=yes",
        f"StrictHostKeyChecking={'accept-new' if settings.accept_new_ssh_hosts else 'yes'}",
        f'UserKnownHostsFile="{settings.known_hosts}"',
        "GlobalKnownHostsFile=/dev/null",
        f"HostKeyAlias={remote.host_key_alias}",
        "IdentitiesOnly=yes",
        "IdentityAgent=none",
        "ClearAllForwardings=yes",
        "PermitLocalCommand=no",
        "ControlMaster=no",
        "ControlPath=none",
        f"ConnectTimeout={max(1, round(settings.connect_timeout_s))}",
        "ServerAliveInterval=30",
        f"ServerAliveCountMax={max(1, round(settings.no_progress_s / 30))}",
    ]
    if remote.addresses:
        options.append(f"HostName={remote.addresses[0]}")
    # Without one ssh would offer the keys in the home of the user we run as (it does not ask $HOME), and
    # whoever may submit a URL could have that user's private repositories mirrored.
    key = remote.credential.ssh_key_file if remote.credential is not None else None
    options.append("IdentityFile=none" if key is None else f'IdentityFile="{key}"')
    words = ["ssh", "-F", "/dev/null", *(word for option in options for word in ("-o", option))]
    return shlex.join(words)
