"""A stand-in for a forge: a real git server, and beside it the part of the API that sets default branches.

Written from the documented APIs of GitLab (projects: GET, PUT), Gitea, GitHub and Gitee (repos: GET, PATCH;
at Gitee with the name). What the API says is what the repository's HEAD is.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from tests.support.backend import Reply, Request
from tests.support.gitrepo import read_head, read_refs
from tests.support.upstream import UpstreamServer

_PATHS = {
    "gitlab": re.compile(r"/api/v4/projects/([^/]+)"),
    "gitea": re.compile(r"/api/v1/repos/([^/]+/[^/]+)"),
    "github": re.compile(r"/api/v3/repos/([^/]+/[^/]+)"),
    "gitee": re.compile(r"/api/v5/repos/([^/]+/[^/]+)"),
}
_METHOD = {"gitlab": "PUT", "gitea": "PATCH", "github": "PATCH", "gitee": "PATCH"}


@dataclass
class ForgeServer(UpstreamServer):
    """``api`` is the forge that it plays; ``token`` is the one that may change a project."""

    api: str = "gitlab"
    token: str = "forge-token"

    def answer(self, request: Request, body: bytes) -> Reply:
        path = urlsplit(request.path).path
        if not path.startswith("/api/"):
            return super().answer(request, body)
        fault = self._take_fault(request.path)
        if fault is not None:
            return Reply(fault.status, list(fault.headers.items()), iter([fault.body]))
        match = _PATHS[self.api].fullmatch(path)
        folder = self.root / f"{unquote(match[1])}.git" if match is not None else None
        if folder is None or not folder.is_dir():
            return _json(404, {"message": "404 Project Not Found"})
        if not self._signed_in(request):
            return _json(401, {"message": "401 Unauthorized"})
        if request.method != "GET":
            if request.method != _METHOD[self.api]:
                return _json(405, {"message": "405 Method Not Allowed"})
            wanted = json.loads(body)
            if self.api == "gitee" and wanted.get("name") != folder.stem:
                return _json(400, {"message": "name is missing"})
            branch = wanted["default_branch"]
            if f"refs/heads/{branch}" not in read_refs(folder):
                return _json(422, {"message": f"the branch {branch} does not exist"})
            (folder / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
        head = read_head(folder).removeprefix("refs/heads/")
        return _json(200, {"id": 1, "name": folder.stem, "default_branch": head})

    def _signed_in(self, request: Request) -> bool:
        headers = request.headers
        if self.api == "gitlab":
            return headers.get("private-token") == self.token
        basic = base64.b64encode(f"robot:{self.token}".encode()).decode()
        wanted = {
            "gitea": {f"token {self.token}", f"Basic {basic}"},
            "github": {f"Bearer {self.token}"},
            "gitee": {f"Bearer {self.token}"},
        }
        return headers.get("authorization") in wanted[self.api]


def _json(status: int, value: object) -> Reply:
    return Reply(status, [("Content-Type", "application/json")], iter([json.dumps(value).encode()]))
