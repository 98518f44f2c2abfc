"""``evermirror`` with short times: who lies is found within seconds instead of a quarter of an hour.

The file is run by its path. Nothing else of the program is changed: clocks are those of one machine here.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from evermirror.__main__ import main
from evermirror.config import Config
from evermirror.core.collect.settings import CollectSettings
from evermirror.nodes.aggregator import collector
from evermirror.nodes.coordinator.aggregators import accusing


def shortened(settings: CollectSettings) -> CollectSettings:
    return replace(
        settings,
        clock_slack_s=0.2,
        doubt_wait_s=1.0,
        doubt_rounds=100,
        retry_first_s=0.5,
        retry_last_s=4.0,
        ask_again_s=2.0,
        holders_fresh_s=0.5,
        rescan_s=5.0,
    )


if __name__ == "__main__":
    usual = collector.collect_settings

    def short(config: Config) -> CollectSettings:
        return shortened(usual(config))

    collector.collect_settings = short
    accusing.LOOK_GAP_S = 0.5
    sys.exit(main())
