"""GitLab's REST API, v4.

A group's projects are listed by id, each page by what comes after the last id (``id_after``). GitLab
documents that filter for all projects only; a server that ignores it for a group answers with its first page
again, which is noticed: then pages are asked for by number (see ``pages``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from urllib.parse import quote

from evermirror.edge.forge import words
from evermirror.edge.forge.common import (
    absent,
    conflict,
    look_up,
    may_be_done,
    refuse_appeared,
    remove_each,
)
from evermirror.edge.forge.http import ForgeHttp, count_in, links_on
from evermirror.edge.forge.pages import (
    Cursor,
    Entry,
    Part,
    Pile,
    first_part,
    next_part,
    part_of,
    read_cursor,
)
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

PAGE_SIZE = 100  # the most that GitLab gives
PROTECTED_PAGES_MAX = 20
SEARCH_PAGES_MAX = 20
ID = "id:"  # before a group's number: a path may be a number, too
DESCRIPTION_MAX = 2_000
ID_DIGITS_MAX = 18
_WITHOUT_PROJECTS = {"with_projects": "false"}
_DOOMED = re.compile(r"-deletion_scheduled-[0-9]+$")


class GitLab:
    """See ``ForgeApi``."""

    forge = Forge.GITLAB

    def __init__(self, http: ForgeHttp, *, signed_in: bool, page_size: int = PAGE_SIZE) -> None:
        self._http = http
        self._signed_in = signed_in
        self._page_size = page_size
        self._namespaces: dict[str, Group] = {}  # those that projects are made in, once known

    async def close(self) -> None:
        await self._http.close()

    async def token(self) -> TokenFacts | None:
        if not self._signed_in:
            return None
        try:
            row = words.as_row(words.parse((await self._http.get("/personal_access_tokens/self")).data))
        except FailureError as error:
            if error.failure.kind in (FailureKind.NOT_FOUND, FailureKind.PERMISSION_DENIED):
                return await self._user()  # before 15.5, or a token of another kind
            raise
        scopes = row.get("scopes")
        known = frozenset(str(s) for s in scopes) if isinstance(scopes, list) else None
        expires_at = _midnight(words.text_or_none(row, "expires_at"))
        return TokenFacts(words.text(row, "name"), known, expires_at, _number_or_none(row, "user_id"))

    async def _user(self) -> TokenFacts | None:
        try:
            row = words.as_row(words.parse((await self._http.get("/user")).data))
        except FailureError as error:
            if error.failure.kind in (FailureKind.NOT_FOUND, FailureKind.PERMISSION_DENIED):
                return None  # it may not be asked
            raise
        return TokenFacts(words.text(row, "username"), None, None, _number_or_none(row, "id"))

    # As a source

    async def find_group(self, path_or_id: str) -> Group | None:
        if path_or_id.startswith(ID):
            row = await look_up(self._http, f"/groups/{_number_in(path_or_id)}", _WITHOUT_PROJECTS)
        else:
            row = await self._at(path_or_id, "/groups", _WITHOUT_PROJECTS)
        return None if row is None or _is_doomed(row, "full_path") else _group(row)

    async def _at(self, path: str, kind: str, query: Mapping[str, str | int] | None = None) -> Row | None:
        """The group, or namespace, of this path. GitLab takes a path of digits for a number, and answers with
        another one: such a path is searched for."""
        if path.isascii() and path.isdigit():
            return await self._searched(path, kind)
        row = await look_up(self._http, f"{kind}/{quote(path, safe='')}", query)
        return None if row is None else _checked(row, "full_path", path)

    async def _searched(self, path: str, kind: str) -> Row | None:
        for page in range(1, SEARCH_PAGES_MAX + 1):
            answer = await self._http.get(kind, {"search": path, "page": page, "per_page": PAGE_SIZE})
            for row in words.as_rows(words.parse(answer.data), most=PAGE_SIZE):
                if words.text(row, "full_path") == path:
                    return row
            if not links_on(answer):
                return None
        raise conflict(f"too many groups have {path!r} in their names; use a group with letters in its path")

    async def projects(
        self, group: Group, *, subgroups: bool, archived: bool, after: str | None = None
    ) -> Page:
        query: dict[str, str | int] = {"order_by": "id", "sort": "asc", "with_shared": "false"}
        query["include_subgroups"] = "true" if subgroups else "false"
        if not archived:
            query["archived"] = "false"
        path = f"/groups/{_number_in(group.id)}/projects"

        async def fetch(page: int, size: int) -> Pile:
            return await self._pile(path, {**query, "page": page, "per_page": size})

        at = read_cursor(after, key=int)
        if at is None:
            part = await first_part(fetch, self._page_size, numbered=False)
        elif at.numbered:
            part = await next_part(fetch, at)
        else:
            part = await self._part_after(at, path, query) or await next_part(fetch, _by_number(at))
        return part.page()

    async def _part_after(self, at: Cursor, path: str, query: Mapping[str, str | int]) -> Part | None:
        """None: the filter was ignored."""
        pile = await self._pile(path, {**query, "id_after": at.key, "per_page": self._page_size})
        if any(int(entry.key) <= int(at.key) for entry in pile.entries):
            return None
        total = None if pile.total is None else at.told + pile.total
        return part_of(at, Pile(pile.entries, pile.more, total), pile.entries, at.told)

    async def _pile(self, path: str, query: Mapping[str, str | int]) -> Pile:
        answer = await self._http.get(path, query)
        rows = words.as_rows(words.parse(answer.data), most=int(query["per_page"]))
        entries = tuple(
            Entry(words.number(row, "id"), _listed(row), not _is_doomed(row, "path_with_namespace"))
            for row in rows
        )
        more = links_on(answer)
        full = len(rows) >= int(query["per_page"])
        return Pile(entries, full if more is None else more, count_in(answer, "x-total"))

    # As a target

    async def find_project(self, path: str) -> TargetProject | None:
        row = await look_up(self._http, f"/projects/{quote(path, safe='')}")
        return None if row is None else _target(_checked(row, "path_with_namespace", path))

    async def create_group(self, path: str, visibility: Visibility) -> Group:
        found = await self._namespace(path)
        if found is not None:
            self._namespaces[path] = found
            return found
        parent_path, _, name = path.rpartition("/")
        body: dict[str, object] = {"name": name, "path": name, "visibility": visibility.value}
        if parent_path:
            body["parent_id"] = _number_in((await self.create_group(parent_path, visibility)).id)
        try:
            answer = await self._http.write("POST", "/groups", body)
            return _group(words.as_row(words.parse(answer.data)))
        except FailureError as error:
            may_be_there = may_be_done(error) or error.failure.kind is FailureKind.CONFLICT
            made = await self._namespace(path) if may_be_there else None
            if made is None:
                raise
            return made

    async def create_project(self, new: NewTarget) -> TargetProject:
        parent_path, _, name = new.path.rpartition("/")
        parent = self._namespaces.get(parent_path) or await self._namespace(parent_path)
        if parent is None:
            raise absent(f"there is no group {parent_path!r} at the target")
        self._namespaces[parent_path] = parent
        body: dict[str, object] = {
            "name": new.name,
            "path": name,
            "namespace_id": _number_in(parent.id),
            "visibility": new.visibility.value,
            "description": new.description[:DESCRIPTION_MAX],
        }
        if new.default_branch is not None:
            body["default_branch"] = new.default_branch
        try:
            answer = await self._http.write("POST", "/projects", body)
            return _target(_checked(words.as_row(words.parse(answer.data)), "path_with_namespace", new.path))
        except FailureError as error:
            self._namespaces.pop(parent_path, None)  # it may be another one's by now
            made = await self.find_project(new.path) if may_be_done(error) else None
            if made is None:
                raise
            return refuse_appeared(made, new)

    async def open_branches(self, project: TargetProject) -> tuple[str, ...]:
        """They are unprotected: a protected branch, however open, cannot be deleted by a push. A group's own
        protection stays; it is not ours."""
        path = f"/projects/{quote(project.id, safe='')}/protected_branches"
        names = await self._protected(path)
        await remove_each(self._http, path, names, lambda: self._protected(path))
        return names

    async def _protected(self, path: str) -> tuple[str, ...]:
        """The project's own rules."""
        names: list[str] = []
        for page in range(1, PROTECTED_PAGES_MAX + 1):
            answer = await self._http.get(path, {"page": page, "per_page": PAGE_SIZE})
            rows = words.as_rows(words.parse(answer.data))
            names += [words.text(row, "name") for row in rows if not words.flag(row, "inherited")]
            if not links_on(answer):
                break
        return tuple(names)

    async def _namespace(self, path: str) -> Group | None:
        """A group, or a person's own namespace, whose projects may have any visibility."""
        group = await self.find_group(path)
        if group is not None or "/" in path:
            return group
        row = await self._at(path, "/namespaces")
        if row is None or row.get("kind") != "user":
            return None
        return Group(
            f"{ID}{words.number(row, 'id')}",
            words.text(row, "full_path"),
            words.text(row, "name"),
            Visibility.PUBLIC,
        )


def _number_in(group_id: str) -> int:
    told = group_id.removeprefix(ID)
    if len(told) > ID_DIGITS_MAX or not (told.isascii() and told.isdigit()):
        words.wrong("a group's id is not a number")
    return int(told)


def _number_or_none(row: Row, name: str) -> str | None:
    return None if row.get(name) is None else str(words.number(row, name))


def _checked(row: Row, name: str, path: str) -> Row:
    """What was asked for by its path, and nothing else; case does not count."""
    told = words.text(row, name)
    if told.casefold() != path.casefold():
        raise conflict(f"asked for {path!r}, the forge answers with {told!r}")
    return row


def _group(row: Row) -> Group:
    return Group(
        id=f"{ID}{words.number(row, 'id')}",
        path=words.text(row, "full_path"),
        name=words.text(row, "name"),
        visibility=words.visibility(row),
    )


def _found(row: Row) -> FoundProject:
    return FoundProject(
        id=str(words.number(row, "id")),
        path=words.text(row, "path_with_namespace"),
        http_url=words.text_or_none(row, "http_url_to_repo") or "",
        ssh_url=words.text_or_none(row, "ssh_url_to_repo") or "",
        visibility=words.visibility(row),
        default_branch=words.text_or_none(row, "default_branch"),
        description=words.description(row),
        archived=words.flag(row, "archived"),
        empty=words.flag(row, "empty_repo"),
    )


def _listed(row: Row) -> FoundProject:
    return words.with_path_as_told(_found(row), row, "path_with_namespace")


def _is_doomed(row: Row, path: str) -> bool:
    """Deleted by somebody, and kept under another path for some days: it is no longer in its group. What is
    inside a group that is deleted has no mark of its own, but the group's path."""
    marked = any(row.get(name) is not None for name in ("marked_for_deletion_on", "marked_for_deletion_at"))
    return marked or any(_DOOMED.search(part) for part in words.text(row, path).split("/"))


def _target(row: Row) -> TargetProject:
    return words.target_of(_found(row))


def _by_number(at: Cursor) -> Cursor:
    return Cursor(at.index, at.key, at.ties, at.size, True, at.told)


def _midnight(day: str | None) -> float | None:
    """GitLab's tokens are good until the day that they tell begins, in UTC."""
    if day is None:
        return None
    try:
        begins = datetime.combine(date.fromisoformat(day[:10]), datetime.min.time(), UTC)
    except ValueError:
        words.wrong("'expires_at' is not a date")
    return begins.timestamp()
