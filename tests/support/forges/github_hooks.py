"""GitHub's endpoints for hooks, and what it sends: a ping when one is made, push, create, delete, repository.

Of more than three tags in one push it sends nothing. Whoever may not see a repository's hooks gets 404.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlencode

from tests.support.forges.api_server import ApiError, ApiServer, Ask, ProjectRow, Told
from tests.support.forges.hook_bodies import Body, commits_of, github_letter, push_body
from tests.support.forges.hooked import is_address
from tests.support.forges.sending import HookRow, Letter, RefChange

TAGS_MAX = 3
HOOKS_MAX = 20  # for each event
ENOUGH = frozenset({"api", "repo", "admin:repo_hook"})
_NOT_FOUND = {"message": "Not Found", "status": "404"}
HOOK_ROUTES = (
    ("GET", r"/repos/([^/]+)/([^/]+)/hooks", "list_hooks"),
    ("POST", r"/repos/([^/]+)/([^/]+)/hooks", "make_hook"),
    ("GET", r"/repos/([^/]+)/([^/]+)/hooks/(\d+)", "show_hook"),
    ("PATCH", r"/repos/([^/]+)/([^/]+)/hooks/(\d+)", "change_hook"),
    ("DELETE", r"/repos/([^/]+)/([^/]+)/hooks/(\d+)", "remove_hook"),
    ("POST", r"/repos/([^/]+)/([^/]+)/hooks/(\d+)/pings", "ping_hook"),
    ("POST", r"/repos/([^/]+)/([^/]+)/hooks/(\d+)/tests", "test_hook"),
)


def _invalid(words: str) -> ApiError:
    errors = [{"resource": "Hook", "code": "custom", "message": words}]
    return ApiError(422, {"message": "Validation Failed", "errors": errors, "status": "422"})


class GitHubHookRoutes(ApiServer):
    def _repo(self, ask: Ask, owner: str, name: str) -> ProjectRow:
        raise NotImplementedError

    def _managed(self, ask: Ask, owner: str, name: str) -> ProjectRow:
        row = self._repo(ask, owner, name)
        if ask.token is None or not ask.token.manages or not ENOUGH & set(ask.token.scopes):
            raise ApiError(404, _NOT_FOUND)
        return row

    def _hook(self, ask: Ask, owner: str, name: str, number: str) -> tuple[ProjectRow, HookRow]:
        row = self._managed(ask, owner, name)
        return row, self.find_hook(row.path, number, ApiError(404, _NOT_FOUND))

    def list_hooks(self, ask: Ask, owner: str, name: str) -> Told:
        rows = self.hooks_of(self._managed(ask, owner, name).path)
        size, page = min(100, int(ask.query.get("per_page", 30))), int(ask.query.get("page", 1))
        headers = {}
        if page * size < len(rows):
            query = urlencode({**ask.query, "page": str(page + 1)})
            headers["Link"] = f'<{self.base_url}{self.api_root}{ask.path}?{query}>; rel="next"'
        return Told([self._hook_json(ask, h) for h in rows[(page - 1) * size : page * size]], 200, headers)

    def show_hook(self, ask: Ask, owner: str, name: str, number: str) -> Told:
        return Told(self._hook_json(ask, self._hook(ask, owner, name, number)[1]))

    def make_hook(self, ask: Ask, owner: str, name: str) -> Told:
        row = self._managed(ask, owner, name)
        hook = HookRow(self.new_id(), "", events={"push"}, json=False)
        self._apply(hook, ask)
        others = self.hooks_of(row.path)
        if any(other.url == hook.url and other.events == hook.events for other in others):
            raise _invalid("Hook already exists on this repository")
        for event in hook.events:
            if sum(event in other.events for other in others) >= HOOKS_MAX:
                raise _invalid(f'The "{event}" event cannot have more than {HOOKS_MAX} hooks')
        others.append(hook)
        self.send(self.ping_letter(row.path, hook))
        return Told(self._hook_json(ask, hook), 201)

    def change_hook(self, ask: Ask, owner: str, name: str, number: str) -> Told:
        hook = self._hook(ask, owner, name, number)[1]
        self._apply(hook, ask)
        return Told(self._hook_json(ask, hook))

    def remove_hook(self, ask: Ask, owner: str, name: str, number: str) -> Told:
        row, hook = self._hook(ask, owner, name, number)
        self.hooks_of(row.path).remove(hook)
        return Told(None, 204)

    def ping_hook(self, ask: Ask, owner: str, name: str, number: str) -> Told:
        row, hook = self._hook(ask, owner, name, number)
        self.send(self.ping_letter(row.path, hook))
        return Told(None, 204)

    def test_hook(self, ask: Ask, owner: str, name: str, number: str) -> Told:
        row, hook = self._hook(ask, owner, name, number)
        tip = self.repo(row.path).tip()
        for letter in self.letters(row.path, hook, [RefChange("refs/heads/main", tip, tip)]):
            self.send(letter)
        return Told(None, 204)

    def _apply(self, hook: HookRow, ask: Ask) -> None:
        told = ask.data.get("config", {})
        config = told if isinstance(told, dict) else {}
        url = config.get("url", hook.url)
        if not is_address(url):
            raise _invalid("url is missing a scheme")
        hook.url = url
        hook.json = config.get("content_type", "json" if hook.json else "form") == "json"
        hook.insecure = str(config.get("insecure_ssl", int(hook.insecure))) == "1"
        hook.secret = str(config.get("secret", hook.secret if not config else ""))
        hook.active = bool(ask.data.get("active", hook.active))
        events = ask.data.get("events")
        hook.events = {str(e) for e in events} if isinstance(events, list) else hook.events

    def _hook_json(self, ask: Ask, hook: HookRow) -> Body:
        base = f"{self.base_url}{self.api_root}{ask.path.partition('/hooks')[0]}/hooks/{hook.id}"
        unused = {"code": None, "status": "unused", "message": None}
        good = hook.status is not None and 200 <= hook.status < 300
        said = "OK" if good else f"Invalid HTTP Response: {hook.status}"
        last = {"code": hook.status, "status": "active" if good else "invalid_http_response", "message": said}
        config = {
            "content_type": "json" if hook.json else "form",
            "insecure_ssl": "1" if hook.insecure else "0",
            "url": hook.url,
        }
        return {
            "type": "Repository",
            "id": hook.id,
            "name": "web",
            "active": hook.active,
            "events": sorted(hook.events),
            "config": config | ({"secret": "********"} if hook.secret else {}),
            "updated_at": "2026-06-03T00:57:16Z",
            "created_at": "2026-06-03T00:57:16Z",
            "url": base,
            "test_url": f"{base}/test",
            "ping_url": f"{base}/pings",
            "deliveries_url": f"{base}/deliveries",
            "last_response": unused if hook.status is None else last,
        }

    # What is sent

    def letters(self, path: str, hook: HookRow, changes: list[RefChange]) -> Iterable[Letter]:
        too_many = sum(change.is_tag for change in changes) > TAGS_MAX
        for change in changes:
            if change.is_tag and too_many:
                continue
            for event in ("push", *(["create"] if change.created else ["delete"] if change.deleted else [])):
                if event in hook.events or "*" in hook.events:
                    yield self._letter(path, hook, event, self._event(path, event, change))

    def _event(self, path: str, event: str, change: RefChange) -> Body:
        if event == "push":
            web_url = self.url(path)
            commits = commits_of(self.repo(path), change, web_url)
            more = {
                "forced": False,
                "base_ref": None,
                "pusher": {"name": "author", "email": "author@example.com"},
            }
            return {**push_body(change, commits, web_url), **more}
        kind = "tag" if change.is_tag else "branch"
        body: Body = {"ref": change.short, "ref_type": kind, "pusher_type": "user"}
        return body if event == "delete" else {**body, "master_branch": "main", "description": None}

    def ping_letter(self, path: str, hook: HookRow) -> Letter:
        body = {"zen": "Keep it logically awesome.", "hook_id": hook.id, "hook": {"type": "Repository"}}
        return self._letter(path, hook, "ping", dict(body))

    def renamed(self, row: ProjectRow, old: str, new: str) -> None:
        (owner, name), (new_owner, _) = old.split("/", 1), new.split("/", 1)
        if owner == new_owner:
            body: Body = {"action": "renamed", "changes": {"repository": {"name": {"from": name}}}}
        else:
            body = {
                "action": "transferred",
                "changes": {"owner": {"from": {"organization": {"login": owner}}}},
            }
        for hook in self.hooks_of(new):
            if hook.active and {"repository", "*"} & hook.events:
                self.send(self._letter(new, hook, "repository", body))

    def _letter(self, path: str, hook: HookRow, event: str, body: Body) -> Letter:
        row = self.project_at(path)
        assert row is not None
        sender = {"login": "author", "id": 1, "type": "User"}
        return github_letter(hook, event, {**body, "repository": self._whole(row), "sender": sender}, row.id)

    def _whole(self, row: ProjectRow) -> Body:
        owner, name = row.path.split("/", 1)
        return {
            "id": row.id,
            "name": name,
            "full_name": row.path,
            "private": row.visibility != "public",
            "owner": {"name": owner, "login": owner, "type": "Organization"},
            "html_url": self.url(row.path),
            "url": f"{self.base_url}{self.api_root}/repos/{row.path}",
            "git_url": f"git://{self.host}/{row.path}.git",
            "ssh_url": self.ssh_url(row.path),
            "clone_url": self.url(f"{row.path}.git"),
            "default_branch": self.default_branch(row) or "main",
            "master_branch": "main",
        }
