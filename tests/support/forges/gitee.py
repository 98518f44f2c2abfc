"""A stand-in for Gitee, from the documented v5 API: hooks of repositories, and what they are sent.

It shows a hook's password to whoever may list them, as Gitee does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from tests.support.backend import Request
from tests.support.forges.api_server import ApiError, ApiServer, Ask, ProjectRow, Token, Told
from tests.support.forges.hook_bodies import Body, commits_of, gitee_letter, push_body
from tests.support.forges.hooked import as_flag, is_address
from tests.support.forges.sending import HookRow, Letter, RefChange

EVENTS = ("push_events", "tag_push_events", "issues_events", "note_events", "merge_requests_events")
_ROUTES = (
    ("GET", r"/repos/([^/]+)/([^/]+)/hooks", "list_hooks"),
    ("POST", r"/repos/([^/]+)/([^/]+)/hooks", "make_hook"),
    ("GET", r"/repos/([^/]+)/([^/]+)/hooks/(\d+)", "show_hook"),
    ("PATCH", r"/repos/([^/]+)/([^/]+)/hooks/(\d+)", "change_hook"),
    ("DELETE", r"/repos/([^/]+)/([^/]+)/hooks/(\d+)", "remove_hook"),
    ("POST", r"/repos/([^/]+)/([^/]+)/hooks/(\d+)/tests", "test_hook"),
)


@dataclass
class GiteeServer(ApiServer):
    """``add_token`` with scopes {"hook"} may do all that is here."""

    api_root: str = "/api/v5"

    def token_of(self, request: Request) -> Token | None:
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() not in ("bearer", "token"):
            return None
        token = self.tokens.get(value)
        if token is None:
            raise ApiError(401, {"message": "401 Unauthorized: Access token does not exist"})
        if token.expired:
            raise ApiError(401, {"message": "401 Unauthorized: Access token is expired"})
        return token

    def may_git(self, token: Token, write: bool) -> bool:
        return bool({"api", "projects"} & set(token.scopes))

    def route(self, ask: Ask) -> Told:
        if ask.token is None:
            raise ApiError(401, {"message": "401 Unauthorized: Access token is required"})
        if not {"api", "hook"} & set(ask.token.scopes):
            raise ApiError(403, {"message": "403 Forbidden: scope hook is required"})
        for method, pattern, name in _ROUTES:
            match = re.fullmatch(pattern, ask.path)
            if match is not None and method == ask.method:
                route: Callable[..., Told] = getattr(self, name)
                return route(ask, *(unquote(part) for part in match.groups()))
        raise ApiError(404, {"message": "404 Not Found"})

    def _managed(self, ask: Ask, owner: str, name: str) -> ProjectRow:
        path = f"{owner}/{name}"
        row = self.project_at(path)
        moved = self.projects.get(self.moved.get(path, -1)) if row is None else None
        if moved is not None:
            to = f"{self.base_url}{self.api_root}/repos/{moved.path}/hooks"
            raise ApiError(301, {"message": "Moved Permanently"}, {"Location": to})
        if row is None or not self.sees(ask.token, row.path, row.visibility):
            raise ApiError(404, {"message": "Not Found Project"})
        if ask.token is None or not ask.token.manages:
            raise ApiError(403, {"message": "没有权限"})
        return row

    def _hook(self, ask: Ask, owner: str, name: str, number: str) -> tuple[ProjectRow, HookRow]:
        row = self._managed(ask, owner, name)
        return row, self.find_hook(row.path, number, ApiError(404, {"message": "Not Found"}))

    def list_hooks(self, ask: Ask, owner: str, name: str) -> Told:
        row = self._managed(ask, owner, name)
        rows = self.hooks_of(row.path)
        size, page = min(100, int(ask.query.get("per_page", 20))), int(ask.query.get("page", 1))
        headers = {"total_count": str(len(rows)), "total_page": str(-(-len(rows) // size))}
        return Told([_hook_json(row, h) for h in rows[(page - 1) * size : page * size]], 200, headers)

    def show_hook(self, ask: Ask, owner: str, name: str, number: str) -> Told:
        return Told(_hook_json(*self._hook(ask, owner, name, number)))

    def make_hook(self, ask: Ask, owner: str, name: str) -> Told:
        row = self._managed(ask, owner, name)
        hook = HookRow(self.new_id(), "", events={"push_events"})
        _apply(hook, ask)
        self.hooks_of(row.path).append(hook)
        return Told(_hook_json(row, hook), 201)

    def change_hook(self, ask: Ask, owner: str, name: str, number: str) -> Told:
        row, hook = self._hook(ask, owner, name, number)
        _apply(hook, ask)
        return Told(_hook_json(row, hook))

    def remove_hook(self, ask: Ask, owner: str, name: str, number: str) -> Told:
        row, hook = self._hook(ask, owner, name, number)
        self.hooks_of(row.path).remove(hook)
        return Told(None, 204)

    def test_hook(self, ask: Ask, owner: str, name: str, number: str) -> Told:
        row, hook = self._hook(ask, owner, name, number)
        self.send(self.ping_letter(row.path, hook))
        return Told(None, 204)

    # What is sent

    def letters(self, path: str, hook: HookRow, changes: list[RefChange]) -> Iterable[Letter]:
        for change in changes:
            if ("tag_push_events" if change.is_tag else "push_events") in hook.events:
                yield self._letter(path, hook, change)

    def ping_letter(self, path: str, hook: HookRow) -> Letter:
        tip = self.repo(path).tip()
        return self._letter(path, hook, RefChange("refs/heads/main", tip, tip))

    def _letter(self, path: str, hook: HookRow, change: RefChange) -> Letter:
        row = self.project_at(path)
        assert row is not None
        owner, name = path.split("/", 1)
        web_url = self.url(path)
        commits = commits_of(self.repo(path), change, web_url)
        project = {
            "id": row.id,
            "name": name,
            "path": name,
            "full_name": path,
            "namespace": owner,
            "path_with_namespace": path,
            "private": row.visibility != "public",
            "url": web_url,
            "html_url": web_url,
            "clone_url": self.url(f"{path}.git"),
            "git_http_url": self.url(f"{path}.git"),
            "ssh_url": self.ssh_url(path),
            "git_ssh_url": self.ssh_url(path),
            "git_svn_url": f"svn://{self.host}/{path}",
            "default_branch": self.default_branch(row) or "main",
        }
        user = {"id": 1, "name": "A U Thor", "login": "author", "username": "author"}
        body: Body = {
            "hook_name": "tag_push_hooks" if change.is_tag else "push_hooks",
            **push_body(change, commits, web_url),
            "total_commits_count": len(commits),
            "commits_more_than_ten": len(commits) > 10,
            "repository": project,
            "project": project,
            "user": user,
            "pusher": user,
            "sender": user,
            "user_id": 1,
            "user_name": "author",
        }
        return gitee_letter(hook, "Tag Push Hook" if change.is_tag else "Push Hook", body, web_url)


def _apply(hook: HookRow, ask: Ask) -> None:
    url = ask.data.get("url", hook.url)
    if not is_address(url):
        raise ApiError(422, {"message": "URL格式不正确"})
    hook.url = str(url)
    hook.secret = str(ask.data.get("password", hook.secret))
    hook.encryption_type = int(str(ask.data.get("encryption_type", hook.encryption_type)))
    hook.events = {event for event in EVENTS if as_flag(ask.data, event, event in hook.events)}


def _hook_json(row: ProjectRow, hook: HookRow) -> Body:
    return {
        "id": hook.id,
        "url": hook.url,
        "created_at": "2026-06-03T00:57:16+08:00",
        "password": hook.secret,
        "project_id": row.id,
        "result": hook.said or None,
        "result_code": hook.status,
        **{event: event in hook.events for event in EVENTS},
    }
