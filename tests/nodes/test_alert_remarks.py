"""A message that went out, but not to all: people see it where they look at channels."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from evermirror.core.watch.events import AlertSettings, Channel
from evermirror.edge.notify.mail import Mail, MailSettings, Tls
from evermirror.edge.store.store import Store
from evermirror.nodes.coordinator.alerts.alert_admin import AlertAdmin
from evermirror.nodes.coordinator.alerts.alerting import Alerting
from tests.support.smtp_sink import smtp_sink

TO = ("ops@example.org", "night@example.org")


async def test_a_recipient_that_is_refused_is_shown_until_a_message_reaches_all(tmp_path: Path) -> None:
    store = await Store.open(f"sqlite:///{tmp_path}/store.db")
    settings = AlertSettings(channels=(Channel("ops", "mail"),))
    with smtp_sink() as sink:
        to = MailSettings("127.0.0.1", sink.port, Tls.NONE, "evermirror@example.org", TO)
        alerting = await Alerting.load(settings, store=store, senders={"ops": Mail(to)}, clock=lambda: 1000.0)
        admin = AlertAdmin(alerting, store, lambda: 1000.0)
        running = asyncio.create_task(alerting.run())

        async def error_after_a_test() -> str:
            [tested] = await admin.test("ops", actor="me")
            assert tested.error == ""
            [state] = await admin.channels()
            return state.error

        sink.refuse[TO[1]] = "550 no such user"
        assert await error_after_a_test() == (
            "the others have it, refused are: night@example.org (550 no such user)"
        )
        alerting.senders = {"ops": Mail(replace(to, to=TO[:1]))}  # as other settings make it
        assert [state.error for state in await admin.channels()] == [""]
        assert await error_after_a_test() == ""
        alerting.senders = {"ops": Mail(to)}
        assert await error_after_a_test() != ""
        sink.refuse.clear()
        assert await error_after_a_test() == ""
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await store.close()
