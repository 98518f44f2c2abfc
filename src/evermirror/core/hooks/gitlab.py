"""GitLab's hooks: of a project, of a group, or of the whole instance (a *system hook*).

The body names the event: ``object_kind``, or (system hooks) ``event_name``. A system hook that tells of a
rename has paths and no address: ``X-Gitlab-Instance`` has the rest of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from evermirror.core.hooks.body import TEXT_MAX_CHARS, Json, object_in, parse, text_in, texts_in
from evermirror.errors import UsageError
from evermirror.model.forge import Forge
from evermirror.model.hook import Hook, HookKind

_MOVED = frozenset({"push", "tag_push", "repository_update"})
_RENAMED = frozenset({"project_rename", "project_transfer"})
_PROJECT_URLS = ("git_http_url", "http_url", "web_url", "homepage", "git_ssh_url", "ssh_url")
_REPOSITORY_URLS = ("git_http_url", "homepage", "git_ssh_url", "url")


def read(headers: Mapping[str, str], body: bytes) -> Hook:
    found = parse(headers, body)
    event = text_in(found, "object_kind") or text_in(found, "event_name")
    if event in _RENAMED:
        return Hook(
            Forge.GITLAB,
            HookKind.RENAMED,
            event,
            _delivery(headers, body),
            _addresses(headers, text_in(found, "path_with_namespace")),
            _addresses(headers, text_in(found, "old_path_with_namespace")),
        )
    urls = _urls(headers, found)
    if event in _MOVED and not urls:
        raise UsageError(
            f"The body tells of {event!r} and has no 'project' with an address",
            hint="Is it a hook of gitlab? Each forge has an address of its own",
        )
    kind = HookKind.MOVED if event in _MOVED else HookKind.OTHER
    return Hook(
        Forge.GITLAB, kind, event or headers.get("x-gitlab-event", ""), _delivery(headers, body), urls
    )


def _urls(headers: Mapping[str, str], found: Json) -> tuple[str, ...]:
    own = texts_in(object_in(found, "project"), *_PROJECT_URLS)
    older = texts_in(object_in(found, "repository"), *_REPOSITORY_URLS)
    told = tuple(dict.fromkeys((*own, *older)))
    return told or _addresses(headers, text_in(found, "path_with_namespace"))


def _addresses(headers: Mapping[str, str], path: str) -> tuple[str, ...]:
    instance = headers.get("x-gitlab-instance", "").rstrip("/")
    usable = instance.startswith(("https://", "http://")) and instance.isprintable()
    if not path or not usable or len(instance) > TEXT_MAX_CHARS:
        return ()
    return (f"{instance}/{path}.git",)


def _delivery(headers: Mapping[str, str], body: bytes) -> str:
    """``Idempotency-Key`` stays when a hook is sent again, and ``webhook-id`` is the same thing, signed. An
    older GitLab has ``X-Gitlab-Event-UUID`` only, which also hooks that follow from one another share."""
    if known := headers.get("webhook-id") or headers.get("idempotency-key"):
        return known
    if uuid := headers.get("x-gitlab-event-uuid"):
        return f"{uuid}-{hashlib.sha256(body).hexdigest()[:16]}"
    return ""
