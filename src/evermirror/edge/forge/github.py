"""GitHub's REST API: an organisation, or a person, is the group; there are no groups within groups.

Projects are listed by when they were made, the oldest first; pages have numbers (see ``pages``).
Organisations cannot be made through it. Whether a repository is empty is told by its size and last push.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote

from evermirror.edge.forge import words
from evermirror.edge.forge.common import (
    OWN_REPOS,
    conflict,
    is_me,
    look_up,
    may_be_done,
    owner_and_name,
    place_of,
    refuse_appeared,
    repo_path,
)
from evermirror.edge.forge.http import ForgeHttp, UnclearError, links_on
from evermirror.edge.forge.pages import Entry, Pile, first_part, next_part, read_cursor
from evermirror.edge.forge.words import Row
from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.forge import (
    Forge,
    FoundProject,
    Group,
    NewTarget,
    Page,
    TargetProject,
    TokenFacts,
    Visibility,
)
from evermirror.model.printable import one_line

PAGE_SIZE = 100  # the most that GitHub gives
PROTECTED_PAGES_MAX = 20
DESCRIPTION_MAX = 350
ID = "id:"  # before an account's number: no name has a colon
EXPIRES = "github-authentication-token-expiration"


class GitHub:
    """See ``ForgeApi``."""

    forge = Forge.GITHUB

    def __init__(self, http: ForgeHttp, *, signed_in: bool, page_size: int = PAGE_SIZE) -> None:
        self._http = http
        self._signed_in = signed_in
        self._page_size = page_size
        self._places: dict[str, str] = {}  # where projects of an owner are made, once known

    async def close(self) -> None:
        await self._http.close()

    async def token(self) -> TokenFacts | None:
        if not self._signed_in:
            return None
        try:
            answer = await self._http.get("/user")
        except FailureError as error:
            if error.failure.kind is FailureKind.PERMISSION_DENIED:
                return None  # an app's token
            raise
        row = words.as_row(words.parse(answer.data))
        scopes = answer.headers.get("x-oauth-scopes")  # of classic tokens only
        known = None if scopes is None else frozenset(s.strip() for s in scopes.split(",") if s.strip())
        expires_at = _moment(answer.headers.get(EXPIRES))
        return TokenFacts(words.text(row, "login"), known, expires_at, str(words.number(row, "id")))

    # As a source

    async def find_group(self, path_or_id: str) -> Group | None:
        if path_or_id.startswith(ID):
            row = await look_up(self._http, f"/user/{quote(path_or_id.removeprefix(ID), safe='')}")
        elif "/" in path_or_id:
            row = None
        else:
            row = await look_up(self._http, f"/users/{quote(path_or_id, safe='')}")
        return None if row is None else _group(row)

    async def projects(
        self, group: Group, *, subgroups: bool, archived: bool, after: str | None = None
    ) -> Page:
        """``subgroups`` means nothing here. GitHub lists archived ones always: they are left out here."""
        path = await self._list_path(group.path)
        query: dict[str, str | int] = {"sort": "created", "direction": "asc"}
        query["type"] = "all" if path.startswith("/orgs/") else "owner"

        async def fetch(page: int, size: int) -> Pile:
            return await self._pile(path, {**query, "page": page, "per_page": size}, archived)

        at = read_cursor(after, key=str)
        if at is None:
            part = await first_part(fetch, self._page_size, numbered=True)
        else:
            part = await next_part(fetch, at)
        return part.page()

    async def _list_path(self, owner: str) -> str:
        """Of an organisation, of ourselves (private ones too), or of another person (public ones)."""
        name = quote(owner, safe="")
        if await look_up(self._http, f"/orgs/{name}") is not None:
            return f"/orgs/{name}/repos"
        return OWN_REPOS if self._signed_in and await is_me(self._http, owner) else f"/users/{name}/repos"

    async def _pile(self, path: str, query: Mapping[str, str | int], archived: bool) -> Pile:
        answer = await self._http.get(path, query)
        rows = words.as_rows(words.parse(answer.data), most=int(query["per_page"]))
        entries = tuple(
            Entry(words.text(row, "created_at"), _listed(row), archived or not words.flag(row, "archived"))
            for row in rows
        )
        # GitHub leaves the header out where everything is on one page.
        return Pile(entries, bool(links_on(answer)))

    # As a target

    async def find_project(self, path: str) -> TargetProject | None:
        if path.count("/") != 1:
            return None
        row = await look_up(self._http, repo_path(path))
        return None if row is None else words.target_of(_found(row))

    async def create_group(self, path: str, visibility: Visibility) -> Group:
        found = await self.find_group(path)
        if found is not None:
            return found
        raise conflict(f"there is no organisation {path!r}, and GitHub lets nobody make one through its API")

    async def create_project(self, new: NewTarget) -> TargetProject:
        owner, name = owner_and_name(new.path)
        body: dict[str, object] = {"name": name, "description": _line(new.description)}
        if owner not in self._places:
            self._places[owner] = await place_of(self._http, owner)
        place = self._places[owner]
        if place != OWN_REPOS:
            body["visibility"] = new.visibility.value
        body["private"] = new.visibility is not Visibility.PUBLIC
        try:
            answer = await self._http.write("POST", place, body)
            return words.target_of(_found(words.as_row(words.parse(answer.data))))
        except FailureError as error:
            made = await self.find_project(new.path) if may_be_done(error) else None
            if made is None:
                raise
            return refuse_appeared(made, new)

    async def open_branches(self, project: TargetProject) -> tuple[str, ...]:
        """Branch protection is removed, branch by branch; rulesets stay: they are an administrator's, and may
        be the organisation's. GitHub makes neither by itself."""
        names = await self._protected(project)
        opened = []
        for name in names:
            path = f"{repo_path(project.path)}/branches/{quote(name, safe='')}/protection"
            try:
                await self._http.write("DELETE", path)
            except FailureError as error:
                if error.failure.kind is FailureKind.NOT_FOUND:
                    continue  # protected by a ruleset
                if not isinstance(error, UnclearError) or name in await self._protected(project):
                    raise
            opened.append(name)
        return tuple(opened)

    async def _protected(self, project: TargetProject) -> tuple[str, ...]:
        names: list[str] = []
        for page in range(1, PROTECTED_PAGES_MAX + 1):
            query: dict[str, str | int] = {"protected": "true", "page": page, "per_page": PAGE_SIZE}
            answer = await self._http.get(f"{repo_path(project.path)}/branches", query)
            names += [words.text(row, "name") for row in words.as_rows(words.parse(answer.data))]
            if not links_on(answer):
                break
        return tuple(names)


def _line(description: str) -> str:
    """GitHub takes no line breaks."""
    return one_line(description)[:DESCRIPTION_MAX]


def _group(row: Row) -> Group:
    path = words.text(row, "login")
    name = words.text_or_none(row, "name") or path
    return Group(f"{ID}{words.number(row, 'id')}", path, name, Visibility.PUBLIC)


def _found(row: Row) -> FoundProject:
    private = Visibility.PRIVATE if words.flag(row, "private") else Visibility.PUBLIC
    return FoundProject(
        id=str(words.number(row, "id")),
        path=words.text(row, "full_name"),
        http_url=words.text_or_none(row, "clone_url") or "",
        ssh_url=words.text_or_none(row, "ssh_url") or "",
        visibility=words.visibility(row) if "visibility" in row else private,
        default_branch=words.text_or_none(row, "default_branch"),
        description=words.description(row),
        archived=words.flag(row, "archived"),
        empty=row.get("size") == 0 and row.get("pushed_at") in (None, row.get("created_at")),
    )


def _listed(row: Row) -> FoundProject:
    return words.with_path_as_told(_found(row), row, "full_name")


def _moment(told: str | None) -> float | None:
    """Such as "2026-12-01 10:00:00 UTC", or with "+0200" in its place."""
    if not told:
        return None
    try:
        return (
            datetime.strptime(told.replace("UTC", "+0000"), "%Y-%m-%d %H:%M:%S %z")
            .astimezone(UTC)
            .timestamp()
        )
    except (ValueError, OverflowError):
        words.wrong(f"{EXPIRES} is not a date")
