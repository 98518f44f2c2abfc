"""The in-process transport: in order, bounded, nothing dropped."""

from __future__ import annotations

import asyncio

import pytest

from evermirror.model.messages import Released, ReleaseRepos
from evermirror.model.repo import RepoKey
from evermirror.nodes.link import COMMANDS_WAITING, REPORTS_WAITING, Link


def command(n):
    return ReleaseRepos((RepoKey(f"h/{n}"),))


def report(n):
    return Released((RepoKey(f"h/{n}"),))


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_both_directions_keep_their_order_and_do_not_mix():
    link = Link()
    for n in range(100):
        await link.command(command(n))
        await link.report(report(n))
    assert [await link.next_command() for _ in range(100)] == [command(n) for n in range(100)]
    assert [await link.next_report() for _ in range(100)] == [report(n) for n in range(100)]


@pytest.mark.parametrize(
    ("bound", "send", "take", "value"),
    [
        (COMMANDS_WAITING, Link.command, Link.next_command, command),
        (REPORTS_WAITING, Link.report, Link.next_report, report),
    ],
)
async def test_a_side_that_is_too_fast_waits_and_loses_nothing(bound, send, take, value):
    link, sent = Link(), 0

    async def fast():
        nonlocal sent
        for n in range(bound + 10):
            await send(link, value(n))
            sent += 1

    sender = asyncio.create_task(fast())
    await settle()
    assert sent == bound
    assert not sender.done()
    taken = [await take(link)]
    await settle()
    assert sent == bound + 1
    while len(taken) < bound + 10:
        taken.append(await take(link))
    await sender
    assert taken == [value(n) for n in range(bound + 10)]


async def test_a_full_direction_does_not_hold_up_the_other():
    link = Link()
    for n in range(COMMANDS_WAITING):
        await link.command(command(n))
    async with asyncio.timeout(1):
        await link.report(report(1))
        assert await link.next_report() == report(1)


async def test_a_sender_that_gives_up_waiting_sent_nothing():
    link = Link()
    for n in range(COMMANDS_WAITING):
        await link.command(command(n))
    late = asyncio.create_task(link.command(command("late")))
    await settle()
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    assert [await link.next_command() for _ in range(COMMANDS_WAITING)] == [
        command(n) for n in range(COMMANDS_WAITING)
    ]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await link.next_command()


async def test_it_knows_how_many_reports_are_not_taken_yet():
    link = Link()
    assert link.reports_waiting() == 0
    await link.report(report(1))
    await link.report(report(2))
    await link.command(command(1))
    assert link.reports_waiting() == 2
    await link.next_report()
    assert link.reports_waiting() == 1
