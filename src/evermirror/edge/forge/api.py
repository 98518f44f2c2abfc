"""What is asked of a forge, in its API's own terms. One file for each forge; they share ``http.py``.

Whatever goes wrong is a ``FailureError``; its kind tells what to do:

| kind              | answers                                                                             |
|-------------------|-------------------------------------------------------------------------------------|
| AUTH_FAILED       | 401; an expired or revoked token                                                    |
| PERMISSION_DENIED | 403: the token lacks a scope, or its owner a role (the message names what is needed)|
| NOT_FOUND         | 404                                                                                 |
| RATE_LIMITED      | 429, and 403 that is a rate limit: with retry_after_s                               |
| CONFLICT          | 400, 409, 422: a name that is taken or refused, in the forge's own words; a project |
|                   | that was moved away from its path (redirects are not followed)                      |
| NETWORK_TIMEOUT   | 5xx, time-outs, an answer cut short                                                 |
| UNKNOWN           | what is not JSON, or not what the API promises                                      |
"""

from __future__ import annotations

from typing import Protocol

from evermirror.model.forge import Forge, Group, NewTarget, Page, TargetProject, TokenFacts, Visibility


class ForgeApi(Protocol):
    """One instance with one token (or none). Requests are paced, answers and waits bounded."""

    @property
    def forge(self) -> Forge: ...

    async def token(self) -> TokenFacts | None:
        """Who asks. None: the forge cannot tell, or there is no token. AUTH_FAILED: the forge takes us for
        nobody, also where it answers everything else as to anybody (a Gitea before 1.20 does)."""
        ...

    async def close(self) -> None:
        """Ends its connections."""
        ...

    # As a source

    async def find_group(self, path_or_id: str) -> Group | None: ...

    async def projects(
        self, group: Group, *, subgroups: bool, archived: bool, after: str | None = None
    ) -> Page:
        """One page of what is in the group, in an order that a project made or removed meanwhile does not
        shift: none is left out or told twice by that."""
        ...

    # As a target

    async def find_project(self, path: str) -> TargetProject | None: ...

    async def create_group(self, path: str, visibility: Visibility) -> Group:
        """With the parents that are missing; one that is there already is answered as it is."""
        ...

    async def create_project(self, new: NewTarget) -> TargetProject:
        """One that appeared meanwhile is CONFLICT."""
        ...

    async def open_branches(self, project: TargetProject) -> tuple[str, ...]:
        """Protected branches of a project that is a mirror are opened for what a mirror must do: be rewritten
        and deleted. Returns those that were changed."""
        ...
