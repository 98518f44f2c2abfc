"""Which client for which forge's hooks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evermirror.edge.forge.hooks_api import ForgeHooks
from evermirror.edge.forge.hooks_gitea import GiteaHooks
from evermirror.edge.forge.hooks_gitee import GiteeHooks
from evermirror.edge.forge.hooks_github import GitHubHooks
from evermirror.edge.forge.hooks_gitlab import GitLabHooks
from evermirror.edge.forge.hooks_rest import HookRedactor, RestHooks
from evermirror.edge.forge.http import Pace, Patience
from evermirror.edge.forge.make import forge_http
from evermirror.edge.forge.pinned import Resolve
from evermirror.edge.git.credentials import Credential, Redactor
from evermirror.model.forge import Forge

_CLIENTS: Mapping[Forge, type[RestHooks]] = {
    Forge.GITLAB: GitLabHooks,
    Forge.GITEA: GiteaHooks,
    Forge.GITHUB: GitHubHooks,
    Forge.GITEE: GiteeHooks,
}


def make_forge_hooks(
    forge: Forge,
    base_url: str,
    credential: Credential | None,
    *,
    resolve: Resolve,
    redactor: Redactor,
    ca_file: Path | None = None,
    pace: Pace | None = None,
    patience: Patience | None = None,
) -> ForgeHooks:
    """As ``make_forge``: ``base_url`` is the instance's, ``pace`` is shared by all clients of it."""
    known = HookRedactor(redactor)
    http = forge_http(forge, base_url, credential, resolve, known, ca_file, pace, patience)
    return _CLIENTS[forge](http, known)
