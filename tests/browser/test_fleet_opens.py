"""The same page from a coordinator and through an aggregator, with a real fleet behind both."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.axe import assert_accessible
from tests.browser.browsing import Browsing
from tests.browser.fleet import WORKERS, LookedAtFleet


@pytest.mark.parametrize("through", ["coordinator", "aggregator"])
def test_the_fleet_is_shown_wherever_the_page_is_opened(
    fleet: LookedAtFleet, browse_fleet: Browsing, through: str
):
    url = fleet.lead_url if through == "coordinator" else fleet.agg_url
    page = browse_fleet.open("/#/fleet", url=url)
    expect(page.get_by_role("status").first).to_have_text("Live")
    for worker in WORKERS:
        expect(page.locator("#view").get_by_text(worker, exact=True).first).to_be_visible()
    assert_accessible(page)
    browse_fleet.shot(page, f"fleet-{through}")
