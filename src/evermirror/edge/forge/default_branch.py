"""The default branch of a target: a push cannot set it, the forge's API can.

| forge  | the project                                     | set by |
|--------|-------------------------------------------------|--------|
| gitlab | /api/v4/projects/<the whole path, encoded>      | PUT    |
| gitea  | /api/v1/repos/<owner>/<name>                    | PATCH  |
| github | api.github.com/repos/…, else /api/v3/repos/…    | PATCH  |
| gitee  | /api/v5/repos/<owner>/<name>                    | PATCH  |

Each answers GET with ``default_branch``, and takes ``{"default_branch": …}``; Gitee wants the project's name
said with it, which is the one that it has. Connections go to addresses
that were checked, redirects are not followed, answers are bounded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import httpx2

from evermirror.edge.forge.login import login_headers
from evermirror.edge.forge.pinned import Pinned, Resolve, TooLongError
from evermirror.edge.forge.words import WORDS_MAX, refusal
from evermirror.edge.git.credentials import Credential, Redactor
from evermirror.errors import InvalidUrl
from evermirror.model.failure import FailureError
from evermirror.model.forge import Forge
from evermirror.model.printable import one_line

TIMEOUT_S = 30.0  # for both requests together
ANSWER_BYTES_MAX = 1_000_000  # a project's description has some kilobytes
_BRANCHES = "refs/heads/"


class _Refused(Exception):
    """The API said no; the message says how."""


_TROUBLES = (_Refused, TooLongError, InvalidUrl, httpx2.HTTPError, OSError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Project:
    """A target as its forge's API knows it. ``url`` has the host's name, not an address."""

    url: str
    method: str  # that sets something
    headers: Mapping[str, str]
    says_name: bool = False  # with every change


class DefaultBranches:
    """Sets default branches; never raises for what a forge does."""

    def __init__(self, resolve: Resolve, redactor: Redactor, ca_file: Path | None = None) -> None:
        self._redactor = redactor
        self._pinned = Pinned(resolve, ca_file)

    async def follow(self, target: str, credential: Credential, head: str) -> str:
        """Have the target's default branch be ``head``, a full name. Returns why not; "" where it is."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._follow(project_of(target, credential), head.removeprefix(_BRANCHES))
        except TimeoutError:
            words = f"no answer within {TIMEOUT_S:g} s"
        except FailureError as error:
            words = error.failure.message
        except _TROUBLES as error:
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
        async with await self._pinned.client(TIMEOUT_S) as client:
            told = await self._ask(client, project, "GET", None)
            if told.get("default_branch") == branch:
                return
            name = {"name": str(told.get("name") or "")} if project.says_name else {}
            now = await self._ask(client, project, project.method, {**name, "default_branch": branch})
            if now.get("default_branch") != branch:
                raise _Refused("the forge says that it was set, and it was not")

    async def _ask(
        self, client: httpx2.AsyncClient, project: Project, method: str, body: Mapping[str, str] | None
    ) -> Mapping[str, object]:
        """One request; returns the project that the answer tells of."""
        url, headers = project.url, project.headers
        answer = await self._pinned.send(client, method, url, headers, body, ANSWER_BYTES_MAX)
        if answer.status != 200:
            raise _Refused(f"HTTP {answer.status} to {method}: {refusal(answer.data)}")
        told = json.loads(answer.data)
        if not isinstance(told, dict):
            raise ValueError("the answer is not what the API promises")
        return told


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
        return Project(
            f"{base}/api/v4/projects/{quote(path, safe='')}", "PUT", login_headers(forge, credential)
        )
    prefix, _, name = path.rpartition("/")
    prefix, _, owner = prefix.rpartition("/")
    if not owner or not name:
        raise ValueError("its URL has no owner and name")
    if forge is Forge.GITHUB:
        base = "https://api.github.com" if parts.hostname == "github.com" else f"{base}/api/v3"
    else:
        version = "v1" if forge is Forge.GITEA else "v5"
        base = f"{base}/{quote(prefix)}".rstrip("/") + f"/api/{version}"
    url = f"{base}/repos/{quote(owner)}/{quote(name)}"
    return Project(url, "PATCH", login_headers(forge, credential), says_name=forge is Forge.GITEE)
