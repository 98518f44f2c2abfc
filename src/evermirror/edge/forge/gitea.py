"""Gitea's REST API, v1: an organisation, or a person, is the group; there are no groups within groups.

Projects are those of ``/repos/search`` of one owner, by id: the only list of Gitea whose order is documented.
Its pages have numbers (see ``pages``), and at most 50 projects, or fewer where the instance is set so.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from evermirror.edge.forge import words
from evermirror.edge.forge.common import (
    conflict,
    look_up,
    may_be_done,
    owner_and_name,
    place_of,
    refuse_appeared,
    remove_each,
    repo_path,
)
from evermirror.edge.forge.http import ForgeHttp, count_in, links_on
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

PAGE_SIZE = 50  # Gitea's usual bound
DESCRIPTION_MAX = 2_048
OWNER_PAGES_MAX = 40
ID = "id:"  # before an owner's number: no name has a colon
_VISIBLE = {Visibility.PUBLIC: "public", Visibility.INTERNAL: "limited", Visibility.PRIVATE: "private"}
_SEEN = {"public": Visibility.PUBLIC, "limited": Visibility.INTERNAL}


class Gitea:
    """See ``ForgeApi``."""

    forge = Forge.GITEA

    def __init__(self, http: ForgeHttp, *, signed_in: bool, page_size: int = PAGE_SIZE) -> None:
        self._http = http
        self._signed_in = signed_in
        self._page_size = page_size
        self._places: dict[str, str] = {}  # where projects of an owner are made, once known

    async def close(self) -> None:
        await self._http.close()

    async def token(self) -> TokenFacts | None:
        """Gitea tells neither scopes nor an end. A token that lacks the scope for this is somebody's all the
        same; nobody is refused."""
        if not self._signed_in:
            return None
        try:
            row = words.as_row(words.parse((await self._http.get("/user")).data))
        except FailureError as error:
            if error.failure.kind is FailureKind.PERMISSION_DENIED:
                return None
            raise
        return TokenFacts(words.text(row, "login"), None, None, str(words.number(row, "id")))

    # As a source

    async def find_group(self, path_or_id: str) -> Group | None:
        if path_or_id.startswith(ID):
            return await self._owner_by_id(path_or_id)
        if "/" in path_or_id:
            return None
        name = quote(path_or_id, safe="")
        row = await look_up(self._http, f"/orgs/{name}") or await look_up(self._http, f"/users/{name}")
        return None if row is None else _group(row)

    async def _owner_by_id(self, owner: str) -> Group | None:
        """Gitea finds owners by name only. A project of theirs names them; one without any is looked for
        among all organisations, or people."""
        rows, _ = await self._search({"uid": owner.removeprefix(ID), "exclusive": "true", "limit": 1})
        if rows:
            return _group(words.as_row(rows[0].get("owner"), "an owner"))
        return await self._organisation(owner) or await self._person(owner)

    async def _organisation(self, owner: str) -> Group | None:
        for page in range(1, OWNER_PAGES_MAX + 1):
            answer = await self._http.get("/orgs", {"page": page, "limit": PAGE_SIZE})
            rows = words.as_rows(words.parse(answer.data), most=PAGE_SIZE)
            found = next((group for group in map(_group, rows) if group.id == owner), None)
            if found is not None or not rows:
                return found
        return None

    async def _person(self, owner: str) -> Group | None:
        answer = await self._http.get("/users/search", {"uid": owner.removeprefix(ID)})
        rows = words.as_rows(
            words.as_row(words.parse(answer.data)).get("data") or [], "'data'", most=PAGE_SIZE
        )
        return next((group for group in map(_group, rows) if group.id == owner), None)

    async def projects(
        self, group: Group, *, subgroups: bool, archived: bool, after: str | None = None
    ) -> Page:
        query: dict[str, str | int] = {
            "uid": group.id.removeprefix(ID),
            "exclusive": "true",
            "sort": "id",
            "order": "asc",
        }
        if not archived:
            query["archived"] = "false"

        async def fetch(page: int, size: int) -> Pile:
            return (await self._search({**query, "page": page, "limit": size}))[1]

        at = read_cursor(after, key=int)
        if at is None:
            part = await first_part(fetch, self._page_size, numbered=True)
        else:
            part = await next_part(fetch, at)
        return part.page()

    async def _search(self, query: Mapping[str, str | int]) -> tuple[list[Row], Pile]:
        answer = await self._http.get("/repos/search", query)
        told = words.as_row(words.parse(answer.data)).get("data")
        rows = words.as_rows(told, "'data'", most=int(query["limit"]))
        archived = query.get("archived") != "false"  # which instances before 1.13 do not know
        entries = tuple(
            Entry(words.number(row, "id"), _listed(row), archived or not words.flag(row, "archived"))
            for row in rows
        )
        more = links_on(answer)
        full = len(rows) >= int(query["limit"])
        return rows, Pile(entries, full if more is None else more, count_in(answer, "x-total-count"))

    # As a target

    async def find_project(self, path: str) -> TargetProject | None:
        if path.count("/") != 1:
            return None
        row = await look_up(self._http, repo_path(path))
        return None if row is None else _target(row)

    async def create_group(self, path: str, visibility: Visibility) -> Group:
        found = await self.find_group(path)
        if found is not None:
            return found
        if "/" in path:
            raise conflict(f"{path!r}: Gitea has no groups within groups; name an organisation")
        body = {"username": path, "visibility": _VISIBLE[visibility]}
        try:
            answer = await self._http.write("POST", "/orgs", body)
            return _group(words.as_row(words.parse(answer.data)))
        except FailureError as error:
            may_be_there = may_be_done(error) or error.failure.kind is FailureKind.CONFLICT
            made = await self.find_group(path) if may_be_there else None
            if made is None:
                raise
            return made

    async def create_project(self, new: NewTarget) -> TargetProject:
        owner, name = owner_and_name(new.path)
        body: dict[str, object] = {
            "name": name,
            "description": new.description[:DESCRIPTION_MAX],
            "private": new.visibility is not Visibility.PUBLIC,
        }
        if new.default_branch is not None:
            body["default_branch"] = new.default_branch
        try:
            if owner not in self._places:
                self._places[owner] = await place_of(self._http, owner)
            answer = await self._http.write("POST", self._places[owner], body)
            return _target(words.as_row(words.parse(answer.data)))
        except FailureError as error:
            made = await self.find_project(new.path) if may_be_done(error) else None
            if made is None:
                raise
            return refuse_appeared(made, new)

    async def open_branches(self, project: TargetProject) -> tuple[str, ...]:
        """The rules are removed; Gitea makes none by itself."""
        path = f"{repo_path(project.path)}/branch_protections"
        names = await self._rules(path)
        await remove_each(self._http, path, names, lambda: self._rules(path))
        return names

    async def _rules(self, path: str) -> tuple[str, ...]:
        rows = words.as_rows(words.parse((await self._http.get(path)).data))
        names = (words.text_or_none(row, "rule_name") or words.text(row, "branch_name") for row in rows)
        return tuple(names)


def _group(row: Row) -> Group:
    """An organisation has a ``username`` (and, since 1.18, a ``name``), a person a ``login``."""
    path = words.text_or_none(row, "username") or words.text_or_none(row, "login") or words.text(row, "name")
    name = words.text_or_none(row, "full_name") or path
    shown = row.get("visibility")
    seen = _SEEN.get(shown, Visibility.PRIVATE) if isinstance(shown, str) else Visibility.PRIVATE
    return Group(f"{ID}{words.number(row, 'id')}", path, name, seen)


def _found(row: Row) -> FoundProject:
    hidden = Visibility.INTERNAL if words.flag(row, "internal") else Visibility.PRIVATE
    return FoundProject(
        id=str(words.number(row, "id")),
        path=words.text(row, "full_name"),
        http_url=words.text_or_none(row, "clone_url") or "",
        ssh_url=words.text_or_none(row, "ssh_url") or "",
        visibility=hidden if words.flag(row, "private") or words.flag(row, "internal") else Visibility.PUBLIC,
        default_branch=words.text_or_none(row, "default_branch"),
        description=words.description(row),
        archived=words.flag(row, "archived"),
        empty=words.flag(row, "empty"),
    )


def _listed(row: Row) -> FoundProject:
    return words.with_path_as_told(_found(row), row, "full_name")


def _target(row: Row) -> TargetProject:
    return words.target_of(_found(row))
