from __future__ import annotations

import pytest

from evermirror.model.access import Role
from tests.faces.pass_on.pair import Pair


@pytest.fixture
async def pair():
    pair = Pair()
    for role in Role:
        pair.tokens.add(f"em_{role.value}", role)
    async with pair.running():
        yield pair
