"""Hooks as GitHub sends them: bodies and headers, signed."""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from dataclasses import dataclass

HOOKS_PATH = "/api/webhooks/github"


@dataclass(frozen=True, slots=True)
class SentHook:
    body: bytes
    headers: dict[str, str]


def sent(event: str, secret: str, payload: dict[str, object], delivery: str | None = None) -> SentHook:
    body = json.dumps(payload).encode()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": delivery or str(uuid.uuid4()),
        "X-Hub-Signature-256": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest(),
    }
    return SentHook(body, headers)


def push_of(url: str, secret: str, delivery: str | None = None, ref: str = "refs/heads/main") -> SentHook:
    payload = {"ref": ref, "repository": {"clone_url": url, "html_url": url.removesuffix(".git")}}
    return sent("push", secret, payload, delivery)


def rename_of(url: str, old_name: str, secret: str) -> SentHook:
    """``url`` is the one of now."""
    bare = url.removesuffix(".git")
    payload = {
        "action": "renamed",
        "changes": {"repository": {"name": {"from": old_name}}},
        "repository": {"full_name": "/".join(bare.split("/")[-2:]), "clone_url": url, "html_url": bare},
    }
    return sent("repository", secret, payload)
