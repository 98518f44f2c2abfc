"""A mirror, a target on a real git server, and a pusher between them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace

from evermirror.edge.git.probe import Prober, ProbeSettings
from evermirror.edge.git.push import Pusher, PushSettings
from evermirror.edge.git.put_file import put_path, read_put
from evermirror.edge.net.resolver import Resolver
from evermirror.model.address import AllowList
from evermirror.model.push import PushTo, TargetId, put_digest
from evermirror.model.url import UrlRules
from tests.edge.git.mirror_world import World
from tests.support.gitrepo import UpstreamRepo

LOCAL = AllowList.parse(["127.0.0.0/8"])
RULES = UrlRules(frozenset({"http", "https", "ssh"}), LOCAL)
TARGET = TargetId(7)


@dataclass
class PushWorld(World):
    push_settings: PushSettings = field(default_factory=lambda: PushSettings(rules=RULES))

    def __post_init__(self):
        super().__post_init__()
        self.prober = Prober(
            Resolver(LOCAL),
            self.git.credentials,
            self.git,
            ProbeSettings(allow=LOCAL, ca_file=str(self.upstream.ca_file) if self.upstream.tls else None),
        )
        self.steps = []
        self.put = {}  # by target: what the coordinator was last told
        self.pusher = self.make_pusher()

    def make_pusher(self, **settings):
        return Pusher(
            self.git, self.mirrors, self.prober, replace(self.push_settings, **settings), lambda: 1000.0
        )

    def target(self, name="target", *, object_format="sha1") -> UpstreamRepo:
        """An empty repository that may be pushed to."""
        repo = self.upstream.create(name, commits=0, object_format=object_format)
        repo.git("config", "http.receivepack", "true")
        return repo

    def hook(self, target, name, script):
        """A hook of the target's."""
        hook = target.path / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n{script}\n")
        hook.chmod(0o755)

    def unhook(self, target):
        shutil.rmtree(target.path / "hooks")

    def to(self, target, **more) -> PushTo:
        more.setdefault("put", self.put.get(target.url))
        return PushTo(TARGET, target.url, **more)

    async def push(
        self,
        repo,
        target,
        *,
        accept=False,
        force=False,
        may_push=lambda: True,
        pusher=None,
        believed=None,
        source=None,
        **more,
    ):
        pushed = await (pusher or self.pusher).push(
            self.spec(repo).key,
            self.to(target, **more),
            accept=accept,
            force=force,
            may_push=may_push,
            progressed=self.steps.append,
            source_url=repo.url,
            believed=believed,
            source=source,
        )
        if pushed.put is not None:
            self.put[target.url] = pushed.put
        return pushed

    async def sync_and_push(self, repo, target, **more):
        await self.sync(repo, accept=True)
        return await self.push(repo, target, **more)

    async def behind(self, repo, target, **more):
        return await self.pusher.behind(self.spec(repo).key, self.to(target, **more))

    def record(self, repo, target):
        return read_put(self.path(repo), TARGET, target.url)

    def forget_file(self, repo):
        put_path(self.path(repo), TARGET).unlink()

    def assert_there(self, repo, target, pushed=None):
        """The target has exactly the mirror's branches and tags, and we know it."""
        assert target.refs() == repo.public_refs()
        assert self.record(repo, target).last.refs == repo.public_refs()
        assert self.record(repo, target).last.pending == {}
        if pushed is not None:
            assert pushed.failure is None
            assert pushed.put == put_digest(repo.public_refs())
        target.git("fsck", "--full", "--strict")
