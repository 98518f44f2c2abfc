"""Discovery made from settings: who follows groups at forges, and who watches over tokens that end."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta

from evermirror.config import Config
from evermirror.edge.forge.http import Pace
from evermirror.edge.forge.make import make_forge
from evermirror.edge.forge.pinned import Resolve
from evermirror.edge.git.credentials import Credential, Credentials
from evermirror.edge.net.resolver import Resolver
from evermirror.edge.store.store import Store
from evermirror.model.forge import Forge
from evermirror.model.url import DEFAULT_PORTS, UrlRules, parse_url
from evermirror.nodes.basics import url_rules
from evermirror.nodes.clock import uptime
from evermirror.nodes.coordinator.alerts.alerting import Alerting
from evermirror.nodes.coordinator.discovery.credential_watch import CredentialWatch, Use, uses_of
from evermirror.nodes.coordinator.discovery.discovering import Discovering
from evermirror.nodes.coordinator.discovery.discovering_branches import Branches
from evermirror.nodes.coordinator.discovery.discovering_forges import ClosableForge, Forges
from evermirror.nodes.coordinator.discovery.discovering_hooks import FoundHooks
from evermirror.nodes.coordinator.discovery.discovering_projects import FollowedProjects
from evermirror.nodes.coordinator.discovery.discovering_run import RunParts
from evermirror.nodes.coordinator.hooks.registering import Registering
from evermirror.nodes.coordinator.pull.pull_admin import PullAdmin
from evermirror.nodes.coordinator.pull.pulling import Pulling

PACES_MAX = 1_000  # instances; that of one asked longer ago begins anew


class Paces:
    """One pace for each instance, whoever asks it."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Pace] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, base_url: str) -> Pace:
        pace = self._known.setdefault(base_url, Pace())
        self._known.move_to_end(base_url)
        if len(self._known) > PACES_MAX:
            self._known.popitem(last=False)
        return pace


def resolving(resolver: Resolver, rules: UrlRules) -> Resolve:
    """The checked addresses of a URL's host."""

    async def resolve(url: str) -> tuple[str, ...]:
        parts = parse_url(url, rules)
        return await resolver.resolve(parts.host, parts.port or DEFAULT_PORTS[parts.scheme])

    return resolve


async def make_discovering(
    config: Config,
    credentials: Credentials,
    resolver: Resolver,
    *,
    store: Store,
    pull: PullAdmin,
    pulling: Pulling,
    alerting: Alerting,
    clock: Callable[[], float],
    paces: Paces,
    registering: Registering,
) -> tuple[Discovering, CredentialWatch]:
    """With the discoveries that the store has. ``resolver`` checks the addresses that forges have, ``paces``
    are shared with all who ask them."""
    rules = url_rules(config)
    known = credentials.by_name
    resolve = resolving(resolver, rules)

    def make(forge: Forge, base_url: str, credential: Credential | None) -> ClosableForge:
        return make_forge(
            forge,
            base_url,
            credential,
            resolve=resolve,
            redactor=credentials.redactor,
            ca_file=config.upstreams.ca_file,
            pace=paces.of(base_url),
        )

    forges = Forges(make, credentials)
    projects = FollowedProjects(pull, pulling, store, rules, clock)
    branches = Branches(forges, projects, store, uptime)
    hooks = FoundHooks(store, registering, clock)
    parts = RunParts(store, forges, projects, branches, hooks, rules, clock, asyncio.sleep)
    discovering = Discovering(parts, known, alerting.told)
    await discovering.load()

    def uses() -> set[Use]:
        return uses_of(discovering.specs(), pulling.projects(), known)

    def suspected() -> Iterator[tuple[Use, float]]:
        for spec, at in discovering.refusals():
            yield from ((use, at) for use in uses_of([spec], (), known))

    dates = {name: _end_of(c.expires) for name, c in config.credentials.items() if c.expires is not None}
    return discovering, CredentialWatch(forges, uses, dates, alerting, clock, suspected)


def _end_of(last_day: date) -> float:
    """When it is over, in UTC: a credential is good on its last day."""
    return datetime.combine(last_day + timedelta(days=1), time(), UTC).timestamp()
