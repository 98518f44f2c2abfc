"""GitLab's hooks of a project, also in groups within groups.

A secret like ``whsec_`` and 32 bytes in base64 is registered as a signing token: bodies are signed with it. A
GitLab before 19 does not know those, and says so by not telling that it has one: then it becomes the secret
token, which is sent as it is.

GitLab switches hooks off whose deliveries fail, for some minutes or for good. A test that is delivered
switches them on again. A push of more than three branches or tags (``push_event_hooks_limit``) is told by no
hook: polls find those.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote

from evermirror.edge.forge import words
from evermirror.edge.forge.hooks_rest import RestHooks, id_in, url_in
from evermirror.edge.forge.words import Row
from evermirror.model.failure import FailureError
from evermirror.model.forge import Forge
from evermirror.model.hook import ForgeHook, WantedHook

SIGNING = "whsec_"
SIGNING_BYTES = 32
_EVENTS = (
    "push_events",
    "tag_push_events",
    "issues_events",
    "confidential_issues_events",
    "merge_requests_events",
    "note_events",
    "confidential_note_events",
    "job_events",
    "pipeline_events",
    "wiki_page_events",
    "deployment_events",
    "releases_events",
    "milestone_events",
    "feature_flag_events",
    "emoji_events",
    "resource_access_token_events",
    "resource_deploy_token_events",
)


class GitLabHooks(RestHooks):
    """See ``ForgeHooks``."""

    forge = Forge.GITLAB
    events = frozenset({"push_events", "tag_push_events"})
    rights = "The token needs the scope api, and its owner (or itself) the role Maintainer at the project"
    change_method = "PUT"

    def _repo(self, path: str) -> str:
        return f"/projects/{quote(path, safe='')}"

    def _body(self, wanted: WantedHook) -> Mapping[str, object]:
        signs = is_signing_token(wanted.secret)
        return {
            "url": wanted.url,
            **({"signing_token": wanted.secret, "token": ""} if signs else {"token": wanted.secret}),
            **{event: event in wanted.events for event in _EVENTS},
            "enable_ssl_verification": True,
            "push_events_branch_filter": "",
            "branch_filter_strategy": "all_branches",
            "custom_webhook_template": "",
        }

    def _read(self, row: Row) -> ForgeHook:
        events = {event for event in _EVENTS if row.get(event) is True}
        if row.get("push_events_branch_filter"):
            events.discard("push_events")
        off = row.get("alert_status") in ("disabled", "temporarily_disabled")
        return ForgeHook(
            id=id_in(row),
            url=url_in(row),
            active=not off,
            events=frozenset(events),
            json=not row.get("custom_webhook_template"),
            checks_tls=row.get("enable_ssl_verification") is True,
            trouble=self._off(row.get("disabled_until")) if off else "",
        )

    def _off(self, until: object) -> str:
        end = f" until {self._words(until)}" if until else ""
        return f"GitLab has switched it off{end}: deliveries failed"

    async def _settle(self, path: str, row: Row, wanted: WantedHook) -> ForgeHook:
        at = self._one(path, id_in(row))
        if is_signing_token(wanted.secret) and row.get("signing_token_present") is not True:
            row = await self._written("PUT", at, {"url": wanted.url, "token": wanted.secret})
        hook = self._read(row)
        return hook if hook.active else await self._woken(at, hook)

    async def _woken(self, at: str, hook: ForgeHook) -> ForgeHook:
        try:
            await self._http.write("POST", f"{at}/test/push_events")
            return self._read(words.as_row(words.parse((await self._http.get(at)).data)))
        except FailureError as error:
            return replace(hook, trouble=f"{hook.trouble}; a test: {self._words(error.failure.message)}")


def is_signing_token(secret: str) -> bool:
    if not secret.startswith(SIGNING):
        return False
    try:
        return len(base64.b64decode(secret.removeprefix(SIGNING), validate=True)) == SIGNING_BYTES
    except (binascii.Error, ValueError):
        return False
