"""A stand-in for Gitea, from the documented v1 API: owners, repositories, branch protections."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote, urlencode

from tests.support.backend import Request
from tests.support.forges.api_server import ApiError, Ask, GroupRow, ProjectRow, Token, Told
from tests.support.forges.gitea_hooks import HOOK_ROUTES, GiteaHookRoutes

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_RESERVED = frozenset({".", "..", "-"})
_SHOWN = {"public": "public", "internal": "limited", "private": "private"}


@dataclass
class GiteaServer(GiteaHookRoutes):
    """``page_max``: the instance's MAX_RESPONSE_ITEMS. A token's name is its owner's. ``lenient``: before
    1.20 whoever shows a token that nobody knows (any more) is answered as anybody without one."""

    api_root: str = "/api/v1"
    page_max: int = 50
    lenient: bool = False

    def token_of(self, request: Request) -> Token | None:
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        if not scheme:
            return None
        if scheme.lower() == "basic":
            value = base64.b64decode(value).decode().partition(":")[2]
        token = self.tokens.get(value)
        if token is None or token.expired:
            if self.lenient:
                return None
            raise ApiError(401, {"message": "user does not exist [uid: 0, name: ]"})
        return token

    def may_git(self, token: Token, write: bool) -> bool:
        return "api" in token.scopes or ("write:repository" if write else "read:repository") in token.scopes

    def route(self, ask: Ask) -> Told:
        if ask.method != "GET":
            if ask.token is None:
                raise ApiError(401, {"message": "token is required"})
            if not {"api", "write:repository"} & set(ask.token.scopes):
                words = "token does not have at least one of required scope(s): [write:repository]"
                raise ApiError(403, {"message": words})
        for method, pattern, name in _ROUTES:
            match = re.fullmatch(pattern, ask.path)
            if match is not None and method == ask.method:
                route: Callable[..., Told] = getattr(self, name)
                return route(ask, *(unquote(part) for part in match.groups()))
        raise ApiError(404, {"message": "Not Found", "url": f"{self.base_url}/api/swagger"})

    # Owners

    def _owner(self, ask: Ask, name: str, kind: str) -> GroupRow:
        row = self.group_at(name)
        if row is None or row.kind != kind or not self.sees(ask.token, row.path, row.visibility):
            raise ApiError(
                404, {"message": "GetOrgByName" if kind == "group" else "user redirect does not exist"}
            )
        return row

    def me(self, ask: Ask) -> Told:
        if ask.token is None:
            raise ApiError(401, {"message": "token is required"})
        return Told(
            {"id": ask.token.user_id, "login": ask.token.name, "full_name": "", "visibility": "public"}
        )

    def show_org(self, ask: Ask, name: str) -> Told:
        return Told(self._owner_json(self._owner(ask, name, "group")))

    def show_user(self, ask: Ask, name: str) -> Told:
        return Told(self._owner_json(self._owner(ask, name, "user")))

    def list_orgs(self, ask: Ask) -> Told:
        rows = [g for g in self.groups.values() if g.kind == "group"]
        size, page = min(self.page_max, int(ask.query.get("limit", 30))), int(ask.query.get("page", 1))
        shown = rows[(page - 1) * size : page * size]
        return Told(
            [self._owner_json(row) for row in shown if self.sees(ask.token, row.path, row.visibility)]
        )

    def search_users(self, ask: Ask) -> Told:
        row = self.groups.get(int(ask.query["uid"]))
        found = [self._owner_json(row)] if row is not None and row.kind == "user" else []
        return Told({"ok": True, "data": found})

    def create_org(self, ask: Ask) -> Told:
        name = str(ask.data.get("username", ""))
        if not _NAME.fullmatch(name) or name in _RESERVED:
            raise ApiError(422, {"message": f"name is reserved [name: {name}]"})
        if self.group_at(name) is not None:
            raise ApiError(422, {"message": f"user already exists [name: {name}]"})
        back = {v: k for k, v in _SHOWN.items()}
        row = self.add_group(name, back[str(ask.data.get("visibility", "public"))])
        return Told(self._owner_json(row), 201)

    # Repositories

    def search(self, ask: Ask) -> Told:
        rows = [p for p in self.projects.values() if self.sees(ask.token, p.path, p.visibility)]
        if "uid" in ask.query:
            owner = self.groups.get(int(ask.query["uid"]))
            rows = [p for p in rows if owner is not None and p.path.startswith(owner.path + "/")]
        if "archived" in ask.query:
            rows = [p for p in rows if p.archived == (ask.query["archived"] == "true")]
        by_id = ask.query.get("sort") == "id"
        rows.sort(
            key=lambda p: (p.id, "") if by_id else (0, p.path), reverse=ask.query.get("order") == "desc"
        )
        size = min(self.page_max, int(ask.query.get("limit", 30)))
        page = int(ask.query.get("page", 1))
        headers = {"X-Total-Count": str(len(rows))}
        if page * size < len(rows):
            query = urlencode({**ask.query, "page": str(page + 1)})
            headers["Link"] = f'<{self.base_url}{self.api_root}{ask.path}?{query}>; rel="next"'
        shown = rows[(page - 1) * size : page * size]
        return Told({"ok": True, "data": [self._repo_json(p) for p in shown]}, 200, headers)

    def _repo(self, ask: Ask, owner: str, name: str) -> ProjectRow:
        path = f"{owner}/{name}"
        row = self.project_at(path)
        moved = self.projects.get(self.moved.get(path, -1)) if row is None else None
        if moved is not None and ask.method == "GET":
            raise ApiError(307, None, {"Location": f"{self.base_url}{self.api_root}/repos/{moved.path}"})
        if row is None or not self.sees(ask.token, row.path, row.visibility):
            raise ApiError(404, {"message": "The target couldn't be found."})
        return row

    def show_repo(self, ask: Ask, owner: str, name: str) -> Told:
        return Told(self._repo_json(self._repo(ask, owner, name)))

    def create_in_org(self, ask: Ask, owner: str) -> Told:
        return self._create(ask, self._owner(ask, owner, "group"))

    def create_mine(self, ask: Ask) -> Told:
        assert ask.token is not None
        return self._create(ask, self._owner(ask, ask.token.name, "user"))

    def _create(self, ask: Ask, owner: GroupRow) -> Told:
        name = str(ask.data.get("name", ""))
        if (
            not _NAME.fullmatch(name)
            or name in _RESERVED
            or name.endswith((".git", ".wiki", ".rss", ".atom"))
        ):
            raise ApiError(422, {"message": f"name is reserved [name: {name}]"})
        if self.project_at(f"{owner.path}/{name}") is not None:
            raise ApiError(409, {"message": "The repository with the same name already exists."})
        visibility = "private" if ask.data.get("private") else "public"
        row = self.make_project(
            f"{owner.path}/{name}", visibility, description=str(ask.data.get("description") or "")
        )
        return Told(self._repo_json(row), 201)

    def change_repo(self, ask: Ask, owner: str, name: str) -> Told:
        row = self._repo(ask, owner, name)
        branch = ask.data.get("default_branch")
        if branch is not None and not self.set_default_branch(row, str(branch)):
            raise ApiError(422, {"message": f"the branch {branch} does not exist"})
        if "description" in ask.data:
            row.description = str(ask.data["description"] or "")
        if "private" in ask.data:
            row.visibility = "private" if ask.data["private"] else "public"
        return Told(self._repo_json(row))

    # Protection

    def list_rules(self, ask: Ask, owner: str, name: str) -> Told:
        row = self._repo(ask, owner, name)
        return Told(
            [
                {"rule_name": rule, "branch_name": rule, "enable_force_push": force}
                for rule, force in self.protected(row.path).items()
            ]
        )

    def remove_rule(self, ask: Ask, owner: str, name: str, rule: str) -> Told:
        row = self._repo(ask, owner, name)
        if rule not in self.protected(row.path):
            raise ApiError(404, {"message": "The target couldn't be found."})
        self.unprotect(row.path, rule)
        return Told(None, 204)

    # As JSON

    def _owner_json(self, row: GroupRow) -> dict[str, object]:
        return {
            "id": row.id,
            "login": row.path,
            "username": row.path,
            "full_name": "",
            "visibility": _SHOWN[row.visibility],
        }

    def _repo_json(self, row: ProjectRow) -> dict[str, object]:
        owner = self.group_at(row.path.partition("/")[0])
        assert owner is not None
        return {
            "id": row.id,
            "owner": self._owner_json(owner),
            "name": row.path.rpartition("/")[2],
            "full_name": row.path,
            "description": row.description,
            "empty": self.is_empty(row),
            "private": row.visibility != "public",
            "internal": row.visibility == "internal",
            "archived": row.archived,
            "default_branch": self.default_branch(row) or "main",
            "clone_url": self.url(f"{row.path}.git"),
            "ssh_url": self.ssh_url(row.path),
            "created_at": row.created_at,
        }


_ROUTES = (
    ("GET", r"/user", "me"),
    ("GET", r"/orgs/([^/]+)", "show_org"),
    ("GET", r"/orgs", "list_orgs"),
    ("POST", r"/orgs", "create_org"),
    ("GET", r"/users/search", "search_users"),
    ("GET", r"/users/([^/]+)", "show_user"),
    ("GET", r"/repos/search", "search"),
    ("POST", r"/orgs/([^/]+)/repos", "create_in_org"),
    ("POST", r"/user/repos", "create_mine"),
    ("GET", r"/repos/([^/]+)/([^/]+)", "show_repo"),
    ("PATCH", r"/repos/([^/]+)/([^/]+)", "change_repo"),
    ("GET", r"/repos/([^/]+)/([^/]+)/branch_protections", "list_rules"),
    ("DELETE", r"/repos/([^/]+)/([^/]+)/branch_protections/([^/]+)", "remove_rule"),
    *HOOK_ROUTES,
)
