"""Passes and tickets are read only where our coordinator sealed them, for what they are, in their time."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.edge.relay import seal
from evermirror.edge.relay.seal import Sealer, SealInvalid, Unsealer, check_ticket, new_private_key
from evermirror.model.access import Role
from evermirror.model.relay import NodeId, Pass, Ticket
from evermirror.model.repo import RepoKey

SEALER = Sealer(new_private_key())
UNSEALER = Unsealer(SEALER.public_key)
PASS = Pass(NodeId("worker/1"), Role.WORKER, 1000.0)
TICKET = Ticket(NodeId("worker/1"), NodeId("worker/2"), RepoKey("example.com/a/b"), 1000.0)


def test_what_was_sealed_is_read_again():
    assert UNSEALER.read_pass(SEALER.seal(PASS), 999.0) == PASS
    assert UNSEALER.read_ticket(SEALER.seal(TICKET), 999.0) == TICKET
    again = Sealer(key := new_private_key()), Sealer(key)
    assert again[0].public_key == again[1].public_key


def test_what_has_ended_is_refused():
    with pytest.raises(SealInvalid, match="ended"):
        UNSEALER.read_pass(SEALER.seal(PASS), 1000.0)
    with pytest.raises(SealInvalid, match="ended"):
        UNSEALER.read_ticket(SEALER.seal(TICKET), 1000.5)


def test_a_pass_is_no_ticket_and_the_other_way():
    with pytest.raises(SealInvalid):
        UNSEALER.read_ticket(SEALER.seal(PASS), 0.0)
    with pytest.raises(SealInvalid):
        UNSEALER.read_pass(SEALER.seal(TICKET), 0.0)


def test_another_coordinators_seal_is_refused():
    foreign = Sealer(new_private_key())
    with pytest.raises(SealInvalid, match="not sealed by this coordinator"):
        UNSEALER.read_pass(foreign.seal(PASS), 0.0)
    with pytest.raises(SealInvalid):
        Unsealer(b"short")


def test_every_changed_letter_is_noticed():
    sealed = SEALER.seal(PASS)
    for i, letter in enumerate(sealed):
        other = "A" if letter != "A" else "B"
        changed = sealed[:i] + other + sealed[i + 1 :]
        try:
            assert UNSEALER.read_pass(changed, 0.0) == PASS  # unused bits of base64's last letter
            assert i in (sealed.index(".") - 1, len(sealed) - 1)
        except SealInvalid:
            pass


@given(st.text(max_size=200) | st.binary(max_size=100).map(lambda b: base64.urlsafe_b64encode(b).decode()))
def test_anything_else_is_refused_and_nothing_worse(text):
    with pytest.raises(SealInvalid):
        UNSEALER.read_pass(text, 0.0)
    with pytest.raises(SealInvalid):
        UNSEALER.read_ticket(f"{text}.{text}", 0.0)


@pytest.mark.parametrize(
    "said",
    [
        [],
        {"is": "pass"},
        {"is": "pass", "node": 1, "role": "worker", "until": 9},
        {"is": "pass", "node": "worker/1", "role": "king", "until": 9},
        {"is": "pass", "node": "worker/1", "role": "worker", "until": "9"},
        {"is": "pass", "node": "worker/1", "role": "worker", "until": float("inf")},
        {"is": "pass", "node": "worker/1", "role": "worker", "until": True},
    ],
)
def test_a_seal_around_nonsense_is_refused(said):
    text = json.dumps(said).encode()
    signature = SEALER._key.sign(b"evermirror relay 1\n" + text)
    sealed = ".".join(base64.urlsafe_b64encode(x).decode().rstrip("=") for x in (text, signature))
    with pytest.raises(SealInvalid):
        UNSEALER.read_pass(sealed, 0.0)


@pytest.mark.parametrize(
    "other", [{"bearer": "worker/9"}, {"holder": "worker/9"}, {"key": "example.com/a/c"}]
)
def test_a_ticket_is_for_one_reader_one_holder_one_repo(other):
    fits = {"bearer": TICKET.bearer, "holder": TICKET.holder, "key": TICKET.key}
    check_ticket(TICKET, **fits)
    with pytest.raises(SealInvalid):
        check_ticket(TICKET, **{**fits, **other})


def test_a_pass_seen_before_ends_all_the_same_and_few_are_remembered(monkeypatch):
    monkeypatch.setattr(seal, "PASSES_MAX", 2)
    unsealer = Unsealer(SEALER.public_key)
    passes = {n: SEALER.seal(Pass(NodeId(f"worker/{n}"), Role.WORKER, 1000.0 + n)) for n in range(4)}
    for _ in range(2):
        for n, text in passes.items():
            assert unsealer.read_pass(text, 999.0).node == f"worker/{n}"
    assert len(unsealer._passes) == 2
    with pytest.raises(SealInvalid, match="ended"):
        unsealer.read_pass(passes[3], 1003.0)
    with pytest.raises(SealInvalid):
        unsealer.read_ticket(passes[3], 0.0)
