"""A client of ours for each stand-in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from evermirror.edge.forge.api import ForgeApi
from evermirror.edge.forge.http import Pace, Patience
from evermirror.edge.forge.make import make_forge
from evermirror.edge.git.credentials import Credential, Redactor
from evermirror.model.forge import Forge, FoundProject, Group
from tests.support.forges.api_server import ApiServer
from tests.support.forges.gitea import GiteaServer
from tests.support.forges.gitee import GiteeServer
from tests.support.forges.github import GitHubServer
from tests.support.forges.gitlab import GitLabServer

TOKEN = "canary-token-5f1d"
QUICK = Patience(
    backoff_s=0.01, gap_s=0.0, write_gap_s=0.0, wait_max_s=2.0, timeout_s=5.0, unsaid_wait_s=60.0
)
SERVERS: dict[Forge, Callable[..., ApiServer]] = {
    Forge.GITLAB: GitLabServer,
    Forge.GITEA: GiteaServer,
    Forge.GITHUB: GitHubServer,
    Forge.GITEE: GiteeServer,
}
FOLLOWED = (Forge.GITLAB, Forge.GITEA, Forge.GITHUB)  # whose groups are


def start(forge: Forge, folder: Path, **more: object) -> ApiServer:
    """With our token, of ``robot``."""
    server = SERVERS[forge](folder / forge.value, **more)
    server.add_token(TOKEN)
    return server


def client(
    forge: Forge,
    server: ApiServer,
    token: str = TOKEN,
    *,
    patience: Patience = QUICK,
    pace: Pace | None = None,
    page_size: int | None = None,
    trusts: bool = True,
) -> ForgeApi:
    async def resolve(url: str) -> tuple[str, ...]:
        assert url.startswith(server.base_url)
        return (server.address,)

    credential = Credential("c", token=token, forge=forge.value) if token else None
    known = Redactor([credential] if credential else [])
    ca_file = server.ca_file if server.tls and trusts else None
    made = make_forge(
        forge,
        server.base_url,
        credential,
        resolve=resolve,
        redactor=known,
        ca_file=ca_file,
        pace=pace,
        patience=patience,
    )
    if page_size is not None:
        made._page_size = page_size  # type: ignore[attr-defined]
    return made


async def list_all(
    api: ForgeApi,
    group: Group,
    *,
    subgroups: bool = True,
    archived: bool = False,
    between: Callable[[int], None] | None = None,
) -> list[FoundProject]:
    """Page by page; ``between`` is called with the number of pages so far."""
    found: list[FoundProject] = []
    after: str | None = None
    for pages in range(1, 1000):
        page = await api.projects(group, subgroups=subgroups, archived=archived, after=after)
        found += page.items
        if page.next is None:
            return found
        after = page.next
        if between is not None:
            between(pages)
    raise AssertionError("the listing does not end")
