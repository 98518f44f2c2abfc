"""What a token looks like, before anybody looks it up."""

from __future__ import annotations

import secrets

import pytest

from evermirror.edge.store import tokens
from evermirror.model.access import TOKEN_BYTES, TOKEN_PREFIX, has_token_form


def test_every_token_has_the_form_of_one():
    assert all(has_token_form(TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)) for _ in range(200))


@pytest.mark.parametrize(
    "text",
    ["", "em_", "hunter2", "em_" + "x" * 42, "em_" + "x" * 44, "em_" + "é" * 43, "em_" + "x" * 43 + "\n"],
)
async def test_anything_else_never_reaches_the_database(text):
    assert not has_token_form(text)
    assert await tokens.find(None, text) is None
