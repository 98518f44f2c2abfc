"""What counts of a worker's own word about its weight and capacity."""

from __future__ import annotations

import pytest

from evermirror.model.access import NO_LIMITS, TokenLimits
from evermirror.model.worker import UNTRUSTED_CAPACITY, WorkerFacts, worker_facts


@pytest.mark.parametrize(
    ("limits", "said", "counts"),
    [
        (NO_LIMITS, (1000.0, None), (1.0, UNTRUSTED_CAPACITY)),
        (NO_LIMITS, (1.0, 10**12), (1.0, UNTRUSTED_CAPACITY)),
        (NO_LIMITS, (0.25, 30), (0.25, 30)),
        (NO_LIMITS, (-5.0, None), (1.0, UNTRUSTED_CAPACITY)),
        (TokenLimits(4.0, 50), (1.0, None), (4.0, 50)),
        (TokenLimits(4.0, 50), (0.5, 70), (2.0, 50)),
        (TokenLimits(4.0, 0), (1.0, 70), (4.0, 0)),
    ],
)
def test_an_untrusted_worker_can_only_lower_what_its_token_says(limits, said, counts):
    assert worker_facts("w", False, limits, *said) == WorkerFacts("w", False, *counts)


def test_the_word_of_a_trusted_worker_counts():
    assert worker_facts("w", True, NO_LIMITS, 7.0, 12) == WorkerFacts("w", True, 7.0, 12)
