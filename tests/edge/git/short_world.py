"""A world in which small changes come by the short way."""

from __future__ import annotations

import asyncio

from evermirror.edge.git.environment import Remote
from evermirror.edge.git.serve import GitServer, ServeSettings
from tests.edge.git.mirror_world import World


class Short:
    """A world whose upstream can be asked without git's own client; what is asked and answered is seen."""

    def __init__(self, root, upstream, **settings):
        self.world = World(root, upstream, **settings)
        self.server = GitServer(self.world.git, ServeSettings())
        self.asked: list[bytes] = []
        self.ran: list[str] = []
        self.completed: list[tuple[list[str], dict, bytes]] = []
        self.change = lambda answer: answer
        self.drips = False
        run = self.world.git.run

        async def noted(args, **more):
            self.ran.append(args[0])
            done = await run(args, **more)
            self.completed.append((list(args), more, done.stdout))
            return done

        self.world.git.run = noted

    async def sync(self, repo, **more):
        """Returns the git commands that it took."""

        async def body(request):
            yield request

        async def ask(request):
            self.asked.append(request)
            answer = b"".join(
                [c async for c in self.server.upload_pack(repo.path, body(request), "version=2")]
            )
            yield self.change(answer)
            while self.drips:
                yield b""
                await asyncio.sleep(0.01)

        plain = Remote.of(repo.url, ("127.0.0.1",))
        remote = Remote(plain.url, plain.scheme, plain.host, plain.port, plain.addresses, ask=ask)
        seen = await self.world.look(self.world.spec(repo))
        self.ran.clear()
        self.completed.clear()
        self.asked.clear()
        self.outcome = await self.world.sync(repo, seen=seen, remote=remote, **more)
        return list(self.ran)
