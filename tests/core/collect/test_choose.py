from dataclasses import replace

import pytest

from evermirror.core.collect.choose import Choice, Nobody, Scene, choose
from evermirror.core.collect.decisions import Belief
from evermirror.core.collect.rows import How
from evermirror.core.collect.settings import CollectSettings, Verify
from tests.core.collect.small import ANNA, BERT, CARL, NOW, A, B, here, holder, row, spec

ALL = frozenset({ANNA, BERT, CARL})


def chosen(repo, *holders, reachable=ALL, load=None, barred=frozenset(), away=False, **settings):
    return choose(repo, holders, Scene(reachable, load or {}, barred, away), CollectSettings(**settings))


def test_who_has_the_wanted_refs_comes_before_who_is_trusted():
    choice = chosen(row(wanted=A), holder(ANNA, B, trusted=True), holder(BERT, A))
    assert (choice.holder.node, choice.belief, choice.expected) == (BERT, Belief.UPSTREAM, A)


def test_of_those_who_have_it_the_trusted_then_the_idle_then_the_primary():
    trusted = chosen(row(), holder(ANNA), holder(BERT, trusted=True), load={BERT: 1})
    assert (trusted.holder.node, trusted.belief, trusted.expected) == (BERT, Belief.HOLDER, A)
    assert chosen(row(), holder(ANNA), holder(BERT), load={ANNA: 1}).holder.node == BERT
    assert chosen(row(), holder(ANNA), holder(BERT, primary=True)).holder.node == BERT


def test_everything_is_verified_upstream_where_that_is_set():
    assert chosen(row(), holder(trusted=True), verify=Verify.ALL).belief is Belief.UPSTREAM


def test_of_a_private_repo_only_a_trusted_worker_can_tell():
    private = row(spec=replace(spec(), private=True))
    assert chosen(private, holder(trusted=True), verify=Verify.ALL).belief is Belief.HOLDER


def test_busy_barred_and_unreachable_holders_are_passed_over():
    two = (holder(ANNA), holder(BERT))
    assert chosen(row(), *two, load={ANNA: 2}).holder.node == BERT
    assert chosen(row(), *two, barred={ANNA}).holder.node == BERT
    assert chosen(row(), *two, reachable={BERT}).holder.node == BERT
    assert chosen(row(), *two, load={ANNA: 2}, reachable={ANNA}) == Nobody((ANNA,), (BERT,))
    assert chosen(row(), *two, barred={ANNA, BERT}) == Nobody()
    assert chosen(row()) == Nobody()


@pytest.mark.parametrize("fields", [{"held_back": True}, {}])
def test_enough_operators_stand_in_for_upstream(fields):
    repo, away = row(**fields), not fields
    agreed = chosen(repo, holder(ANNA, A), holder(BERT, A), away=away)
    assert (agreed.belief, agreed.expected) == (Belief.QUORUM, A)
    assert chosen(repo, holder(ANNA, A), holder(BERT, B), away=away) == Nobody()
    assert chosen(repo, holder(ANNA, A, operator="x"), holder(BERT, A, operator="x"), away=away) == Nobody()


def test_nobody_takes_us_back():
    newer = row(wanted=A, here=here(B, at=NOW - 50))
    assert chosen(newer, holder(ANNA, A, NOW - 60, trusted=True)) == Nobody()
    assert chosen(newer, holder(ANNA, A, NOW - 60), holder(BERT, A, NOW - 60), away=True) == Nobody()
    assert isinstance(chosen(newer, holder(ANNA, A, NOW - 40, trusted=True)), Choice)
    doubted = row(wanted=A, here=here(B, at=NOW - 50, how=How.DOUBTED))
    assert isinstance(chosen(doubted, holder(ANNA, A, NOW - 60, trusted=True)), Choice)


def test_a_trusted_holder_of_what_is_here_already_is_no_source_of_what_is_wanted():
    assert chosen(row(wanted=B, here=here(A)), holder(ANNA, A, trusted=True)) == Nobody()


def test_a_loss_is_accepted_only_where_somebody_whose_guard_counts_let_it_pass():
    assert not chosen(row(), holder(ANNA)).accept
    assert chosen(row(), holder(ANNA), holder(BERT)).accept
    assert chosen(row(), holder(ANNA), holder(BERT, trusted=True), reachable={ANNA}).accept
    assert not chosen(row(held_back=True), holder(ANNA, trusted=True)).accept
