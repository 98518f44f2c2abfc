"""Orders about hooks at forges, made from settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from evermirror.config import Config
from evermirror.edge.forge.hooks_api import ForgeHooks
from evermirror.edge.forge.hooks_make import make_forge_hooks
from evermirror.edge.forge.http import Patience
from evermirror.edge.forge.make import GITHUB_PATIENCE
from evermirror.edge.git.credentials import Credential, Credentials, Redactor
from evermirror.edge.net.resolver import Resolver
from evermirror.edge.store.store import Store
from evermirror.model.forge import Forge
from evermirror.nodes.basics import url_rules
from evermirror.nodes.coordinator.discovery.discovery_parts import Paces, resolving
from evermirror.nodes.coordinator.hooks.registering import FindRepo, Registering
from evermirror.nodes.coordinator.hooks.registering_book import Keyring, RegisterParts, Told

UNTOLD_WAIT_S = 5.0  # longer ones are told to who watches


async def make_registering(
    config: Config,
    credentials: Credentials,
    resolver: Resolver,
    *,
    paces: Paces,
    store: Store,
    find: FindRepo,
    clock: Callable[[], float],
    expect: Told = lambda keys: None,
    unexpected: Told = lambda keys: None,
) -> Registering:
    """With the order that a stop cut short, if any. ``resolver`` checks the addresses that forges have;
    ``paces`` are shared with all who ask them."""
    resolve = resolving(resolver, url_rules(config))

    def open_hooks(forge: Forge, base_url: str, credential: Credential) -> ForgeHooks:
        usual = GITHUB_PATIENCE if forge is Forge.GITHUB else Patience()
        return make_forge_hooks(
            forge,
            base_url,
            credential,
            resolve=resolve,
            redactor=Redactor([credential]),  # the only one that goes there
            ca_file=config.upstreams.ca_file,
            pace=paces.of(base_url),
            patience=replace(usual, wait_max_s=UNTOLD_WAIT_S),
        )

    parts = RegisterParts(
        store=store,
        open=open_hooks,
        credentials=Keyring(credentials.by_name),
        base=config.webhooks.url,
        secrets=config.webhooks.as_secrets(),
        clock=clock,
        expect=expect,
        unexpected=unexpected,
    )
    registering = Registering(parts, find)
    await registering.load()
    return registering
