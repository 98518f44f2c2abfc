"""A stand-in for GitLab, from the documented v4 API: groups, projects, protected branches, tokens.

It behaves as GitLab does where a mirror meets it: keyset and offset pages, a project no more visible than its
group, names refused, the default branch protected with the first push (``protects``), merge requests' refs
hidden, former paths answered with 301 (``moved``).

``id_after``: whether a group's list of projects takes that filter (GitLab does; only for /projects it is
documented). False: a server that knows pages by number only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from tests.support.backend import Request
from tests.support.forges.api_server import (
    VISIBILITIES,
    ApiError,
    Ask,
    GroupRow,
    ProjectRow,
    Token,
    Told,
)
from tests.support.forges.gitlab_hooks import HOOK_ROUTES, GitLabHookRoutes
from tests.support.forges.gitlab_names import group_refusal, name_refusal, project_refusal
from tests.support.forges.gitlab_pages import keyset_page, namespace_json, numbered_page, protected_json
from tests.support.gitrepo import UpstreamRepo


@dataclass
class GitLabServer(GitLabHookRoutes):
    """``per_minute``: requests to the API in a minute of the clock, then 429; None: any number."""

    api_root: str = "/api/v4"
    protects: bool = True
    id_after: bool = True
    per_minute: int | None = None
    retry_after_s: int = 1
    signs: bool = True

    def configure(self, repo: UpstreamRepo) -> None:
        super().configure(repo)
        hidden = ("refs/merge-requests", "refs/keep-around", "refs/environments", "refs/pipelines")
        repo.configure((f"{way}.hideRefs", name) for name in hidden for way in ("receive", "transfer"))

    @property
    def _api_url(self) -> str:
        return self.base_url + self.api_root

    def schedule_deletion(self, path: str) -> None:
        """Deleted by a person, as GitLab 18 does it: kept for some days under another path."""
        with self.state:
            row = self.project_at(path)
            assert row is not None, f"no project {path}"
            row.doomed = "2026-11-16"
            self.rename_project(path, f"{path}-deletion_scheduled-{row.id}")

    def schedule_group_deletion(self, path: str) -> None:
        """The same of a group: what is in it has no mark of its own."""
        with self.state:
            row = self.group_at(path)
            assert row is not None, f"no group {path}"
            row.doomed = "2026-11-16"
            self.rename_group(path, f"{path}-deletion_scheduled-{row.id}")

    # Who asks

    def token_of(self, request: Request) -> Token | None:
        headers = request.headers
        value = headers.get("private-token") or headers.get("authorization", "").removeprefix("Bearer ")
        if not value:
            return None
        token = self.tokens.get(value)
        if token is None:
            raise ApiError(401, {"message": "401 Unauthorized"})
        if token.expired:
            words = "Token is expired. You can either do re-authorization or token refresh."
            raise ApiError(401, {"error": "invalid_token", "error_description": words})
        return token

    def may_git(self, token: Token, write: bool) -> bool:
        enough = {"api", "write_repository"} if write else {"api", "read_repository", "write_repository"}
        return bool(enough & set(token.scopes))

    def _check(self, ask: Ask) -> None:
        if ask.token is None:
            if ask.method != "GET":
                raise ApiError(401, {"message": "401 Unauthorized"})
            return
        own = ask.path == "/personal_access_tokens/self"
        enough = {"api", "read_api"} if ask.method == "GET" else {"api"}
        if not own and not enough & set(ask.token.scopes):
            words = "The request requires higher privileges than provided by the access token."
            scope = " ".join(sorted(enough))
            raise ApiError(403, {"error": "insufficient_scope", "error_description": words, "scope": scope})

    def _limit(self) -> dict[str, str]:
        """Headers of the rate limit; raises where it is reached."""
        if self.per_minute is None:
            return {}
        minute = int(time.time() // 60)
        known, count = getattr(self, "_minute", (minute, 0))
        count = count + 1 if known == minute else 1
        self._minute = (minute, count)
        told = {
            "RateLimit-Limit": str(self.per_minute),
            "RateLimit-Observed": str(count),
            "RateLimit-Remaining": str(max(0, self.per_minute - count)),
            "RateLimit-Reset": str((minute + 1) * 60),
            "RateLimit-Name": "throttle_authenticated_api",
        }
        if count > self.per_minute:
            raise ApiError(429, "Retry later", {**told, "Retry-After": str(self.retry_after_s)})
        return told

    # Routes

    def route(self, ask: Ask) -> Told:
        limits = self._limit()
        self._check(ask)
        for method, pattern, name in _ROUTES:
            match = re.fullmatch(pattern, ask.path)
            if match is not None and method == ask.method:
                route: Callable[..., Told] = getattr(self, name)
                told = route(ask, *(unquote(part) for part in match.groups()))
                return Told(told.value, told.status, {**limits, **told.headers})
        raise ApiError(404, {"error": "404 Not Found"})

    def version(self, ask: Ask) -> Told:
        return Told({"version": "18.5.0", "revision": "standin"})

    def token_self(self, ask: Ask) -> Told:
        if ask.token is None:
            raise ApiError(401, {"message": "401 Unauthorized"})
        token = ask.token
        return Told(
            {
                "id": 1,
                "name": token.name,
                "revoked": False,
                "created_at": "2026-01-01T00:00:00.000Z",
                "scopes": list(token.scopes),
                "user_id": token.user_id,
                "last_used_at": None,
                "active": True,
                "expires_at": token.expires,
            }
        )

    def me(self, ask: Ask) -> Told:
        if ask.token is None:
            raise ApiError(401, {"message": "401 Unauthorized"})
        return Told({"id": ask.token.user_id, "username": ask.token.name, "state": "active"})

    # Groups

    def _group(self, ask: Ask, ref: str) -> GroupRow:
        row = self.groups.get(int(ref)) if ref.isdigit() else self.group_at(ref)
        if row is None or row.kind != "group" or not self.sees(ask.token, row.path, row.visibility):
            raise ApiError(404, {"message": "404 Group Not Found"})
        return row

    def show_group(self, ask: Ask, ref: str) -> Told:
        return Told(self._group_json(self._group(ask, ref)))

    def show_namespace(self, ask: Ask, ref: str) -> Told:
        row = self.groups.get(int(ref)) if ref.isdigit() else self.group_at(ref)
        if row is None or not self.sees(ask.token, row.path, row.visibility):
            raise ApiError(404, {"message": "404 Namespace Not Found"})
        return Told(namespace_json(row))

    def search_groups(self, ask: Ask) -> Told:
        return numbered_page(self._api_url, ask, self._searched(ask, "group"), self._group_json)

    def search_namespaces(self, ask: Ask) -> Told:
        return numbered_page(self._api_url, ask, self._searched(ask, "group", "user"), namespace_json)

    def _searched(self, ask: Ask, *kinds: str) -> list[GroupRow]:
        """By a part of the path, or of the name."""
        part = ask.query.get("search", "").lower()
        seen = [g for g in self.groups.values() if self.sees(ask.token, g.path, g.visibility)]
        return [g for g in seen if g.kind in kinds and part in f"{g.path}\n{g.name}".lower()]

    def list_subgroups(self, ask: Ask, ref: str) -> Told:
        parent = self._group(ask, ref)
        rows = [g for g in self.groups.values() if g.path.rpartition("/")[0] == parent.path]
        return numbered_page(self._api_url, ask, rows, self._group_json)

    def create_group(self, ask: Ask) -> Told:
        name, path = str(ask.data.get("name", "")), str(ask.data.get("path", ""))
        if not name or not path:
            raise ApiError(400, {"error": "name is missing, path is missing"})
        parent_id = ask.data.get("parent_id")
        parent = self._group(ask, str(parent_id)) if parent_id is not None else None
        whole = f"{parent.path}/{path}" if parent is not None else path
        visibility = str(ask.data.get("visibility", "private"))
        errors: dict[str, list[str]] = {}
        if refusal := group_refusal(path, top=parent is None):
            errors["path"] = [refusal]
        elif self.group_at(whole) is not None or self.project_at(whole) is not None:
            errors["path"] = ["has already been taken"]
        if parent is not None and _level(visibility) > _level(parent.visibility):
            errors["visibility_level"] = [
                f"{visibility} is not allowed since the parent group has a {parent.visibility} visibility."
            ]
        if errors:
            shown = ", ".join(f":{k}=>{v}".replace("'", '"') for k, v in errors.items())
            raise ApiError(400, {"message": f"Failed to save group {{{shown}}}"})
        row = GroupRow(self.new_id(), whole, name, visibility)
        self.groups[row.id] = row
        return Told(self._group_json(row), 201)

    def list_group_projects(self, ask: Ask, ref: str) -> Told:
        group = self._group(ask, ref)
        below = group.path.lower() + "/"
        deep = _true(ask.query.get("include_subgroups"))
        rows = [
            p
            for p in self.projects.values()
            if p.path.lower().startswith(below) and (deep or "/" not in p.path[len(below) :])
        ]
        return self._projects_page(ask, rows, keyset=False)

    # Projects

    def list_projects(self, ask: Ask) -> Told:
        return self._projects_page(ask, list(self.projects.values()), keyset=True)

    def _projects_page(self, ask: Ask, rows: list[ProjectRow], *, keyset: bool) -> Told:
        rows = [p for p in rows if self.sees(ask.token, p.path, p.visibility)]
        archived = ask.query.get("archived")
        if archived is not None:
            rows = [p for p in rows if p.archived == _true(archived)]
        after = ask.query.get("id_after")
        if after is not None and (keyset or self.id_after):
            rows = [p for p in rows if p.id > int(after)]
        before = ask.query.get("id_before")
        if before is not None and (keyset or self.id_after):
            rows = [p for p in rows if p.id < int(before)]
        by_id = ask.query.get("order_by", "created_at") == "id"
        if keyset and ask.query.get("pagination") == "keyset":
            if not by_id:
                raise ApiError(
                    405, {"error": "Keyset pagination is not yet available for this type of request"}
                )
            return keyset_page(self._api_url, ask, rows, self.project_json)
        rows.sort(key=lambda p: (p.id,) if by_id else (p.created_at, p.id))
        if ask.query.get("sort", "desc") == "desc":
            rows.reverse()
        return numbered_page(self._api_url, ask, rows, self.project_json)

    def _project(self, ask: Ask, ref: str) -> ProjectRow:
        row = self.projects.get(int(ref)) if ref.isdigit() else self.project_at(ref)
        moved = self.projects.get(self.moved.get(ref, -1)) if row is None else None
        if moved is not None and self.sees(ask.token, moved.path, moved.visibility) and ask.method == "GET":
            to = f"{self.base_url}{self.api_root}/projects/{moved.id}"
            text = f"This resource has been moved permanently to {to}"
            raise ApiError(301, text, {"Location": to})
        if row is None or not self.sees(ask.token, row.path, row.visibility):
            raise ApiError(404, {"message": "404 Project Not Found"})
        return row

    def show_project(self, ask: Ask, ref: str) -> Told:
        return Told(self.project_json(self._project(ask, ref)))

    def create_project(self, ask: Ask) -> Told:
        name, path = str(ask.data.get("name", "")), str(ask.data.get("path", ""))
        if not name and not path:
            raise ApiError(400, {"error": "name, path are missing, at least one parameter must be provided"})
        path = path or re.sub(r"[^a-z0-9_.-]+", "-", name.lower()).strip("-")
        name = name or path
        group = self.groups.get(int(str(ask.data.get("namespace_id", 0))))
        if group is None or not self.sees(ask.token, group.path, group.visibility):
            raise ApiError(400, {"message": {"namespace": ["is not valid"]}})
        visibility = str(ask.data.get("visibility", "private"))
        whole = f"{group.path}/{path}"
        errors: dict[str, list[str]] = {}
        if refusal := project_refusal(path):
            errors["path"] = [refusal]
        if refusal := name_refusal(name):
            errors["name"] = [refusal]
        if self.project_at(whole) is not None or self.group_at(whole) is not None:
            errors["path"] = ["has already been taken"]
            errors["project_namespace.name"] = ["has already been taken"]
        if visibility not in VISIBILITIES:
            raise ApiError(400, {"error": "visibility does not have a valid value"})
        if group.kind == "group" and _level(visibility) > _level(group.visibility):
            errors["visibility_level"] = [f"{visibility} is not allowed in a {group.visibility} group."]
        if errors:
            raise ApiError(400, {"message": errors})
        row = self.make_project(
            whole, visibility, name=name, description=str(ask.data.get("description") or "")
        )
        return Told(self.project_json(row), 201)

    def change_project(self, ask: Ask, ref: str) -> Told:
        row = self._project(ask, ref)
        visibility = str(ask.data.get("visibility", row.visibility))
        group = self.group_at(row.path.rpartition("/")[0])
        if group is not None and group.kind == "group" and _level(visibility) > _level(group.visibility):
            words = f"{visibility} is not allowed in a {group.visibility} group."
            raise ApiError(400, {"message": {"visibility_level": [words]}})
        branch = ask.data.get("default_branch")
        if branch is not None and not self.set_default_branch(row, str(branch)):
            raise ApiError(400, {"message": {"base": ["Could not set the default branch"]}})
        row.visibility = visibility
        if "description" in ask.data:
            row.description = str(ask.data["description"] or "")
        return Told(self.project_json(row))

    # Protected branches

    def list_protected(self, ask: Ask, ref: str) -> Told:
        row = self._project(ask, ref)
        return numbered_page(self._api_url, ask, list(self.protected(row.path).items()), protected_json)

    def change_protected(self, ask: Ask, ref: str, name: str) -> Told:
        row = self._project(ask, ref)
        if name not in self.protected(row.path):
            raise ApiError(404, {"message": "404 Not found"})
        self.protect(row.path, name, force=bool(ask.data.get("allow_force_push")))
        return Told(protected_json((name, self.protected(row.path)[name])))

    def remove_protected(self, ask: Ask, ref: str, name: str) -> Told:
        row = self._project(ask, ref)
        if name not in self.protected(row.path):
            raise ApiError(404, {"message": "404 Not found"})
        self.unprotect(row.path, name)
        return Told(None, 204)

    # As JSON

    def _group_json(self, row: GroupRow) -> dict[str, object]:
        parent = self.group_at(row.path.rpartition("/")[0])
        return {
            "id": row.id,
            "name": row.name,
            "path": row.path.rpartition("/")[2],
            "full_path": row.path,
            "full_name": " / ".join(row.path.split("/")),
            "description": "",
            "visibility": row.visibility,
            "parent_id": parent.id if parent is not None else None,
            "web_url": f"{self.base_url}/groups/{row.path}",
            "marked_for_deletion_on": row.doomed,
        }

    def project_json(self, row: ProjectRow) -> dict[str, object]:
        return {
            "id": row.id,
            "name": row.name,
            "path": row.path.rpartition("/")[2],
            "path_with_namespace": row.path,
            "description": row.description or None,
            "default_branch": self.default_branch(row) or (None if self.is_empty(row) else "main"),
            "visibility": row.visibility,
            "archived": row.archived,
            "empty_repo": self.is_empty(row),
            "marked_for_deletion_on": row.doomed,
            "created_at": row.created_at,
            "http_url_to_repo": self.url(f"{row.path}.git"),
            "ssh_url_to_repo": self.ssh_url(row.path),
            "web_url": self.url(row.path),
        }


_ROUTES = (
    ("GET", r"/version", "version"),
    ("GET", r"/personal_access_tokens/self", "token_self"),
    ("GET", r"/user", "me"),
    ("GET", r"/namespaces", "search_namespaces"),
    ("GET", r"/namespaces/([^/]+)", "show_namespace"),
    ("GET", r"/groups", "search_groups"),
    ("POST", r"/groups", "create_group"),
    ("GET", r"/groups/([^/]+)", "show_group"),
    ("GET", r"/groups/([^/]+)/subgroups", "list_subgroups"),
    ("GET", r"/groups/([^/]+)/projects", "list_group_projects"),
    ("GET", r"/projects", "list_projects"),
    ("POST", r"/projects", "create_project"),
    ("GET", r"/projects/([^/]+)", "show_project"),
    ("PUT", r"/projects/([^/]+)", "change_project"),
    ("GET", r"/projects/([^/]+)/protected_branches", "list_protected"),
    ("PATCH", r"/projects/([^/]+)/protected_branches/([^/]+)", "change_protected"),
    ("DELETE", r"/projects/([^/]+)/protected_branches/([^/]+)", "remove_protected"),
    *HOOK_ROUTES,
)


def _true(text: str | None) -> bool:
    return (text or "").lower() in ("true", "1")


def _level(visibility: str) -> int:
    return VISIBILITIES.index(visibility) if visibility in VISIBILITIES else 0
