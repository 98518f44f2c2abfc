"""What a strategy promises, and what the documentation says of it, is what the simulator measures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evermirror.core.pull.strategy import expected_delays
from evermirror.faces.cli.output import span
from evermirror.model.pull import INTERVALS_S, MINUTE
from evermirror.model.repo import Priority
from evermirror.sim.pull.study import Study, run
from evermirror.sim.pull.world import AIM

DOCS = Path(__file__).parents[3] / "docs"
ALL_DAY = replace(AIM, peak_avoidance=False)
LINES = {
    "pull.md": ("| with peak hours 9–18", "| `--peak-hours none`"),
    "pull.zh-CN.md": ("| 高峰 9–18 点：", "| `--peak-hours none`"),
}


@pytest.fixture(scope="module")
def found():
    return {strategy: run(Study(strategy)) for strategy in (AIM, ALL_DAY)}


@pytest.mark.parametrize("strategy", [AIM, ALL_DAY], ids=["peak hours", "all day"])
def test_the_expected_delays_of_a_strategy_hold(found, strategy):
    expected = expected_delays(strategy, INTERVALS_S)
    for priority, one in found[strategy].classes.items():
        delay = expected[priority]
        assert one.p95_delay_s <= delay.worst_s
        assert one.longest_wait_s <= delay.worst_s - delay.usual_s + MINUTE


def test_peak_avoidance_and_two_hours_for_normal_projects_cannot_both_be_had(found):
    two_hours = INTERVALS_S[Priority.NORMAL]
    assert found[AIM].classes[Priority.NORMAL].p95_delay_s > 4 * two_hours
    assert found[ALL_DAY].classes[Priority.NORMAL].p95_delay_s <= two_hours


@pytest.mark.parametrize("name", LINES)
def test_the_figures_in_the_documentation_are_the_simulators(found, name):
    text = (DOCS / name).read_text("utf-8")
    text = text.replace(" 分钟", " min").replace(" 小时", " h")
    for begin, strategy in zip(LINES[name], (AIM, ALL_DAY), strict=True):
        (line,) = [line for line in text.splitlines() if line.startswith(begin)]
        cells = [cell.strip().replace("；", "; ") for cell in line.split("|")[2:-1]]
        measured = found[strategy]
        told = [f"{span(c.mean_delay_s)}; {span(c.p95_delay_s)}" for c in measured.classes.values()]
        assert cells == [*told, f"{100 * measured.cpu_share:.1f} %"]
