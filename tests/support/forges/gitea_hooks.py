"""Gitea's endpoints for hooks, and what it sends: push, create and delete. Its list has no Link header."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatch

from tests.support.forges.api_server import ApiError, ApiServer, Ask, ProjectRow, Told
from tests.support.forges.hook_bodies import Body, commits_of, gitea_letter, push_body
from tests.support.forges.hooked import is_address
from tests.support.forges.sending import HookRow, Letter, RefChange

_NOT_FOUND = {"message": "The target couldn't be found."}
HOOK_ROUTES = (
    ("GET", r"/repos/([^/]+)/([^/]+)/hooks", "list_hooks"),
    ("POST", r"/repos/([^/]+)/([^/]+)/hooks", "make_hook"),
    ("GET", r"/repos/([^/]+)/([^/]+)/hooks/(\d+)", "show_hook"),
    ("PATCH", r"/repos/([^/]+)/([^/]+)/hooks/(\d+)", "change_hook"),
    ("DELETE", r"/repos/([^/]+)/([^/]+)/hooks/(\d+)", "remove_hook"),
    ("POST", r"/repos/([^/]+)/([^/]+)/hooks/(\d+)/tests", "test_hook"),
)


class GiteaHookRoutes(ApiServer):
    page_max: int

    def _repo(self, ask: Ask, owner: str, name: str) -> ProjectRow:
        raise NotImplementedError

    def _managed(self, ask: Ask, owner: str, name: str) -> ProjectRow:
        row = self._repo(ask, owner, name)
        scopes = set(ask.token.scopes) if ask.token is not None else set()
        if not {"api", "read:repository", "write:repository"} & scopes:
            words = "token does not have at least one of required scope(s): [read:repository]"
            raise ApiError(403, {"message": words})
        if ask.token is None or not ask.token.manages:
            words = "user should be an owner or a collaborator with admin write of a repository"
            raise ApiError(403, {"message": words})
        return row

    def _hook(self, ask: Ask, owner: str, name: str, number: str) -> tuple[ProjectRow, HookRow]:
        row = self._managed(ask, owner, name)
        return row, self.find_hook(row.path, number, ApiError(404, _NOT_FOUND))

    def list_hooks(self, ask: Ask, owner: str, name: str) -> Told:
        rows = self.hooks_of(self._managed(ask, owner, name).path)
        size, page = min(self.page_max, int(ask.query.get("limit", 30))), int(ask.query.get("page", 1))
        shown = [_hook_json(h) for h in rows[(page - 1) * size : page * size]]
        return Told(shown, 200, {"X-Total-Count": str(len(rows))})

    def show_hook(self, ask: Ask, owner: str, name: str, number: str) -> Told:
        return Told(_hook_json(self._hook(ask, owner, name, number)[1]))

    def make_hook(self, ask: Ask, owner: str, name: str) -> Told:
        row = self._managed(ask, owner, name)
        if ask.data.get("type") not in ("gitea", "gogs", "slack"):
            raise ApiError(422, {"message": f"Invalid hook type: {ask.data.get('type')}"})
        config = ask.data.get("config")
        for option in ("url", "content_type"):
            if not isinstance(config, dict) or option not in config:
                raise ApiError(422, {"message": f"Missing config option: {option}"})
        hook = HookRow(self.new_id(), "", active=False, kind=str(ask.data["type"]))
        _apply(hook, ask)
        self.hooks_of(row.path).append(hook)
        return Told(_hook_json(hook), 201)

    def change_hook(self, ask: Ask, owner: str, name: str, number: str) -> Told:
        hook = self._hook(ask, owner, name, number)[1]
        _apply(hook, ask)
        return Told(_hook_json(hook))

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
            if not change.is_tag and not fnmatch(change.short, hook.branch_filter or "*"):
                continue
            events = ["delete"] if change.deleted else ["create", "push"] if change.created else ["push"]
            for event in events:
                if event in hook.events:
                    yield self._letter(path, hook, event, self._event(path, event, change))

    def _event(self, path: str, event: str, change: RefChange) -> Body:
        if event == "push":
            web_url = self.url(path)
            commits = commits_of(self.repo(path), change, web_url)
            whole = push_body(change, commits, web_url)
            same = {name: whole[name] for name in ("ref", "before", "after", "commits", "head_commit")}
            pusher = {"id": 1, "login": "author", "username": "author"}
            return {**same, "compare_url": whole["compare"], "total_commits": len(commits), "pusher": pusher}
        kind = "tag" if change.is_tag else "branch"
        body: Body = {"ref": change.short, "ref_type": kind, "pusher_type": "user"}
        return body if event == "delete" else {**body, "sha": change.new}

    def ping_letter(self, path: str, hook: HookRow) -> Letter:
        """Gitea's test is a push of nothing new."""
        tip = self.repo(path).tip()
        return self._letter(
            path, hook, "push", self._event(path, "push", RefChange("refs/heads/main", tip, tip))
        )

    def _letter(self, path: str, hook: HookRow, event: str, body: Body) -> Letter:
        row = self.project_at(path)
        assert row is not None
        owner, name = path.split("/", 1)
        repository = {
            "id": row.id,
            "owner": {"id": 1, "login": owner, "username": owner},
            "name": name,
            "full_name": path,
            "private": row.visibility != "public",
            "html_url": self.url(path),
            "ssh_url": self.ssh_url(path),
            "clone_url": self.url(f"{path}.git"),
            "default_branch": self.default_branch(row) or "main",
        }
        sender = {"id": 1, "login": "author", "username": "author"}
        return gitea_letter(hook, event, {**body, "repository": repository, "sender": sender})


def _apply(hook: HookRow, ask: Ask) -> None:
    """Events that are left out become ["push"], a filter that is left out none, as Gitea has it."""
    told = ask.data.get("config", {})
    config = told if isinstance(told, dict) else {}
    url = config.get("url", hook.url)
    if not is_address(url):
        raise ApiError(422, {"message": "Invalid url"})
    if config.get("content_type", "json") not in ("json", "form"):
        raise ApiError(422, {"message": "Invalid content type"})
    hook.url, hook.secret = url, str(config.get("secret", hook.secret))
    hook.json = config.get("content_type", "json" if hook.json else "form") == "json"
    events = ask.data.get("events")
    hook.events = {str(e) for e in events} if isinstance(events, list) and events else {"push"}
    hook.branch_filter = str(ask.data.get("branch_filter", ""))
    hook.active = bool(ask.data.get("active", hook.active))


def _hook_json(hook: HookRow) -> Body:
    return {
        "id": hook.id,
        "type": hook.kind,
        "branch_filter": hook.branch_filter,
        "config": {"content_type": "json" if hook.json else "form", "url": hook.url},
        "events": sorted(hook.events),
        "active": hook.active,
        "authorization_header": "",
        "updated_at": "2026-06-03T00:57:16Z",
        "created_at": "2026-06-03T00:57:16Z",
    }
