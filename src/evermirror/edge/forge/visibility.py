"""Who may see a repository, by its forge's API; and a target made less visible.

| forge  | says                                | is changed by              |
|--------|-------------------------------------|----------------------------|
| gitlab | ``visibility``, and for its code    | PUT ``visibility``         |
|        | ``repository_access_level``         |                            |
| github | ``visibility``, ``private``         | PATCH ``visibility``       |
| gitea  | ``private``, ``internal``           | PATCH ``private``          |
| gitee  | ``private``, ``internal``           | PATCH ``private``, ``name``|

Gitea, GitHub and Gitee know no INTERNAL that could be set here: PRIVATE is set in its place. Connections go
to addresses that were checked, redirects are not followed, answers are bounded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from evermirror.edge.forge.default_branch import ANSWER_BYTES_MAX, TIMEOUT_S, Project, project_of
from evermirror.edge.forge.http import is_limit
from evermirror.edge.forge.pinned import Pinned, Resolve, TooLongError
from evermirror.edge.forge.words import WORDS_MAX, refusal
from evermirror.edge.git.credentials import Credential, Redactor
from evermirror.errors import InvalidUrl
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.forge import Forge, Visibility
from evermirror.model.printable import one_line

_TROUBLES = (TooLongError, InvalidUrl, httpx2.HTTPError, OSError, ValueError, RecursionError, TimeoutError)
_MEMBERS_ONLY = ("private", "disabled")


class Visibilities:
    """Raises ``FailureError`` for whatever a forge does."""

    def __init__(self, resolve: Resolve, redactor: Redactor, ca_file: Path | None = None) -> None:
        self._redactor = redactor
        self._pinned = Pinned(resolve, ca_file)

    async def of(self, url: str, credential: Credential) -> Visibility:
        """Of the repository at ``url``; the credential has a ``forge`` and a token."""
        return _seen(await self._asked(url, credential, None))

    async def lower(self, url: str, credential: Credential, wanted: Visibility) -> Visibility:
        """Made as visible as wanted, or less, and never more than it is; what it is then."""
        told = await self._asked(url, credential, None)
        if (now := _seen(told)).rank <= wanted.rank:
            return now
        if Forge(credential.forge) is Forge.GITLAB:
            change: dict[str, object] = {"visibility": wanted.value}
        elif Forge(credential.forge) is Forge.GITHUB:
            change = {"visibility": Visibility.PRIVATE.value}
        elif Forge(credential.forge) is Forge.GITEE:
            change = {"private": True, "name": str(told.get("name") or "")}
        else:
            change = {"private": True}
        return _seen(await self._asked(url, credential, change))

    async def _asked(
        self, url: str, credential: Credential, change: Mapping[str, object] | None
    ) -> Mapping[str, object]:
        try:
            project = project_of(url, credential)
        except ValueError as error:  # the API has no project of that address
            raise self._failed(url, str(error), 404) from error
        try:
            async with asyncio.timeout(TIMEOUT_S), await self._pinned.client(TIMEOUT_S) as client:
                return await self._answered(client, url, project, change)
        except _TROUBLES as error:
            raise self._failed(url, str(error) or type(error).__name__) from error

    async def _answered(
        self, client: httpx2.AsyncClient, url: str, project: Project, change: Mapping[str, object] | None
    ) -> Mapping[str, object]:
        method = "GET" if change is None else project.method
        answer = await self._pinned.send(
            client, method, project.url, project.headers, change, ANSWER_BYTES_MAX
        )
        if answer.status != 200:
            said = refusal(answer.data)
            limited = answer.status == 403 and is_limit(answer, said)
            status = 0 if limited else answer.status
            raise self._failed(url, f"HTTP {answer.status} to {method}: {said}", status)
        told = json.loads(answer.data)
        if not isinstance(told, dict):
            raise ValueError("the answer is not what the API promises")
        return told

    def _failed(self, url: str, words: str, status: int = 0) -> FailureError:
        """``status``: of an answer that is about this token and this repository."""
        host, clean = urlsplit(url).hostname, one_line(self._redactor.clean(words))[:WORDS_MAX]
        return FailureError(
            Failure(
                FailureKind.NETWORK_TIMEOUT,
                f"{host} does not say who may see it: {clean}",
                context={"status": str(status)} if status else {},
            )
        )


def _seen(told: Mapping[str, object]) -> Visibility:
    """What is not said to be public is private; so is code that a project shows to its members only."""
    if told.get("repository_access_level") in _MEMBERS_ONLY:
        return Visibility.PRIVATE
    named = told.get("visibility")
    if named in [visibility.value for visibility in Visibility]:
        return Visibility(named)
    if told.get("internal") is True:
        return Visibility.INTERNAL
    return Visibility.PUBLIC if told.get("private") is False else Visibility.PRIVATE
