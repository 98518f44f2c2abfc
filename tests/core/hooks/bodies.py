"""Hooks as the documentation of GitLab, Gitee and Gitea shows them, with names of our own."""

from __future__ import annotations

import json
from dataclasses import dataclass

from evermirror.model.forge import Forge

ZERO, ONE, TWO = "0" * 40, "1" * 40, "2" * 40
JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Sent:
    forge: Forge
    headers: dict
    found: dict

    @property
    def body(self):
        return json.dumps(self.found).encode()


def _commit(number):
    return {
        "id": number * 40,
        "message": "Update the guide, é and 中文\n",
        "timestamp": "2026-11-12T14:27:31+02:00",
        "url": f"https://git.example.org/team/tools/-/commit/{number * 40}",
        "author": {"name": "A. Writer", "email": "a@example.org"},
        "added": ["docs/a.md"],
        "modified": [],
        "removed": [],
    }


# GitLab

_GITLAB_PROJECT = {
    "id": 15,
    "name": "Tools",
    "description": "",
    "web_url": "https://git.example.org/team/tools",
    "avatar_url": None,
    "git_ssh_url": "git@git.example.org:team/tools.git",
    "git_http_url": "https://git.example.org/team/tools.git",
    "namespace": "Team",
    "visibility_level": 0,
    "path_with_namespace": "team/tools",
    "default_branch": "main",
    "homepage": "https://git.example.org/team/tools",
    "url": "git@git.example.org:team/tools.git",
    "ssh_url": "git@git.example.org:team/tools.git",
    "http_url": "https://git.example.org/team/tools.git",
}
_GITLAB_REPOSITORY = {
    "name": "Tools",
    "url": "git@git.example.org:team/tools.git",
    "description": "",
    "homepage": "https://git.example.org/team/tools",
    "git_http_url": "https://git.example.org/team/tools.git",
    "git_ssh_url": "git@git.example.org:team/tools.git",
    "visibility_level": 0,
}


def _gitlab_headers(event):
    return {
        **JSON,
        "user-agent": "GitLab/18.5.0",
        "x-gitlab-event": event,
        "x-gitlab-instance": "https://git.example.org",
        "x-gitlab-webhook-uuid": "02affd2d-2cba-4033-917d-ec22d5dc4b38",
        "x-gitlab-event-uuid": "13792a34-cac6-4fda-95a8-c58e00a3954e",
        "idempotency-key": "f5e57ebe-07fb-43f5-8b3e-6a8b2b7a0a10",
    }


def _gitlab_push(kind, ref, **more):
    return {
        "object_kind": kind,
        "event_name": kind,
        "before": ONE,
        "after": TWO,
        "ref": ref,
        "checkout_sha": TWO,
        "user_id": 4,
        "user_name": "A. Writer",
        "project_id": 15,
        "project": _GITLAB_PROJECT,
        "repository": _GITLAB_REPOSITORY,
        "commits": [_commit("1"), _commit("2")],
        "total_commits_count": 2,
        **more,
    }


GITLAB_PUSH = Sent(Forge.GITLAB, _gitlab_headers("Push Hook"), _gitlab_push("push", "refs/heads/main"))
GITLAB_TAG = Sent(
    Forge.GITLAB,
    _gitlab_headers("Tag Push Hook"),
    _gitlab_push("tag_push", "refs/tags/v1.0.0", before=ZERO, commits=[], total_commits_count=0),
)
GITLAB_MERGE_REQUEST = Sent(
    Forge.GITLAB,
    _gitlab_headers("Merge Request Hook"),
    {
        "object_kind": "merge_request",
        "event_type": "merge_request",
        "project": _GITLAB_PROJECT,
        "repository": _GITLAB_REPOSITORY,
        "object_attributes": {"id": 99, "iid": 1, "target_branch": "main"},
    },
)


def _system(event, **more):
    return Sent(Forge.GITLAB, _gitlab_headers("System Hook"), {"event_name": event, **more})


GITLAB_SYSTEM_PUSH = _system(
    "push",
    before=ONE,
    after=TWO,
    ref="refs/heads/main",
    project_id=15,
    project=_GITLAB_PROJECT,
    repository=_GITLAB_REPOSITORY,
    commits=[],
)
GITLAB_UPDATE = _system(
    "repository_update",
    user_id=1,
    project_id=15,
    project=_GITLAB_PROJECT,
    changes=[{"before": ONE, "after": TWO, "ref": "refs/heads/main"}],
    refs=["refs/heads/main"],
)
GITLAB_RENAME = _system(
    "project_rename",
    name="Instruments",
    path="instruments",
    path_with_namespace="team/instruments",
    old_path_with_namespace="team/tools",
    project_id=15,
    project_visibility="internal",
)
GITLAB_TRANSFER = _system(
    "project_transfer",
    name="Tools",
    path="tools",
    path_with_namespace="crew/tools",
    old_path_with_namespace="team/tools",
    project_id=15,
)
GITLAB_CREATE = _system("project_create", name="New", path_with_namespace="team/new", project_id=16)

# Gitee

_GITEE_PROJECT = {
    "id": 120249025,
    "name": "tools",
    "path": "tools",
    "full_name": "team/tools",
    "url": "https://gitee.com/team/tools",
    "html_url": "https://gitee.com/team/tools",
    "git_url": "git://gitee.com/team/tools.git",
    "ssh_url": "git@gitee.com:team/tools.git",
    "clone_url": "https://gitee.com/team/tools.git",
    "svn_url": "svn://gitee.com/team/tools",
    "git_http_url": "https://gitee.com/team/tools.git",
    "git_ssh_url": "git@gitee.com:team/tools.git",
    "homepage": None,
    "private": False,
    "default_branch": "main",
    "namespace": "team",
    "path_with_namespace": "team/tools",
}


def _gitee(event, name, ref, **headers):
    return Sent(
        Forge.GITEE,
        {
            **JSON,
            "user-agent": "git-oschina-hook",
            "x-gitee-event": event,
            "x-gitee-timestamp": "1794830400123",
            "x-gitee-ping": "false",
            **headers,
        },
        {
            "hook_name": name,
            "hook_id": 1,
            "hook_url": "https://gitee.com/team/tools/hooks/1/edit",
            "timestamp": "1794830400123",
            "sign": "",
            "password": "",
            "ref": ref,
            "before": ZERO,
            "after": TWO,
            "created": True,
            "deleted": False,
            "commits": [_commit("2")],
            "repository": _GITEE_PROJECT,
            "project": _GITEE_PROJECT,
            "user_name": "A. Writer",
        },
    )


GITEE_PUSH = _gitee("Push Hook", "push_hooks", "refs/heads/main")
GITEE_TAG = _gitee("Tag Push Hook", "tag_push_hooks", "refs/tags/v1")
GITEE_PING = _gitee("Push Hook", "push_hooks", "refs/heads/main", **{"x-gitee-ping": "true"})
GITEE_ISSUE = _gitee("Issue Hook", "issue_hooks", "")

# Gitea, Forgejo

_GITEA_REPOSITORY = {
    "id": 140,
    "owner": {"id": 1, "login": "team", "full_name": "Team", "email": "", "username": "team"},
    "name": "tools",
    "full_name": "team/tools",
    "description": "",
    "private": False,
    "fork": False,
    "html_url": "https://gitea.example.org/team/tools",
    "ssh_url": "ssh://gitea@gitea.example.org:2222/team/tools.git",
    "clone_url": "https://gitea.example.org/team/tools.git",
    "website": "",
    "default_branch": "main",
}


def _gitea(event, names=("gitea", "gogs", "github"), **found):
    headers = {**JSON, "user-agent": "Go-http-client/1.1"}
    for name in names:
        headers[f"x-{name}-event"] = event
        headers[f"x-{name}-event-type"] = event
        headers[f"x-{name}-delivery"] = "f6266f16-1bf3-46a5-9ea4-602e06ead473"
    return Sent(Forge.GITEA, headers, {**found, "repository": _GITEA_REPOSITORY, "sender": {"login": "team"}})


GITEA_PUSH = _gitea(
    "push", ref="refs/heads/main", before=ONE, after=TWO, commits=[_commit("2")], compare_url=""
)
GITEA_CREATE = _gitea("create", sha=TWO, ref="v1", ref_type="tag")
GITEA_DELETE = _gitea("delete", ref="old", ref_type="branch", pusher_type="user")
GITEA_ISSUE = _gitea("issues", action="opened", number=1)
FORGEJO_PUSH = _gitea("push", ("forgejo", "gitea", "gogs", "github"), ref="refs/heads/main", commits=[])

ALL = tuple(value for value in list(globals().values()) if isinstance(value, Sent))
