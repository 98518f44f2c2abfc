"""Bodies and headers of hooks as each forge documents them, about a stand-in's repositories."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Mapping
from urllib.parse import urlencode

from tests.support.forges.sending import HookRow, Letter, RefChange
from tests.support.gitrepo import UpstreamRepo

AUTHOR = {"name": "A U Thor", "email": "author@example.com", "username": "author"}
Body = dict[str, object]


def commits_of(repo: UpstreamRepo, change: RefChange, web_url: str) -> list[Body]:
    """The newest few, oldest first, as forges cut them."""
    if change.deleted:
        return []
    span = change.new if change.created else f"{change.old}..{change.new}"
    lines = repo.git("log", "-20", "--reverse", "--format=%H%x00%T%x00%cI%x00%s", span).splitlines()
    made = [line.split("\0") for line in lines]
    return [
        {
            "id": oid,
            "tree_id": tree,
            "distinct": True,
            "message": subject,
            "title": subject,
            "timestamp": when,
            "url": f"{web_url}/commit/{oid}",
            "author": AUTHOR,
            "committer": AUTHOR,
            "added": [],
            "removed": [],
            "modified": [],
        }
        for oid, tree, when, subject in made
    ]


def mac(secret: str | bytes, data: bytes, kind: str = "sha256") -> bytes:
    key = secret.encode() if isinstance(secret, str) else secret
    return hmac.digest(key, data, getattr(hashlib, kind))


def encoded(hook: HookRow, body: Body) -> tuple[str, bytes, bytes]:
    """Content type, what is sent, and the JSON in it."""
    plain = json.dumps(body, separators=(",", ":")).encode()
    if hook.json:
        return "application/json", plain, plain
    return "application/x-www-form-urlencoded", urlencode({"payload": plain.decode()}).encode(), plain


def github_letter(hook: HookRow, event: str, body: Body, repo_id: int) -> Letter:
    kind, data, _ = encoded(hook, body)
    headers = {
        "Accept": "*/*",
        "Content-Type": kind,
        "User-Agent": "GitHub-Hookshot/044aadd",
        "X-GitHub-Delivery": str(uuid.uuid4()),
        "X-GitHub-Event": event,
        "X-GitHub-Hook-ID": str(hook.id),
        "X-GitHub-Hook-Installation-Target-ID": str(repo_id),
        "X-GitHub-Hook-Installation-Target-Type": "repository",
    }
    if hook.secret:
        headers["X-Hub-Signature"] = "sha1=" + mac(hook.secret, data, "sha1").hex()
        headers["X-Hub-Signature-256"] = "sha256=" + mac(hook.secret, data).hex()
    return Letter(hook, event, headers, data)


def gitea_letter(hook: HookRow, event: str, body: Body) -> Letter:
    """Gitea signs the JSON, also where it is sent as a form, and speaks as Gogs and GitHub too."""
    kind, data, plain = encoded(hook, body)
    number = str(uuid.uuid4())
    sha1 = mac(hook.secret, plain, "sha1").hex() if hook.secret else ""
    sha256 = mac(hook.secret, plain).hex() if hook.secret else ""
    headers = {
        "Content-Type": kind,
        "X-Gitea-Signature": sha256,
        "X-Gogs-Signature": sha256,
        "X-Hub-Signature": f"sha1={sha1}",
        "X-Hub-Signature-256": f"sha256={sha256}",
    }
    for name in ("Gitea", "Gogs", "GitHub"):
        headers |= {f"X-{name}-Delivery": number, f"X-{name}-Event": event, f"X-{name}-Event-Type": event}
    return Letter(hook, event, headers, data)


def gitlab_letter(hook: HookRow, event: str, body: Body, base_url: str) -> Letter:
    data = json.dumps(body, separators=(",", ":")).encode()
    number = str(uuid.uuid4())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "GitLab/19.0.0",
        "Idempotency-Key": number,
        "X-Gitlab-Event": event,
        "X-Gitlab-Webhook-UUID": hook.uuid,
        "X-Gitlab-Instance": base_url,
        "X-Gitlab-Event-UUID": str(uuid.uuid4()),
    }
    if hook.secret:
        headers["X-Gitlab-Token"] = hook.secret
    if hook.signing:
        at = str(int(time.time()))
        key = base64.b64decode(hook.signing.removeprefix("whsec_"))
        signed = base64.b64encode(mac(key, f"{number}.{at}.".encode() + data)).decode()
        headers |= {"webhook-id": number, "webhook-timestamp": at, "webhook-signature": f"v1,{signed}"}
    return Letter(hook, event, headers, data)


def gitee_letter(hook: HookRow, event: str, body: Body, web_url: str) -> Letter:
    """A password as it is, or the time signed with the key: never the body."""
    at = str(int(time.time() * 1000))
    signed = base64.b64encode(mac(hook.secret, f"{at}\n{hook.secret}".encode())).decode()
    proof = {"sign": signed} if hook.encryption_type == 1 else {"password": hook.secret}
    whole = {
        "hook_id": hook.id,
        "hook_url": f"{web_url}/hooks/{hook.id}/edit",
        "timestamp": at,
        **proof,
        **body,
    }
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "git-oschina-hook",
        "X-Gitee-Token": signed if hook.encryption_type == 1 else hook.secret,
        "X-Gitee-Timestamp": at,
        "X-Gitee-Event": event,
        "X-Git-Oschina-Event": event,
        "X-Gitee-Ping": "false",
    }
    return Letter(hook, event, headers, json.dumps(whole, separators=(",", ":")).encode())


def push_body(change: RefChange, commits: list[Body], web_url: str) -> Mapping[str, object]:
    """What GitHub, Gitea and Gitee say alike of a push."""
    return {
        "ref": change.ref,
        "before": change.old,
        "after": change.new,
        "created": change.created,
        "deleted": change.deleted,
        "compare": f"{web_url}/compare/{change.old[:12]}...{change.new[:12]}",
        "commits": commits,
        "head_commit": commits[-1] if commits else None,
    }
