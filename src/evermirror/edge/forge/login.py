"""How each forge is told who asks."""

from __future__ import annotations

import base64

from evermirror.edge.git.credentials import Credential
from evermirror.model.forge import Forge


def login_headers(forge: Forge, credential: Credential | None) -> dict[str, str]:
    """For an API; none where there is no secret to tell."""
    headers = {"Accept": "application/vnd.github+json"} if forge is Forge.GITHUB else {}
    if credential is None or not credential.secret:
        return headers
    if forge is Forge.GITLAB:
        return {"PRIVATE-TOKEN": credential.secret}
    if forge in (Forge.GITHUB, Forge.GITEE):
        return {"Authorization": f"Bearer {credential.secret}", **headers}
    if credential.token:
        return {"Authorization": f"token {credential.token}"}
    pair = f"{credential.login}:{credential.password}".encode()
    return {"Authorization": "Basic " + base64.b64encode(pair).decode("ascii")}
