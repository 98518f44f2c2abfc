"""Two samples of a node's metrics as a load: levels, resets, clocks, and the words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.pull.node_load import APART_MAX_S, NodeSample, node_load, worst
from evermirror.model.pull import Load, LoadLevel

HIGH, NORMAL, LOW = LoadLevel.HIGH, LoadLevel.NORMAL, LoadLevel.LOW


def cpus(busy_s, idle_s, iowait_s=0.0, count=2):
    return {str(n): {"user": busy_s, "idle": idle_s, "iowait": iowait_s} for n in range(count)}


def after_15_s(percent, **more):
    """The load where the CPUs were so busy for 15 seconds."""
    busy = 15 * percent / 100
    before = NodeSample(100.0, cpus=cpus(5000, 90_000))
    return node_load(before, NodeSample(115.0, cpus=cpus(5000 + busy, 90_000 + 15 - busy), **more))


@pytest.mark.parametrize(
    ("percent", "level"), [(100, HIGH), (81, HIGH), (79, NORMAL), (41, NORMAL), (39, LOW), (0, LOW)]
)
def test_the_cpu_between_two_samples_says_the_level(percent, level):
    assert after_15_s(percent) == Load(level, f"cpu {percent} %")


def test_waiting_for_a_disk_is_idle_and_other_modes_are_not():
    before = NodeSample(0.0, cpus={"0": {"idle": 1.0, "iowait": 1.0, "system": 1.0, "steal": 1.0}})
    after = NodeSample(15.0, cpus={"0": {"idle": 2.0, "iowait": 6.0, "system": 3.0, "steal": 3.0}})
    assert node_load(before, after) == Load(NORMAL, "cpu 40 %")


@pytest.mark.parametrize(("available", "level"), [(0.049, HIGH), (0.05, LOW), (0.9, LOW)])
def test_memory_that_is_nearly_full_is_high_load(available, level):
    assert after_15_s(10, memory_available=available).level is level


def test_the_figures_are_in_its_words():
    before = NodeSample(0.0, cpus=cpus(0, 0), network_bytes={"eth0": 1e6, "eth1": 0.0})
    after = NodeSample(
        10.0,
        cpus=cpus(9, 1),
        memory_available=0.342,
        network_bytes={"eth0": 35e6, "eth1": 2e6, "new0": 9e9},
        git_processes=14,
        running_processes=3,
    )
    words = "cpu 90 %, 34 % of memory available, network 3.4 MB/s, 14 git processes"
    assert node_load(before, after) == Load(HIGH, words)


def test_without_a_process_exporter_running_processes_are_told():
    assert after_15_s(50, running_processes=1).reason == "cpu 50 %, 1 running process"


def test_one_sample_says_nothing_unless_memory_is_nearly_full():
    first = NodeSample(0.0, cpus=cpus(10, 10), memory_available=0.5)
    assert node_load(None, first) is None
    full = NodeSample(0.0, cpus=cpus(10, 10), memory_available=0.01)
    assert node_load(None, full) == Load(HIGH, "1 % of memory available")


def test_a_restarted_node_says_nothing_until_the_next_sample():
    before, booted = NodeSample(0.0, cpus=cpus(5000, 90_000)), NodeSample(15.0, cpus=cpus(9, 1))
    assert node_load(before, booted) is None
    assert node_load(booted, NodeSample(30.0, cpus=cpus(9, 16))) == Load(LOW, "cpu 0 %")


def test_a_mode_that_a_restarted_node_has_more_of_than_before_is_no_load():
    before = NodeSample(0.0, cpus={"0": {"user": 1.0, "idle": 90_000.0}})
    assert node_load(before, NodeSample(15.0, cpus={"0": {"user": 9.0, "idle": 1.0}})) is None


def test_a_cpu_that_was_switched_off_and_on_is_left_out():
    before = NodeSample(0.0, cpus={"0": {"user": 10.0, "idle": 10.0}, "1": {"user": 900.0, "idle": 900.0}})
    after = NodeSample(
        15.0,
        cpus={
            "0": {"user": 20.0, "idle": 15.0},
            "1": {"user": 0.0, "idle": 3.0},
            "2": {"user": 0.0, "idle": 500.0},
        },
    )
    assert node_load(before, after) == Load(NORMAL, "cpu 67 %")


def test_iowait_that_goes_back_stood_still():
    before = NodeSample(0.0, cpus={"0": {"user": 10.0, "idle": 10.0, "iowait": 5.0}})
    after = NodeSample(15.0, cpus={"0": {"user": 19.0, "idle": 11.0, "iowait": 4.9}})
    assert node_load(before, after) == Load(HIGH, "cpu 90 %")


def test_the_same_sample_again_says_nothing():
    assert node_load(NodeSample(0.0, cpus=cpus(7, 7)), NodeSample(15.0, cpus=cpus(7, 7))) is None


@pytest.mark.parametrize("jump_s", [-3600.0, 0.0])
def test_a_clock_that_jumps_leaves_only_the_rate_unknown(jump_s):
    before = NodeSample(7200.0, cpus=cpus(0, 0), network_bytes={"eth0": 0.0})
    after = NodeSample(7200.0 + jump_s, cpus=cpus(9, 1), network_bytes={"eth0": 1e9})
    assert node_load(before, after) == Load(HIGH, "cpu 90 %")


def test_samples_far_apart_say_nothing_of_now():
    before = NodeSample(0.0, cpus=cpus(0, 0))
    assert node_load(before, NodeSample(APART_MAX_S, cpus=cpus(9, 1))) is not None
    assert node_load(before, NodeSample(APART_MAX_S + 1, cpus=cpus(9, 1))) is None


def test_a_network_counter_that_went_back_is_left_out():
    before = NodeSample(0.0, cpus=cpus(0, 0), network_bytes={"eth0": 1e9, "eth1": 0.0})
    after = NodeSample(10.0, cpus=cpus(5, 5), network_bytes={"eth0": 5.0, "eth1": 5e3})
    assert node_load(before, after) == Load(NORMAL, "cpu 50 %, network 500 B/s")


def test_of_several_nodes_the_worst_counts():
    calm, busy = Load(LOW, "cpu 3 %"), Load(HIGH, "cpu 95 %")
    assert worst([]) is None
    assert worst([calm]) == calm
    assert worst([calm, busy, Load(NORMAL, "cpu 50 %")]) == Load(HIGH, "cpu 95 % (the busiest of 3 nodes)")


seconds = st.floats(0, 2.0**63)
modes = st.dictionaries(st.sampled_from(["idle", "iowait", "user", "steal"]), seconds)
samples = st.builds(
    NodeSample,
    st.floats(-1e9, 1e9),
    cpus=st.dictionaries(st.sampled_from("012"), modes),
    memory_available=st.none() | st.floats(0, 1),
    network_bytes=st.dictionaries(st.sampled_from("ab"), seconds),
    git_processes=st.none() | st.integers(0, 2**63),
)


@given(st.none() | samples, samples)
def test_any_two_samples_have_a_load_or_none(before, after):
    load = node_load(before, after)
    assert load is None or load.level in LoadLevel
    if load is not None and load.reason.startswith("cpu "):
        assert 0 <= int(load.reason.split()[1]) <= 100
