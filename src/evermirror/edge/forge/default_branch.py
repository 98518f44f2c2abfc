"""The default branch of a target: a push cannot set it, the forge's API can.

| forge  | the project                                     | set by |
|--------|-------------------------------------------------|--------|
| gitlab | /api/v4/projects/<the whole path, encoded>      | PUT    |
| gitea  | /api/v1/repos/<owner>/<name>                    | PATCH  |
| github | api.github.com/repos/…, else /api/v3/repos/…    | PATCH  |

Each answers GET with ``default_branch``, and takes ``{"default_branch": …}``. Connections go to addresses
that were checked, redirects are not followed, answers are bounded.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import httpx2

from evermirror.edge.git.credentials import Credential, Redactor
from evermirror.errors import InvalidUrl
from evermirror.model.failure import FailureError
from evermirror.model.printable import one_line

TIMEOUT_S = 30.0  # for both requests together
CONNECT_S = 10.0
ANSWER_BYTES_MAX = 1_000_000  # a project's description has some kilobytes
WORDS_MAX = 300
_BRANCHES = "refs/heads/"
_HTTP_PORTS = {"https": 443, "http": 80}

Resolve = Callable[[str], Awaitable[tuple[str, ...]]]  # from a URL to its checked addresses


class Forge(Enum):
    """Whose API a target has."""

    GITLAB = "gitlab"
    GITEA = "gitea"
    GITHUB = "github"


class _Refused(Exception):
    """The API said no; the message says how."""


@dataclass(frozen=True, slots=True)
class Project:
    """A target as its forge's API knows it. ``url`` has the host's name, not an address."""

    url: str
    method: str  # that sets something
    headers: Mapping[str, str]


class DefaultBranches:
    """Sets default branches; never raises for what a forge does."""

    def __init__(self, resolve: Resolve, redactor: Redactor, ca_file: Path | None = None) -> None:
        self._resolve = resolve
        self._redactor = redactor
        self._ca_file = ca_file
        self._context: ssl.SSLContext | None = None  # made once: reading the roots takes a while

    async def follow(self, target: str, credential: Credential, head: str) -> str:
        """Have the target's default branch be ``head``, a full name. Returns why not; "" where it is."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._follow(project_of(target, credential), head.removeprefix(_BRANCHES))
        except TimeoutError:
            words = f"no answer within {TIMEOUT_S:g} s"
        except FailureError as error:
            words = error.failure.message
        except (_Refused, InvalidUrl, httpx2.HTTPError, OSError, ValueError, RecursionError) as error:
            words = str(error) or type(error).__name__
        else:
            return ""
        branch = head.removeprefix(_BRANCHES)[:WORDS_MAX]
        return one_line(
            f"the target's default branch is not {branch}: {self._redactor.clean(words)[:WORDS_MAX]}"
        )

    async def _follow(self, project: Project, branch: str) -> None:
        if any("\ud800" <= letter <= "\udfff" for letter in branch):
            raise _Refused("its name is not UTF-8, which the API cannot be told")
        parts = urlsplit(project.url)
        addresses = await self._resolve(f"{parts.scheme}://{parts.netloc}/api")
        if self._context is None:
            self._context = await asyncio.to_thread(ssl.create_default_context, cafile=self._ca_file)
        timeout = httpx2.Timeout(TIMEOUT_S, connect=CONNECT_S)
        async with httpx2.AsyncClient(
            trust_env=False, verify=self._context, follow_redirects=False, timeout=timeout
        ) as client:
            if await _ask(client, project, addresses, "GET", None) != branch:
                now = await _ask(client, project, addresses, project.method, {"default_branch": branch})
                if now != branch:
                    raise _Refused("the forge says that it was set, and it was not")


def project_of(target: str, credential: Credential) -> Project:
    """Where the API of this target is; raises ValueError where it cannot be told."""
    forge = Forge(credential.forge)
    if not credential.secret:
        raise ValueError("its credential has no token")
    parts = urlsplit(target)
    if parts.scheme not in ("https", "http", "ssh") or not parts.hostname:
        raise ValueError("its URL has no host")
    # An API is not spoken over ssh; it is asked for at the usual port of the same host.
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    base = f"https://{host}" if parts.scheme == "ssh" else f"{parts.scheme}://{parts.netloc}"
    path = unquote(parts.path).strip("/").removesuffix(".git")
    if forge is Forge.GITLAB:
        return Project(f"{base}/api/v4/projects/{quote(path, safe='')}", "PUT", _login(forge, credential))
    prefix, _, name = path.rpartition("/")
    prefix, _, owner = prefix.rpartition("/")
    if not owner or not name:
        raise ValueError("its URL has no owner and name")
    if forge is Forge.GITEA:
        base = f"{base}/{quote(prefix)}".rstrip("/") + "/api/v1"
    else:
        base = "https://api.github.com" if parts.hostname == "github.com" else f"{base}/api/v3"
    return Project(f"{base}/repos/{quote(owner)}/{quote(name)}", "PATCH", _login(forge, credential))


def _login(forge: Forge, credential: Credential) -> dict[str, str]:
    if forge is Forge.GITLAB:
        return {"PRIVATE-TOKEN": credential.secret}
    if forge is Forge.GITHUB:
        return {"Authorization": f"Bearer {credential.secret}", "Accept": "application/vnd.github+json"}
    if credential.token:
        return {"Authorization": f"token {credential.token}"}
    pair = f"{credential.login}:{credential.password}".encode()
    return {"Authorization": "Basic " + base64.b64encode(pair).decode("ascii")}


async def _ask(
    client: httpx2.AsyncClient,
    project: Project,
    addresses: tuple[str, ...],
    method: str,
    body: Mapping[str, str] | None,
) -> str:
    """One request; returns the default branch that the answer tells."""
    parts = urlsplit(project.url)
    address = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    port = parts.port or _HTTP_PORTS[parts.scheme]
    request = client.build_request(
        method,
        f"{parts.scheme}://{address}:{port}{parts.path}",
        headers={**project.headers, "Host": parts.netloc, "Accept-Encoding": "identity"},
        json=body,
        extensions={"sni_hostname": parts.hostname},
    )
    response = await client.send(request, stream=True)
    try:
        data = await _read(response)
    finally:
        await response.aclose()
    if response.status_code != 200:
        raise _Refused(f"HTTP {response.status_code} to {method}: {_message(data)}")
    told = json.loads(data)
    if not isinstance(told, dict):
        raise ValueError("the answer is not what the API promises")
    branch = told.get("default_branch")
    return branch if isinstance(branch, str) else ""


async def _read(response: httpx2.Response) -> bytes:
    data = bytearray()
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) > ANSWER_BYTES_MAX:
            raise _Refused(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
    return bytes(data)


def _message(data: bytes) -> str:
    """The forge's own words, where it has some."""
    try:
        told = json.loads(data)
        said = told.get("message") or told.get("error") if isinstance(told, dict) else None
        return str(said if said is not None else told)
    except (ValueError, RecursionError):  # no JSON, or lists in lists without end
        return data[:WORDS_MAX].decode("utf-8", "replace")
