"""GitHub's hooks: ``X-GitHub-Event`` names the event, ``X-GitHub-Delivery`` stays when it is sent again."""

from __future__ import annotations

from collections.abc import Mapping

from evermirror.core.hooks.body import Json, object_in, parse, text_in, texts_in
from evermirror.errors import UsageError
from evermirror.model.forge import Forge
from evermirror.model.hook import Hook, HookKind

_MOVED = frozenset({"push", "create", "delete"})
_URLS = ("clone_url", "html_url", "ssh_url")


def read(headers: Mapping[str, str], body: bytes) -> Hook:
    found = parse(headers, body)
    return hook_of(
        Forge.GITHUB, headers.get("x-github-event", ""), headers.get("x-github-delivery", ""), found
    )


def hook_of(forge: Forge, event: str, delivery: str, found: Json) -> Hook:
    """Gitea's bodies have the same shape."""
    repository = object_in(found, "repository")
    urls = texts_in(repository, *_URLS)
    kind = _kind(event, found)
    old_urls = _old_urls(found, repository) if kind is HookKind.RENAMED else ()
    if kind in (HookKind.MOVED, HookKind.RENAMED) and not urls:
        raise UsageError(
            f"The body tells of {event!r} and has no 'repository' with an address",
            hint=f"Is it a hook of {forge.value}? Each forge has an address of its own",
        )
    return Hook(forge, kind, event, delivery, urls, old_urls)


def _kind(event: str, found: Json) -> HookKind:
    if event in _MOVED:
        return HookKind.MOVED
    if event == "ping":
        return HookKind.PING
    if event == "repository":
        action = text_in(found, "action")
        if action in ("renamed", "transferred"):
            return HookKind.RENAMED
        if "default_branch" in object_in(found, "changes"):
            return HookKind.MOVED  # HEAD points elsewhere
    return HookKind.OTHER


def _old_urls(found: Json, repository: Json) -> tuple[str, ...]:
    """The addresses of now, with the name or the owner of before."""
    owner, _, name = text_in(repository, "full_name").partition("/")
    changes = object_in(found, "changes")
    old_name = text_in(object_in(object_in(changes, "repository"), "name"), "from") or name
    before = object_in(object_in(changes, "owner"), "from")
    login = next(
        (text_in(object_in(before, who), "login") for who in ("user", "organization") if who in before), ""
    )
    now, old = f"{owner}/{name}", f"{login or owner}/{old_name}"
    if not owner or not name or now == old:
        return ()
    moved = (_replaced(url, now, old) for url in texts_in(repository, *_URLS))
    return tuple(dict.fromkeys(url for url in moved if url))


def _replaced(url: str, now: str, old: str) -> str:
    """Only at the end: a host may be called like an owner."""
    bare = url.removesuffix("/").removesuffix(".git")
    if not bare.endswith((f"/{now}", f":{now}")):
        return ""
    return bare.removesuffix(now) + old + (".git" if url.endswith(".git") else "")
