"""What follows from the settings by themselves."""

import pytest

from evermirror.core.fleet.settings import FleetSettings


@pytest.mark.parametrize(("grace_s", "redial_s"), [(600.0, 60.0), (160.0, 60.0), (40.0, 20.0), (1.0, 7.0)])
def test_a_worker_that_lost_its_coordinator_has_three_tries_before_it_counts_as_down(grace_s, redial_s):
    settings = FleetSettings(heartbeat_s=5.0, max_missed=4, grace_s=grace_s)
    assert settings.redial_s == pytest.approx(redial_s)
