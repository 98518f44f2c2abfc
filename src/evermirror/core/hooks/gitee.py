"""Gitee's hooks. They have no number: what is the same to byte and millisecond is the same hook."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from evermirror.core.hooks.body import Json, object_in, parse, text_in, texts_in
from evermirror.errors import UsageError
from evermirror.model.forge import Forge
from evermirror.model.hook import Hook, HookKind

_MOVED = frozenset({"push_hooks", "tag_push_hooks"})
# By the header, in bodies that do not name their hook.
_BY_HEADER = {"Push Hook": "push_hooks", "Tag Push Hook": "tag_push_hooks"}
_URLS = ("clone_url", "git_http_url", "html_url", "url", "homepage", "ssh_url", "git_ssh_url")
_FIELDS = ("payload", "hook")  # the hooks of long ago had their JSON in ``hook``


def read(headers: Mapping[str, str], body: bytes) -> Hook:
    found = parse(headers, body, _FIELDS)
    told = headers.get("x-gitee-event", "")
    event = text_in(found, "hook_name") or _BY_HEADER.get(told, told)
    urls = _urls(found)
    if headers.get("x-gitee-ping", "").lower() == "true":
        return Hook(Forge.GITEE, HookKind.PING, event or "ping", "", urls)
    if event in _MOVED and not urls:
        raise UsageError(
            f"The body tells of {event!r} and has no 'repository' with an address",
            hint="Is it a hook of gitee? Each forge has an address of its own",
        )
    kind = HookKind.MOVED if event in _MOVED else HookKind.OTHER
    return Hook(Forge.GITEE, kind, event, _delivery(headers, body), urls)


def _urls(found: Json) -> tuple[str, ...]:
    places = (
        object_in(found, "repository"),
        object_in(found, "project"),
        object_in(object_in(found, "push_data"), "repository"),
    )
    return tuple(dict.fromkeys(url for place in places for url in texts_in(place, *_URLS)))


def _delivery(headers: Mapping[str, str], body: bytes) -> str:
    at = headers.get("x-gitee-timestamp", "")
    if not at:
        return ""
    return hashlib.sha256(at.encode("utf-8", "surrogatepass") + b"\n" + body).hexdigest()[:32]
