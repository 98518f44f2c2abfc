"""GitLab's endpoints for hooks, and what it sends: pushes of branches and of tags.

Of more than three branches, or tags, in one push it sends nothing (``push_event_hooks_limit``). A hook whose
deliveries fail four times in a row is switched off for a while, after forty for good; a test that is
delivered switches it on again. ``signs``: it knows signing tokens, as GitLab 19 does.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterable
from fnmatch import fnmatch

from tests.support.forges.api_server import ApiError, ApiServer, Ask, ProjectRow, Told
from tests.support.forges.gitlab_pages import numbered_page
from tests.support.forges.hook_bodies import Body, commits_of, gitlab_letter
from tests.support.forges.hooked import as_flag, is_address
from tests.support.forges.sending import Delivery, HookRow, Letter, RefChange

REFS_MAX = 3  # of one kind in a push that is told
HOOKS_MAX = 100
FAILURES_MAX, FAILURES_FOR_GOOD = 4, 40
_KINDS = (
    *("push", "tag_push", "issues", "confidential_issues", "merge_requests", "note", "confidential_note"),
    *("job", "pipeline", "wiki_page", "deployment", "releases", "milestone", "feature_flag", "emoji"),
    *("resource_access_token", "resource_deploy_token"),
)
EVENTS = tuple(f"{kind}_events" for kind in _KINDS)
_NOT_FOUND = {"message": "404 Not found"}
HOOK_ROUTES = (
    ("GET", r"/projects/([^/]+)/hooks", "list_hooks"),
    ("POST", r"/projects/([^/]+)/hooks", "make_hook"),
    ("GET", r"/projects/([^/]+)/hooks/(\d+)", "show_hook"),
    ("PUT", r"/projects/([^/]+)/hooks/(\d+)", "change_hook"),
    ("DELETE", r"/projects/([^/]+)/hooks/(\d+)", "remove_hook"),
    ("POST", r"/projects/([^/]+)/hooks/(\d+)/test/([a-z_]+)", "test_hook"),
)


class GitLabHookRoutes(ApiServer):
    signs: bool

    def _project(self, ask: Ask, ref: str) -> ProjectRow:
        raise NotImplementedError

    def _managed(self, ask: Ask, ref: str) -> ProjectRow:
        row = self._project(ask, ref)
        if ask.token is None:
            raise ApiError(401, {"message": "401 Unauthorized"})
        if not ask.token.manages:
            raise ApiError(403, {"message": "403 Forbidden"})
        return row

    def _hook(self, ask: Ask, ref: str, number: str) -> tuple[ProjectRow, HookRow]:
        row = self._managed(ask, ref)
        return row, self.find_hook(row.path, number, ApiError(404, _NOT_FOUND))

    def list_hooks(self, ask: Ask, ref: str) -> Told:
        row = self._managed(ask, ref)
        api_url = self.base_url + self.api_root
        return numbered_page(api_url, ask, self.hooks_of(row.path), lambda hook: self._hook_json(row, hook))

    def show_hook(self, ask: Ask, ref: str, number: str) -> Told:
        return Told(self._hook_json(*self._hook(ask, ref, number)))

    def make_hook(self, ask: Ask, ref: str) -> Told:
        row = self._managed(ask, ref)
        if "url" not in ask.data:
            raise ApiError(400, {"error": "url is missing"})
        if len(self.hooks_of(row.path)) >= HOOKS_MAX:
            raise ApiError(422, {"error": f"Maximum number of project hooks ({HOOKS_MAX}) exceeded"})
        hook = HookRow(self.new_id(), "", events={"push_events"})
        self._apply(hook, ask)
        self.hooks_of(row.path).append(hook)
        return Told(self._hook_json(row, hook), 201)

    def change_hook(self, ask: Ask, ref: str, number: str) -> Told:
        row, hook = self._hook(ask, ref, number)
        self._apply(hook, ask)
        return Told(self._hook_json(row, hook))

    def remove_hook(self, ask: Ask, ref: str, number: str) -> Told:
        row, hook = self._hook(ask, ref, number)
        self.hooks_of(row.path).remove(hook)
        return Told(None, 204)

    def test_hook(self, ask: Ask, ref: str, number: str, trigger: str) -> Told:
        row, hook = self._hook(ask, ref, number)
        if trigger not in EVENTS:
            raise ApiError(400, {"error": "trigger does not have a valid value"})
        if self.is_empty(row):
            raise ApiError(422, {"message": "Ensure the project has at least one commit."})
        delivery = self.ping(row.path, hook)
        if not 200 <= delivery.status < 300:
            words = f"Hook execution failed: {delivery.said}" if not delivery.status else str(delivery.status)
            raise ApiError(422, {"message": words})
        return Told({"message": "201 Created"}, 201)

    def _apply(self, hook: HookRow, ask: Ask) -> None:
        data = ask.data
        url = data.get("url", hook.url)
        if not is_address(url):
            raise ApiError(422, {"error": "Invalid url given"})
        if self.signs and data.get("signing_token"):
            if not _is_key(str(data["signing_token"])):
                raise ApiError(422, {"message": {"signing_token": ["must be in the whsec_<base64> format"]}})
            hook.signing = str(data["signing_token"])
        hook.url, hook.secret = str(url), str(data.get("token", hook.secret) or "")
        hook.events = {event for event in EVENTS if as_flag(data, event, event in hook.events)}
        hook.insecure = not as_flag(data, "enable_ssl_verification", not hook.insecure)
        hook.branch_filter = str(data.get("push_events_branch_filter", hook.branch_filter) or "")
        hook.template = str(data.get("custom_webhook_template", hook.template) or "")

    def _hook_json(self, row: ProjectRow, hook: HookRow) -> Body:
        known = {"token_present": bool(hook.secret), "signing_token_present": bool(hook.signing)}
        return {
            "id": hook.id,
            "url": hook.url,
            "name": None,
            "description": None,
            "created_at": "2026-06-03T00:57:16.000Z",
            "project_id": row.id,
            **{event: event in hook.events for event in EVENTS},
            "repository_update_events": False,
            "enable_ssl_verification": not hook.insecure,
            "alert_status": _status(hook),
            "disabled_until": hook.disabled_until,
            "url_variables": [],
            "push_events_branch_filter": hook.branch_filter or None,
            "branch_filter_strategy": "wildcard" if hook.branch_filter else "all_branches",
            "custom_webhook_template": hook.template,
            "custom_headers": [],
            **(known if self.signs else {}),
        }

    # What is sent

    def letters(self, path: str, hook: HookRow, changes: list[RefChange]) -> Iterable[Letter]:
        if _status(hook) != "executable":
            return
        tags = [change for change in changes if change.is_tag]
        branches = [change for change in changes if not change.is_tag]
        for kind, event in ((branches, "push_events"), (tags, "tag_push_events")):
            for change in kind if len(kind) <= REFS_MAX and event in hook.events else ():
                if change.is_tag or fnmatch(change.short, hook.branch_filter or "*"):
                    yield self._letter(path, hook, change)

    def ping_letter(self, path: str, hook: HookRow) -> Letter:
        tip = self.repo(path).tip()
        return self._letter(path, hook, RefChange("refs/heads/main", tip, tip))

    def delivered(self, delivery: Delivery) -> None:
        super().delivered(delivery)
        hook = delivery.letter.hook
        off = FAILURES_MAX <= hook.failures < FAILURES_FOR_GOOD
        later = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() + 60))
        hook.disabled_until = later if off else None

    def _letter(self, path: str, hook: HookRow, change: RefChange) -> Letter:
        row = self.project_at(path)
        assert row is not None
        kind = "tag_push" if change.is_tag else "push"
        web_url = self.url(path)
        commits = commits_of(self.repo(path), change, web_url)
        http_url, ssh_url = self.url(f"{path}.git"), self.ssh_url(path)
        level = {"private": 0, "internal": 10, "public": 20}[row.visibility]
        urls = {"git_ssh_url": ssh_url, "git_http_url": http_url, "homepage": web_url, "url": ssh_url}
        project = {
            "id": row.id,
            "name": row.name,
            "description": row.description,
            "web_url": web_url,
            "avatar_url": None,
            **urls,
            "namespace": path.rpartition("/")[0],
            "visibility_level": level,
            "path_with_namespace": path,
            "default_branch": self.default_branch(row) or "main",
            "ci_config_path": None,
            "ssh_url": ssh_url,
            "http_url": http_url,
        }
        body: Body = {
            "object_kind": kind,
            "event_name": kind,
            "before": change.old,
            "after": change.new,
            "ref": change.ref,
            "ref_protected": False,
            "checkout_sha": None if change.deleted else change.new,
            "message": None,
            "user_id": 1,
            "user_name": "A U Thor",
            "user_username": "author",
            "project_id": row.id,
            "project": project,
            "commits": commits,
            "total_commits_count": len(commits),
            "push_options": {},
            "repository": {"name": row.name, "description": "", "visibility_level": level, **urls},
        }
        return gitlab_letter(hook, "Tag Push Hook" if change.is_tag else "Push Hook", body, self.base_url)


def _status(hook: HookRow) -> str:
    if hook.failures >= FAILURES_FOR_GOOD:
        return "disabled"
    return "temporarily_disabled" if hook.failures >= FAILURES_MAX else "executable"


def _is_key(token: str) -> bool:
    try:
        key = base64.b64decode(token.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        return False
    return token.startswith("whsec_") and len(key) == 32
