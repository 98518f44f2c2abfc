"""A stand-in for GitHub (as an Enterprise Server), from the documented REST API: accounts, repositories,
protected branches, the headers about tokens and limits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote, urlencode

from tests.support.backend import Request
from tests.support.forges.api_server import ApiError, Ask, GroupRow, ProjectRow, Token, Told
from tests.support.forges.github_hooks import ENOUGH, HOOK_ROUTES, GitHubHookRoutes

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
PAGE_MAX = 100


@dataclass
class GitHubServer(GitHubHookRoutes):
    """A token's name is its owner's; ``expires`` as "2026-12-01 10:00:00 UTC"."""

    api_root: str = "/api/v3"

    def token_of(self, request: Request) -> Token | None:
        value = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not value:
            return None
        token = self.tokens.get(value)
        if token is None or token.expired:
            raise ApiError(401, {"message": "Bad credentials", "status": "401"})
        return token

    def may_git(self, token: Token, write: bool) -> bool:
        return bool({"api", "repo"} & set(token.scopes))

    def route(self, ask: Ask) -> Told:
        if ask.method != "GET":
            if ask.token is None:
                raise ApiError(401, {"message": "Requires authentication", "status": "401"})
            enough = ENOUGH if "/hooks" in ask.path else {"api", "repo"}
            if not enough & set(ask.token.scopes):
                words = "Resource not accessible by personal access token"
                raise ApiError(403, {"message": words, "status": "403"})
        headers = {}
        if ask.token is not None:
            headers["X-OAuth-Scopes"] = ", ".join(ask.token.scopes)
            if ask.token.expires is not None:
                headers["github-authentication-token-expiration"] = ask.token.expires
        for method, pattern, name in _ROUTES:
            match = re.fullmatch(pattern, ask.path)
            if match is not None and method == ask.method:
                route: Callable[..., Told] = getattr(self, name)
                told = route(ask, *(unquote(part) for part in match.groups()))
                return Told(told.value, told.status, {**headers, **told.headers})
        raise ApiError(404, {"message": "Not Found", "status": "404"})

    # Accounts

    def me(self, ask: Ask) -> Told:
        if ask.token is None:
            raise ApiError(401, {"message": "Requires authentication", "status": "401"})
        return Told({"id": ask.token.user_id, "login": ask.token.name, "type": "User", "name": None})

    def show_user(self, ask: Ask, name: str) -> Told:
        return Told(_account_json(self._account(self.group_at(name))))

    def show_by_id(self, ask: Ask, number: str) -> Told:
        return Told(_account_json(self._account(self.groups.get(int(number)))))

    def show_org(self, ask: Ask, name: str) -> Told:
        row = self._account(self.group_at(name))
        if row.kind != "group":
            raise ApiError(404, {"message": "Not Found", "status": "404"})
        return Told(_account_json(row))

    def _account(self, row: GroupRow | None) -> GroupRow:
        if row is None:
            raise ApiError(404, {"message": "Not Found", "status": "404"})
        return row

    # Repositories

    def list_of_org(self, ask: Ask, owner: str) -> Told:
        return self._list(ask, owner, {"public", "internal", "private"})

    def list_of_user(self, ask: Ask, owner: str) -> Told:
        return self._list(ask, owner, {"public"})

    def list_mine(self, ask: Ask) -> Told:
        assert ask.token is not None
        return self._list(ask, ask.token.name, {"public", "private"})

    def _list(self, ask: Ask, owner: str, kinds: set[str]) -> Told:
        account = self._account(self.group_at(owner))
        rows = [
            p
            for p in self.projects.values()
            if p.path.startswith(account.path + "/")
            and p.visibility in kinds
            and self.sees(ask.token, p.path, p.visibility)
        ]
        by = ask.query.get("sort", "created")
        descending = ask.query.get("direction", "asc" if by == "full_name" else "desc") == "desc"
        rows.sort(
            key=lambda p: (p.created_at, p.id) if by == "created" else (p.path, p.id), reverse=descending
        )
        size, page = min(PAGE_MAX, int(ask.query.get("per_page", 30))), int(ask.query.get("page", 1))
        headers = {}
        if page * size < len(rows):
            query = urlencode({**ask.query, "page": str(page + 1)})
            headers["Link"] = f'<{self.base_url}{self.api_root}{ask.path}?{query}>; rel="next"'
        return Told([self._repo_json(p) for p in rows[(page - 1) * size : page * size]], 200, headers)

    def _repo(self, ask: Ask, owner: str, name: str) -> ProjectRow:
        path = f"{owner}/{name}"
        row = self.project_at(path)
        moved = self.projects.get(self.moved.get(path, -1)) if row is None else None
        if moved is not None and ask.method == "GET":
            to = f"{self.base_url}{self.api_root}/repositories/{moved.id}"
            raise ApiError(301, {"message": "Moved Permanently", "url": to}, {"Location": to})
        if row is None or not self.sees(ask.token, row.path, row.visibility):
            raise ApiError(404, {"message": "Not Found", "status": "404"})
        return row

    def _move(self, row: ProjectRow, new_path: str) -> None:
        old = row.path
        super()._move(row, new_path)
        self.renamed(row, old, new_path)

    def show_repo(self, ask: Ask, owner: str, name: str) -> Told:
        return Told(self._repo_json(self._repo(ask, owner, name)))

    def create_in_org(self, ask: Ask, owner: str) -> Told:
        return self._create(ask, self._account(self.group_at(owner)))

    def create_mine(self, ask: Ask) -> Told:
        assert ask.token is not None
        return self._create(ask, self._account(self.group_at(ask.token.name)))

    def _create(self, ask: Ask, owner: GroupRow) -> Told:
        name = str(ask.data.get("name", ""))
        problem = ""
        if not _NAME.fullmatch(name) or name in (".", ".."):
            problem = "name is invalid"
        elif self.project_at(f"{owner.path}/{name}") is not None:
            problem = "name already exists on this account"
        if problem:
            errors = [{"resource": "Repository", "code": "custom", "field": "name", "message": problem}]
            raise ApiError(422, {"message": "Repository creation failed.", "errors": errors, "status": "422"})
        visibility = str(ask.data.get("visibility") or ("private" if ask.data.get("private") else "public"))
        row = self.make_project(
            f"{owner.path}/{name}", visibility, description=str(ask.data.get("description") or "")
        )
        return Told(self._repo_json(row), 201)

    def change_repo(self, ask: Ask, owner: str, name: str) -> Told:
        row = self._repo(ask, owner, name)
        branch = ask.data.get("default_branch")
        if branch is not None and not self.set_default_branch(row, str(branch)):
            raise ApiError(422, {"message": f"The branch {branch} was not found.", "status": "422"})
        if "description" in ask.data:
            row.description = str(ask.data["description"] or "")
        row.visibility = str(ask.data.get("visibility", row.visibility))
        return Told(self._repo_json(row))

    # Protection

    def list_branches(self, ask: Ask, owner: str, name: str) -> Told:
        row = self._repo(ask, owner, name)
        rules = self.protected(row.path)
        names = [
            n.removeprefix("refs/heads/") for n in self.repo(row.path).refs() if n.startswith("refs/heads/")
        ]
        if ask.query.get("protected") == "true":
            names = [n for n in names if n in rules]
        return Told([{"name": n, "protected": n in rules} for n in names])

    def unprotect_branch(self, ask: Ask, owner: str, name: str, branch: str) -> Told:
        row = self._repo(ask, owner, name)
        if branch not in self.protected(row.path):
            raise ApiError(404, {"message": "Branch not protected", "status": "404"})
        self.unprotect(row.path, branch)
        return Told(None, 204)

    def _repo_json(self, row: ProjectRow) -> dict[str, object]:
        empty = self.is_empty(row)
        return {
            "id": row.id,
            "name": row.path.rpartition("/")[2],
            "full_name": row.path,
            "description": row.description or None,
            "private": row.visibility != "public",
            "visibility": row.visibility,
            "archived": row.archived,
            "default_branch": self.default_branch(row) or "main",
            "size": 0 if empty else 1,
            "created_at": row.created_at,
            "pushed_at": row.created_at if empty else "2026-06-01T00:00:00Z",
            "clone_url": self.url(f"{row.path}.git"),
            "ssh_url": self.ssh_url(row.path),
        }


_ROUTES = (
    ("GET", r"/user", "me"),
    ("GET", r"/user/repos", "list_mine"),
    ("POST", r"/user/repos", "create_mine"),
    ("GET", r"/user/(\d+)", "show_by_id"),
    ("GET", r"/users/([^/]+)", "show_user"),
    ("GET", r"/users/([^/]+)/repos", "list_of_user"),
    ("GET", r"/orgs/([^/]+)", "show_org"),
    ("GET", r"/orgs/([^/]+)/repos", "list_of_org"),
    ("POST", r"/orgs/([^/]+)/repos", "create_in_org"),
    ("GET", r"/repos/([^/]+)/([^/]+)", "show_repo"),
    ("PATCH", r"/repos/([^/]+)/([^/]+)", "change_repo"),
    ("GET", r"/repos/([^/]+)/([^/]+)/branches", "list_branches"),
    ("DELETE", r"/repos/([^/]+)/([^/]+)/branches/([^/]+)/protection", "unprotect_branch"),
    *HOOK_ROUTES,
)


def _account_json(row: GroupRow) -> dict[str, object]:
    kind = "Organization" if row.kind == "group" else "User"
    return {"id": row.id, "login": row.path, "type": kind, "name": None}
