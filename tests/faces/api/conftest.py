from __future__ import annotations

from dataclasses import dataclass, field

import httpx2
import pytest

from evermirror.faces.api.app import create_app
from evermirror.faces.api.auth import Auth, AuthSettings
from evermirror.faces.api.context import ApiSettings
from evermirror.faces.api.metrics import Metrics
from evermirror.model.access import Role
from tests.faces.api.fake import FakeCoordinator, FakeTokens, ManualClock
from tests.faces.api.fake_alerts import FakeAlerts
from tests.faces.api.fake_discoveries import FakeDiscoveries
from tests.faces.api.fake_fleet import FakeFleet
from tests.faces.api.fake_pull import FakePull


@dataclass
class House:
    """An application and ways to talk to it."""

    service: FakeCoordinator
    tokens: FakeTokens = field(default_factory=FakeTokens)
    clock: ManualClock = field(default_factory=ManualClock)
    auth: AuthSettings = field(default_factory=AuthSettings)
    settings: ApiSettings = field(default_factory=ApiSettings)
    metrics: Metrics = field(default_factory=Metrics)
    git: object = None
    fleet: FakeFleet = field(default_factory=FakeFleet)
    pull: FakePull | None = field(default_factory=FakePull)
    alerts: FakeAlerts | None = field(default_factory=FakeAlerts)
    discoveries: FakeDiscoveries | None = field(default_factory=FakeDiscoveries)
    hooks: object = None
    events: object = None
    bulk: object = None
    private: bool = False  # a private repo is in the catalog

    async def _any_private(self):
        return self.private

    def app(self):
        auth = Auth(self.tokens, self.auth, any_private=self._any_private, clock=self.clock)
        return create_app(
            self.service,
            auth,
            self.settings,
            self.metrics,
            self.git,
            None,
            self.fleet,
            None,
            self.pull,
            alert_service=self.alerts,
            discovery_service=self.discoveries,
            hook_service=self.hooks,
            event_service=self.events,
            bulk_service=self.bulk,
        )

    def client(self, token=None, address="127.0.0.1", base="http://127.0.0.1:8420", app=None):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        transport = httpx2.ASGITransport(app or self.app(), client=(address, 40000))
        return httpx2.AsyncClient(transport=transport, base_url=base, headers=headers)

    def with_tokens(self):
        for role in Role:
            self.tokens.add(f"em_{role.value}", role)
        return self


@pytest.fixture
def api_service():
    return FakeCoordinator()


@pytest.fixture
def house(api_service):
    return House(api_service)


@pytest.fixture
def pull(house):
    return house.pull


@pytest.fixture
def alerts(house):
    return house.alerts


@pytest.fixture
async def client(house):
    async with house.client() as client:
        yield client
