"""Which client for which forge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from evermirror.edge.forge.api import ForgeApi
from evermirror.edge.forge.gitea import Gitea
from evermirror.edge.forge.github import GitHub
from evermirror.edge.forge.gitlab import GitLab
from evermirror.edge.forge.http import ForgeHttp, Pace, Patience
from evermirror.edge.forge.login import login_headers
from evermirror.edge.forge.pinned import Pinned, Resolve
from evermirror.edge.git.credentials import Credential, Redactor
from evermirror.errors import InvalidUrl, UsageError
from evermirror.model.forge import Forge

GITHUB_PATIENCE = Patience(write_gap_s=1.0)  # GitHub asks for a second between writes
GROUPS_HINT = "Groups of gitlab, gitea and github can be; add the repositories of others one by one"
_CLIENTS: Mapping[Forge, Callable[..., ForgeApi]] = {
    Forge.GITLAB: GitLab,
    Forge.GITEA: Gitea,
    Forge.GITHUB: GitHub,
}


def make_forge(
    forge: Forge,
    base_url: str,
    credential: Credential | None,
    *,
    resolve: Resolve,
    redactor: Redactor,
    ca_file: Path | None = None,
    pace: Pace | None = None,
    patience: Patience | None = None,
) -> ForgeApi:
    """``base_url``: the instance's, as people write it. ``pace``: shared by clients of the same instance.
    Raises UsageError for a forge whose groups are not followed."""
    if forge not in _CLIENTS:
        raise UsageError(f"groups at {forge.value} are not followed", hint=GROUPS_HINT)
    http = forge_http(forge, base_url, credential, resolve, redactor, ca_file, pace, patience)
    return _CLIENTS[forge](http, signed_in=credential is not None and bool(credential.secret))


def forge_http(
    forge: Forge,
    base_url: str,
    credential: Credential | None,
    resolve: Resolve,
    redactor: Redactor,
    ca_file: Path | None,
    pace: Pace | None,
    patience: Patience | None,
) -> ForgeHttp:
    """An instance's API, asked with this login."""
    chosen = patience or (GITHUB_PATIENCE if forge is Forge.GITHUB else Patience())
    headers = login_headers(forge, credential)
    pinned = Pinned(resolve, ca_file)
    return ForgeHttp(api_url(forge, base_url), headers, pinned, redactor, pace or Pace(), chosen)


def api_url(forge: Forge, base_url: str) -> str:
    """Where the API of an instance is. Raises InvalidUrl."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidUrl("a forge's address is written as https://host, or https://host/path")
    if parts.username is not None or parts.password is not None:
        raise InvalidUrl("a forge's address has no user name: the token comes from a credential")
    base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    if forge is Forge.GITLAB:
        return f"{base}/api/v4"
    if forge is Forge.GITEA:
        return f"{base}/api/v1"
    if forge is Forge.GITEE:
        return f"{base}/api/v5"
    return (
        "https://api.github.com" if parts.hostname in ("github.com", "api.github.com") else f"{base}/api/v3"
    )
