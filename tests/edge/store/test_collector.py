"""The collector waits, and is as it was afterwards."""

from __future__ import annotations

import gc

import pytest

from evermirror.edge.store.collector import collector_paused


def test_the_collector_waits_and_goes_on_also_after_a_mistake():
    assert gc.isenabled()
    seen = []

    def mistaken():
        with collector_paused():
            seen.append(gc.isenabled())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        mistaken()
    assert (seen, gc.isenabled()) == ([False], True)


def test_the_outermost_pause_ends_it_and_who_had_it_off_keeps_it_off():
    with collector_paused():
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
