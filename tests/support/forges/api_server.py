"""What the stand-ins share: rows of projects and groups, tokens, JSON, git behind a token; faults."""

from __future__ import annotations

import base64
import binascii
import json
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.support.backend import Reply, Request, run_backend
from tests.support.forges import hooks
from tests.support.forges.faults import Fault, Faults
from tests.support.forges.hooked import Hooked
from tests.support.forges.sending import HookRow, Sender
from tests.support.gitrepo import UpstreamRepo, read_head
from tests.support.ssh import SshUpstream
from tests.support.upstream import UpstreamServer

VISIBILITIES = ("private", "internal", "public")


@dataclass
class Token:
    """``expires``: a date as the forge writes it. ``sees``: path prefixes of private things; None: all."""

    value: str
    name: str = "robot"
    scopes: tuple[str, ...] = ("api",)
    expires: str | None = None
    sees: tuple[str, ...] | None = None
    manages: bool = True  # its owner has the role that hooks need
    user_id: int = 1  # its owner's

    @property
    def expired(self) -> bool:
        return self.expires is not None and self.expires[:10] <= time.strftime("%Y-%m-%d", time.gmtime())


@dataclass
class GroupRow:
    id: int
    path: str
    name: str
    visibility: str = "private"
    kind: str = "group"  # "user": a person's own
    doomed: str | None = None  # the day on which somebody deleted it


@dataclass
class ProjectRow:
    id: int
    path: str
    name: str
    visibility: str = "private"
    description: str = ""
    archived: bool = False
    created_at: str = "2026-01-01T00:00:00Z"
    doomed: str | None = None  # GitLab: the day on which it was deleted, to be kept for some more


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as the routes see it."""

    method: str
    path: str  # below the API's root, still encoded
    query: Mapping[str, str]
    data: Mapping[str, object]
    token: Token | None


class ApiError(Exception):
    """Answered with this status and value."""

    def __init__(self, status: int, value: object, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(str(value))
        self.status = status
        self.value = value
        self.headers = dict(headers or {})


@dataclass(frozen=True, slots=True)
class Told:
    """What a route answers."""

    value: object
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class ApiServer(Hooked, UpstreamServer):
    """Groups and projects with real repositories below ``root``. Subclasses add the API."""

    ssh: SshUpstream | None = None
    api_root: str = "/api"
    protects: bool = False  # the default branch becomes a protected one with the first push

    def __post_init__(self) -> None:
        self.groups: dict[int, GroupRow] = {}
        self.projects: dict[int, ProjectRow] = {}
        self.moved: dict[str, int] = {}  # former paths of projects
        self.tokens: dict[str, Token] = {}
        self.faults = Faults()
        self.hook_rows: dict[int, list[HookRow]] = {}  # by project
        self.sender = Sender()
        self._next_id = 100
        self.state = threading.RLock()
        super().__post_init__()

    def close(self) -> None:
        self.sender.close()
        super().close()

    # What there is

    @property
    def base_url(self) -> str:
        return self.url("").rstrip("/")

    def add_token(self, value: str, **more: object) -> Token:
        token = Token(value, **more)  # type: ignore[arg-type]
        self.tokens[value] = token
        return token

    def new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def add_group(self, path: str, visibility: str = "private", *, kind: str = "group") -> GroupRow:
        """With its parents; one that is there is returned as it is."""
        with self.state:
            row = self.group_at(path)
            if row is None:
                parent = path.rpartition("/")[0]
                if parent:
                    self.add_group(parent, visibility)
                row = GroupRow(self.new_id(), path, path.rpartition("/")[2], visibility, kind)
                self.groups[row.id] = row
            return row

    def add_project(
        self, path: str, commits: int = 0, visibility: str = "private", **more: object
    ) -> UpstreamRepo:
        """In a group that is made where it is missing (of the same visibility)."""
        with self.state:
            self.add_group(path.rpartition("/")[0], visibility)
            row = self.make_project(path, visibility, **more)
        repo = self.repo(row.path)
        if commits:
            repo.bulk_commits(commits)
        return repo

    def make_project(self, path: str, visibility: str, **more: object) -> ProjectRow:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        row = ProjectRow(self.new_id(), path, path.rpartition("/")[2], visibility, created_at=stamp)
        for name, value in more.items():
            setattr(row, name, value)
        folder = self.root / f"{path}.git"
        shutil.copytree(self._pattern(), folder)
        hooks.set_archived(folder, row.archived)
        self.moved.pop(path, None)
        self.projects[row.id] = row
        return row

    def _pattern(self) -> Path:
        """An empty repository to copy: much quicker than three gits for each."""
        folder = self.root.with_name(self.root.name + ".pattern.git")
        if not folder.exists():
            made = UpstreamRepo.init(folder, "pattern", "")
            self.configure(made)
            hooks.install(folder, protects=self.protects)
        return folder

    def configure(self, repo: UpstreamRepo) -> None:
        repo.configure([("http.receivepack", "true"), ("receive.advertisePushOptions", "true")])

    def repo(self, path: str) -> UpstreamRepo:
        return UpstreamRepo(self.root / f"{path}.git", path, self.url(f"{path}.git"))

    def group_at(self, path: str) -> GroupRow | None:
        """Paths are the same in either letter case, as on every forge."""
        return next((g for g in self.groups.values() if g.path.lower() == path.lower()), None)

    def project_at(self, path: str) -> ProjectRow | None:
        return next((p for p in self.projects.values() if p.path.lower() == path.lower()), None)

    def rename_project(self, path: str, new_path: str) -> None:
        """Also into another group, which is there."""
        with self.state:
            row = self.project_at(path)
            assert row is not None, f"no project {path}"
            self._move(row, new_path)

    def rename_group(self, path: str, new_path: str) -> None:
        """With everything in it."""
        with self.state:
            for group in self.groups.values():
                if group.path == path or group.path.startswith(path + "/"):
                    group.path = new_path + group.path[len(path) :]
            for row in self.projects.values():
                if row.path.startswith(path + "/"):
                    self._move(row, new_path + row.path[len(path) :])

    def _move(self, row: ProjectRow, new_path: str) -> None:
        target = self.root / f"{new_path}.git"
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.root / f"{row.path}.git").rename(target)
        self.moved[row.path] = row.id
        self.moved.pop(new_path, None)
        row.path = new_path

    def archive(self, path: str, archived: bool = True) -> None:
        with self.state:
            row = self.project_at(path)
            assert row is not None, f"no project {path}"
            row.archived = archived
            hooks.set_archived(self.root / f"{row.path}.git", archived)

    def remove_project(self, path: str) -> None:
        with self.state:
            row = self.project_at(path)
            assert row is not None, f"no project {path}"
            del self.projects[row.id]
            self.delete(self.repo(row.path))

    def protected(self, path: str) -> dict[str, bool]:
        """Names of protected branches, and whether they may be rewritten."""
        return {rule.name: rule.force for rule in hooks.rules(self.root / f"{path}.git")}

    def protect(self, path: str, name: str, *, force: bool = False) -> None:
        folder = self.root / f"{path}.git"
        others = [rule for rule in hooks.rules(folder) if rule.name != name]
        hooks.set_rules(folder, [*others, hooks.Rule(name, force)])

    def unprotect(self, path: str, name: str) -> None:
        folder = self.root / f"{path}.git"
        hooks.set_rules(folder, [rule for rule in hooks.rules(folder) if rule.name != name])

    def default_branch(self, row: ProjectRow) -> str | None:
        """None where there is nothing yet."""
        folder = self.root / f"{row.path}.git"
        head = read_head(folder)
        return head.removeprefix("refs/heads/") if head in _ref_names(folder) else None

    def is_empty(self, row: ProjectRow) -> bool:
        return not _ref_names(self.root / f"{row.path}.git")

    def set_default_branch(self, row: ProjectRow, branch: str) -> bool:
        folder = self.root / f"{row.path}.git"
        if f"refs/heads/{branch}" not in _ref_names(folder):
            return False
        (folder / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
        return True

    def ssh_url(self, path: str) -> str:
        if self.ssh is None:
            return f"git@{self.address}:{path}.git"
        assert self.ssh.root == self.root, "the ssh server has other repositories"
        return self.ssh.url(f"{path}.git")

    def sees(self, token: Token | None, path: str, visibility: str) -> bool:
        if visibility == "public":
            return True
        if token is None:
            return False
        return visibility == "internal" or token.sees is None or path.startswith(token.sees)

    # Faults

    def fault(self, path: str = "/", **more: object) -> None:
        """Spoils requests to the API whose address contains ``path``; see ``faults.Fault``."""
        self.faults.add(Fault(path, **more))  # type: ignore[arg-type]

    def heal(self) -> None:
        self.faults.clear()
        super().heal()

    def asked(self, method: str | None = None) -> list[str]:
        """Addresses of the requests to the API so far."""
        below = self.api_root + "/"
        return [r.path for r in self.requests if r.path.startswith(below) and method in (None, r.method)]

    # Answering

    def answer(self, request: Request, body: bytes) -> Reply:
        if not urlsplit(request.path).path.startswith(self.api_root + "/"):
            return self._answer_git(request, body)
        return self.faults.answer(request, lambda: self._answer_api(request, body), self.closing.wait)

    def _answer_api(self, request: Request, body: bytes) -> Reply:
        split = urlsplit(request.path)
        try:
            token = self.token_of(request)
            data = _read_data(request, body)
            path = split.path[len(self.api_root) :]
            ask = Ask(request.method, path, dict(parse_qsl(split.query, True)), data, token)
            with self.state:
                told = self.route(ask)
        except ApiError as error:
            told = Told(error.value, error.status, error.headers)
        if told.value is None:
            return Reply(told.status, list(told.headers.items()), iter([b""]))
        if isinstance(told.value, str):
            head = [("Content-Type", "text/plain"), *told.headers.items()]
            return Reply(told.status, head, iter([told.value.encode()]))
        head = [("Content-Type", "application/json"), *told.headers.items()]
        return Reply(told.status, head, iter([json.dumps(told.value).encode()]))

    def token_of(self, request: Request) -> Token | None:
        raise NotImplementedError

    def route(self, ask: Ask) -> Told:
        raise NotImplementedError

    def may_git(self, token: Token, write: bool) -> bool:
        raise NotImplementedError

    # Git

    def _answer_git(self, request: Request, body: bytes) -> Reply:
        path, _, rest = unquote(urlsplit(request.path).path).strip("/").partition(".git/")
        write = "git-receive-pack" in request.path
        with self.state:
            row = self.project_at(path)
            moved = self.projects.get(self.moved.get(path, -1))
        token = self._git_token(request)
        seen = row is not None and self.sees(token, row.path, row.visibility)
        if token is None and (write or not seen):
            return Reply(
                401, [("WWW-Authenticate", 'Basic realm="git"')], iter([b"HTTP Basic: Access denied\n"])
            )
        if row is None and moved is not None and self.sees(token, moved.path, moved.visibility):
            query = urlsplit(request.path).query
            to = self.url(f"{moved.path}.git/{rest}") + (f"?{query}" if query else "")
            return Reply(301, [("Location", to)], iter([b""]))
        if row is None or not seen:
            return Reply(404, [], iter([b"The project you were looking for could not be found.\n"]))
        if token is not None and not self.may_git(token, write):
            return Reply(403, [], iter([b"You are not allowed to do this with this token.\n"]))
        if write and row.archived:
            return Reply(403, [], iter([b"You can't push code to an archived project.\n"]))
        reply = run_backend(self._behaviour(), request, body)
        is_push = write and request.method == "POST"
        return self.telling(row.path, self.root / f"{row.path}.git", reply) if is_push else reply

    def _git_token(self, request: Request) -> Token | None:
        scheme, _, pair = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            token = self.tokens.get(base64.b64decode(pair).decode().partition(":")[2])
        except (binascii.Error, ValueError):
            return None
        return None if token is None or token.expired else token


def _read_data(request: Request, body: bytes) -> Mapping[str, object]:
    if not body:
        return {}
    if "json" in request.headers.get("content-type", ""):
        try:
            value = json.loads(body)
        except ValueError:
            raise ApiError(400, {"message": "400 Bad Request"}) from None
        return value if isinstance(value, dict) else {}
    return dict(parse_qsl(body.decode("utf-8", "replace"), True))


def _ref_names(folder: Path) -> set[str]:
    """Branches and tags, without a process: a long list has hundreds of repositories."""
    names = {
        str(p.relative_to(folder))
        for kind in ("heads", "tags")
        for p in (folder / "refs" / kind).rglob("*")
        if p.is_file() and not p.name.endswith(".lock")
    }
    packed = folder / "packed-refs"
    lines = packed.read_text().splitlines() if packed.exists() else []
    named = (line.partition(" ")[2] for line in lines if line[:1] not in ("#", "^"))
    return names | {name for name in named if name.startswith(("refs/heads/", "refs/tags/"))}
