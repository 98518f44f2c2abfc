"""git's progress is understood, and no bytes of upstream's can break or fool the reader."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from evermirror.edge.git.progress import LINE_BYTES_MAX, GitProgress, ProgressReader

SAMPLE = (
    b"remote: Enumerating objects: 15, done.        \n"
    b"remote: Counting objects:  20% (3/15)        \rremote: Counting objects: 100% (15/15), done.        \n"
    b"remote: Compressing objects: 100% (10/10), done.        \n"
    b"Receiving objects:  46% (7/15), 1.50 MiB | 3.00 MiB/s\r"
    b"Receiving objects: 100% (15/15), 3.25 MiB | 3.10 MiB/s, done.\n"
    b"Resolving deltas:  50% (1/2)\rResolving deltas: 100% (2/2), done.\n"
    b"From http://127.0.0.1/x\n"
)


def test_a_real_transfer_is_read_step_by_step():
    steps = ProgressReader().feed(SAMPLE)
    assert steps[0] == GitProgress("counting", None, 0)
    assert GitProgress("counting", 20.0, 0) in steps
    assert GitProgress("compressing", 100.0, 0) in steps
    assert GitProgress("receiving", 46.0, 3 << 19) in steps
    assert steps[-1] == GitProgress("resolving", 100.0, int(3.25 * (1 << 20)))


def test_upstream_cannot_claim_received_bytes():
    reader = ProgressReader()
    reader.feed(b"remote: Receiving objects: 100% (1/1), 999.00 GiB | 1 MiB/s\n")
    assert reader.received_bytes == 0


@given(cuts=st.lists(st.integers(0, len(SAMPLE)), max_size=20))
def test_it_does_not_matter_how_the_bytes_are_cut(cuts):
    reader = ProgressReader()
    places = sorted({0, len(SAMPLE), *cuts})
    steps = [s for a, b in pairwise(places) for s in reader.feed(SAMPLE[a:b])]
    assert steps == ProgressReader().feed(SAMPLE)


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_bytes_are_survived_with_a_bounded_memory(pieces):
    reader = ProgressReader()
    for piece in pieces:
        for step in reader.feed(piece):
            assert step.percent is None or 0 <= step.percent <= 100
    reader.feed(b"x" * 10 * LINE_BYTES_MAX)
    assert len(reader._rest) <= LINE_BYTES_MAX
