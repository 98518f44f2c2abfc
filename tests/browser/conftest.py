"""The house, the browser, and a fresh context for each test. All tests here run in one process: see order.py.

The browser ends with the last test of this folder: while it is there, no test in this process may be async.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.browsing import CHROMIUM, SHOTS, WITHIN_MS, Browsing, Contexts, chromium
from tests.browser.fleet import LookedAtFleet, fleet_in
from tests.browser.house import House, house_of

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remembers what failed, so that a picture of it is kept."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        message = "Chromium is not installed (make needs; or Debian: apt-get install chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    expect.set_options(timeout=WITHIN_MS)
    for picture in SHOTS.glob("failed-*.png"):  # of an earlier run
        picture.unlink()
    with chromium() as started:
        yield started


@pytest.fixture(scope="package")
def contexts(browser: Browser) -> Contexts:
    return Contexts(browser)


@pytest.fixture(scope="package")
def house(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Shared: a test that changes it must leave what others look at as it was."""
    with house_of(tmp_path_factory.mktemp("house")) as lived_in:
        yield lived_in


@pytest.fixture(scope="package")
def fleet(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LookedAtFleet]:
    """Started for the first test that asks."""
    with fleet_in(tmp_path_factory.mktemp("fleet")) as running:
        yield running


@pytest.fixture
def browse(contexts: Contexts, house: House, request: pytest.FixtureRequest) -> Iterator[Browsing]:
    """Opens pages of the house; fails the test where one of them did what no page may do."""
    yield from _watched(Browsing(contexts, house.url, house.tokens), request.node)


@pytest.fixture
def browse_fleet(
    contexts: Contexts, fleet: LookedAtFleet, request: pytest.FixtureRequest
) -> Iterator[Browsing]:
    """The same with the fleet; ``open(url=fleet.agg_url)`` is the aggregator's page."""
    yield from _watched(Browsing(contexts, fleet.lead_url, fleet.tokens_of), request.node)


def _watched(browsing: Browsing, test: pytest.Item) -> Iterator[Browsing]:
    try:
        yield browsing
        if test.stash.get(FAILED, False):
            for number, page in enumerate(browsing.pages):
                browsing.shot(page, f"failed-{test.name}-{number}".replace("/", "_"))
        browsing.check()
    finally:
        browsing.close()


@pytest.fixture
def page(browse: Browsing) -> Page:
    """The page as an English admin opens it on a desk."""
    return browse.open()
