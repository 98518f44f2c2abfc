"""Mail: one message of text and HTML, over SMTP with STARTTLS, with TLS from the first byte, or without."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, make_msgid
from enum import Enum
from html import escape
from pathlib import Path

import aiosmtplib
import structlog

from evermirror.edge.notify.here import host_name
from evermirror.edge.notify.reasons import MASK, TIMEOUT_S, WEATHER, Reasons, Trust
from evermirror.edge.notify.words import (
    ABOUT_BYTES_MAX,
    TEXT_BYTES_MAX,
    TITLE_BYTES_MAX,
    between,
    label,
    line,
    more,
    signed_by,
    subject,
    when,
)
from evermirror.model.alert import Level, Message, MessageItem, Turn

log = structlog.get_logger(__name__)

GOODBYE_S = 1.0  # for QUIT, once the message is taken; part of the timeout
_TOO_BIG = re.compile(r"523\b|552 .*\b5\.(?:3\.4|2\.3)\b")  # 552 alone is also a mailbox that is full
_LONG_TOKEN = re.compile(r"[A-Za-z0-9+/=]{24,}")  # a hash, or base64; no word
_COLOURS = {Level.WARNING: "#b7791f", Level.ERROR: "#c53030", Level.CRITICAL: "#822727"}
_OVER_COLOUR = "#2f855a"


class Tls(Enum):
    """How the connection is kept secret."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class MailSettings:
    host: str
    port: int
    tls: Tls
    sender: str
    to: tuple[str, ...]
    username: str = ""
    password: str = ""
    ca_file: Path | None = None

    def __repr__(self) -> str:
        return f"MailSettings({self.host!r}, {self.port})"  # a traceback must not show the password


class Mail:
    """Sends by one server to a fixed list of people."""

    def __init__(
        self, settings: MailSettings, *, timeout_s: float = TIMEOUT_S, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._clock = clock
        self._trust = Trust(settings.ca_file)
        plain = f"\0{settings.username}\0{settings.password}"  # as AUTH PLAIN has it
        secrets = [settings.password, plain] if settings.password else []
        self._reasons = Reasons(secrets)

    async def send(self, message: Message) -> str | None:
        mail = compose(message, self._settings.sender, self._settings.to, self._clock())
        context = None if self._settings.tls is Tls.NONE else await self._trust.context()
        client: aiosmtplib.SMTP | None = None
        try:
            async with self._reasons.bounded(self._timeout_s - GOODBYE_S):
                client = self._client(context)  # refuses settings that it cannot use
                remark = await self._hand_over(client, mail)
            with suppress(*WEATHER):
                async with asyncio.timeout(GOODBYE_S):
                    await client.quit()
        finally:
            if client is not None:
                client.close()
        return remark

    def _client(self, context: ssl.SSLContext | None) -> aiosmtplib.SMTP:
        return aiosmtplib.SMTP(
            hostname=self._settings.host,
            port=self._settings.port,
            use_tls=self._settings.tls is Tls.TLS,
            start_tls=self._settings.tls is Tls.STARTTLS,
            tls_context=context,
            local_hostname=host_name(),
            timeout=self._timeout_s,
        )

    async def _hand_over(self, client: aiosmtplib.SMTP, mail: EmailMessage) -> str | None:
        try:
            await client.connect()
            if self._settings.password:
                await self._log_in(client)
            refused, _ = await client.sendmail(self._settings.sender, self._settings.to, mail.as_bytes())
        except aiosmtplib.SMTPRecipientsRefused as error:
            first = error.recipients[0]
            told = f"all recipients are refused: {first.recipient}: {first.code} {first.message}"
            raise self._reasons.not_sent(told) from None
        except aiosmtplib.SMTPResponseException as error:
            told = f"{error.code} {error.message}"
            # Other refusals for good are of a full mailbox, a sender, a host, a rate: all of that is mended.
            raise self._reasons.not_sent(told, permanent=_TOO_BIG.match(told) is not None) from None
        return self._refused_some(refused) if refused else None

    def _refused_some(self, refused: Mapping[str, aiosmtplib.SMTPResponse]) -> str:
        """The others have it: to try again would send it to them twice."""
        told = [
            (recipient, self._reasons.words(f"{answer.code} {answer.message}"))
            for recipient, answer in refused.items()
        ]
        for recipient, words in told:
            log.warning("a mail did not go to all", recipient=recipient, reason=words)
        shown = ", ".join(f"{recipient} ({words})" for recipient, words in told)
        return self._reasons.words(f"the others have it, refused are: {shown}")

    async def _log_in(self, client: aiosmtplib.SMTP) -> None:
        """The server may repeat what it was sent, which with CRAM-MD5 is a hash of the password."""
        try:
            await client.login(self._settings.username, self._settings.password)
        except aiosmtplib.SMTPResponseException as error:
            words = _LONG_TOKEN.sub(MASK, self._reasons.words(error.message))
            raise self._reasons.not_sent(f"{error.code} {words}") from None


def compose(message: Message, sender: str, to: tuple[str, ...], now: float) -> EmailMessage:
    """The whole mail. Line breaks that came with a name are gone before they reach a header."""
    mail = EmailMessage(policy=SMTP)
    name, _, domain = sender.rpartition("@")
    mail["Subject"] = line(f"[{line(message.server, 100)}] {subject(message)}", TITLE_BYTES_MAX)
    mail["From"] = Address("evermirror", name, domain)
    mail["To"] = ", ".join(to)
    mail["Date"] = format_datetime(datetime.fromtimestamp(now, UTC))
    mail["Message-ID"] = make_msgid(domain=domain)
    mail["Auto-Submitted"] = "auto-generated"  # no holiday notes in answer
    mail.set_content(_text(message), cte="base64")
    mail.add_alternative(_html(message), subtype="html", cte="base64")
    return mail


def _text(message: Message) -> str:
    parts = [line(message.title, TITLE_BYTES_MAX)]
    for item in message.items:
        first = f"[{label(item, message.language)}] {_what(item, message.language)}"
        parts.append(f"{first}\n    {line(item.text, TEXT_BYTES_MAX)}\n    {when(item, message.language)}")
    if message.more:
        parts.append(more(message.more, message.language))
    return "\n\n".join([*parts, f"-- \n{signed_by(message)}"]) + "\n"


def _html(message: Message) -> str:
    """Styles are in place: mail programs take no others. Nothing is loaded from anywhere."""
    parts = [f'<h2 style="font-size:1.1em">{escape(line(message.title, TITLE_BYTES_MAX))}</h2>']
    for item in message.items:
        over = item.turn in (Turn.OVER, Turn.TEST)
        colour = _OVER_COLOUR if over else _COLOURS[item.level]
        parts.append(
            f'<div style="border-left:4px solid {colour};margin:0 0 1em;padding:0 0 0 .8em">'
            f'<div><b style="color:{colour}">{escape(label(item, message.language))}</b> '
            f"{escape(_what(item, message.language))}</div>"
            f"<div>{escape(line(item.text, TEXT_BYTES_MAX))}</div>"
            f'<div style="color:#666">{escape(when(item, message.language))}</div></div>'
        )
    if message.more:
        parts.append(f"<p>{escape(more(message.more, message.language))}</p>")
    parts.append(f'<p style="color:#666">{escape(signed_by(message))}</p>')
    language = escape("zh-CN" if message.language == "zh" else "en")
    return (
        f'<!DOCTYPE html>\n<html lang="{language}"><head><meta charset="utf-8"></head>\n'
        '<body style="font-family:sans-serif">\n' + "\n".join(parts) + "\n</body></html>\n"
    )


def _what(item: MessageItem, language: str) -> str:
    return line(item.title, TITLE_BYTES_MAX) + between(language) + line(item.about, ABOUT_BYTES_MAX)
