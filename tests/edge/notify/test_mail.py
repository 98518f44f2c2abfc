"""Mail to a real SMTP server: with every kind of TLS, with a login, refused, slow, and with hostile names."""

from __future__ import annotations

import asyncio
import base64
import email
import email.policy
import re
import ssl
import time
from dataclasses import replace
from email.headerregistry import Address
from html.parser import HTMLParser

import pytest
import trustme
from hypothesis import given, settings
from structlog.testing import capture_logs

from evermirror.edge.notify.mail import Mail, MailSettings, Tls, compose
from evermirror.edge.notify.reasons import Reasons
from evermirror.edge.notify.sender import NotSent
from tests.edge.notify.messages import AT, CHINESE, ITEM, MESSAGE, OVER, digest, hostile_message, messages
from tests.support.ports import free_port
from tests.support.raw_server import Conversation, raw_server
from tests.support.smtp_sink import SmtpSink, smtp_sink

LOGIN = ("robot", "c4n4ry-p4ss")
TO = ("ops@example.org", "night@example.org")


def settings_for(sink: SmtpSink, tls: Tls = Tls.NONE, **more: object) -> MailSettings:
    base = MailSettings("127.0.0.1", sink.port, tls, "evermirror@example.org", TO)
    return replace(base, **more)  # type: ignore[arg-type]


def read(sink: SmtpSink) -> email.message.EmailMessage:
    content = sink.mails[-1].content
    assert isinstance(content, bytes)
    return email.message_from_bytes(content, policy=email.policy.default)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    ca = trustme.CA()
    ca_file = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(str(ca_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(context)
    return ca_file, context


async def test_a_mail_has_all_that_people_need():
    over = replace(OVER, about="a/b")
    with smtp_sink() as sink:
        await Mail(settings_for(sink), clock=lambda: AT).send(replace(MESSAGE, items=(ITEM, over), more=7))
    envelope = sink.mails[0]
    assert (envelope.mail_from, envelope.rcpt_tos) == ("evermirror@example.org", list(TO))
    mail = read(sink)
    assert mail["Subject"] == "[mirror-1] Error: Project fails: openeuler/kernel"
    assert mail["From"].addresses == (Address("evermirror", "evermirror", "example.org"),)
    assert [a.addr_spec for a in mail["To"].addresses] == list(TO)
    assert mail["Date"].datetime.timestamp() == AT
    assert mail["Auto-Submitted"] == "auto-generated"
    assert re.fullmatch(r"<[^<>@]+@example\.org>", mail["Message-ID"])
    assert mail.get_content_type() == "multipart/alternative"
    assert [part.get_content_type() for part in mail.iter_parts()] == ["text/plain", "text/html"]
    for part in mail.iter_parts():
        text = part.get_content()
        for words in ("Error", "Over", "Project fails: openeuler/kernel", ITEM.text, "Project fails: a/b"):
            assert words in text
        for words in ("and 7 more", "evermirror · mirror-1", "since 2026-", " to 2026-"):
            assert words in text


async def test_the_subject_tells_how_serious_it_is_while_that_matters():
    with smtp_sink() as sink:
        await Mail(settings_for(sink)).send(replace(MESSAGE, title="Over: Project fails: x", items=(OVER,)))
    assert read(sink)["Subject"] == "[mirror-1] Over: Project fails: x"


async def test_chinese_is_encoded_in_subject_and_text():
    with smtp_sink() as sink:
        await Mail(settings_for(sink)).send(CHINESE)
    content = sink.mails[0].content
    assert isinstance(content, bytes)
    assert content.isascii()
    assert b"=?utf-8?" in content
    mail = read(sink)
    assert mail["Subject"] == "[北京镜像] 错误：项目同步失败：openeuler/kernel"
    for part in mail.iter_parts():
        assert "连续失败 3 次：无法解析" in part.get_content()
    assert '<html lang="zh-CN">' in list(mail.iter_parts())[1].get_content()


async def test_starttls_with_a_login(authority):
    ca_file, context = authority
    with smtp_sink(login=LOGIN, starttls=context) as sink:
        login = {"host": "localhost", "username": LOGIN[0], "password": LOGIN[1], "ca_file": ca_file}
        await Mail(settings_for(sink, Tls.STARTTLS, **login)).send(MESSAGE)
        assert sink.sessions[0].ssl is not None
        assert sink.sessions[0].authenticated


async def test_tls_from_the_first_byte(authority):
    ca_file, context = authority
    with smtp_sink(tls=context) as sink:
        await Mail(settings_for(sink, Tls.TLS, host="localhost", ca_file=ca_file)).send(MESSAGE)
        assert len(sink.mails) == 1


@pytest.mark.parametrize("tls", [Tls.STARTTLS, Tls.TLS])
async def test_certificates_are_checked(authority, tls):
    ca_file, context = authority
    kind = {"starttls": context} if tls is Tls.STARTTLS else {"tls": context}
    with smtp_sink(**kind) as sink:
        login = {"username": LOGIN[0], "password": LOGIN[1]}
        with pytest.raises(NotSent, match="certificate is not trusted"):
            await Mail(settings_for(sink, tls, host="localhost", **login)).send(MESSAGE)
        with pytest.raises(NotSent, match="certificate is not trusted"):
            await Mail(settings_for(sink, tls, host="127.0.0.1", ca_file=ca_file, **login)).send(MESSAGE)
        assert sink.mails == []


async def test_a_server_without_starttls_gets_neither_password_nor_message():
    with smtp_sink() as sink:
        login = {"username": LOGIN[0], "password": LOGIN[1]}
        with pytest.raises(NotSent, match="STARTTLS extension not supported") as caught:
            await Mail(settings_for(sink, Tls.STARTTLS, **login)).send(MESSAGE)
        assert not caught.value.permanent
        assert sink.mails == []


async def test_a_wrong_password_is_told_and_not_shown_though_the_server_repeats_it(authority):
    ca_file, context = authority
    with smtp_sink(login=LOGIN, starttls=context) as sink:
        login = {"host": "localhost", "ca_file": ca_file, "username": "robot", "password": "c4n4ry-wr0ng"}
        with pytest.raises(NotSent, match="535") as caught:
            await Mail(settings_for(sink, Tls.STARTTLS, **login)).send(MESSAGE)
        assert "*** is not the password" in caught.value.reason
        assert "c4n4ry" not in caught.value.reason
        assert not caught.value.permanent


@pytest.mark.parametrize(
    ("refuse", "words", "permanent"),
    [
        ({TO[0]: "550 no such user", TO[1]: "550 no such user"}, "all recipients are refused: ops@", False),
        ({TO[0]: "450 grey", TO[1]: "450 grey"}, "450 grey", False),
        ({"DATA": "552 5.3.4 message too big"}, "552 5.3.4 message too big", True),
        ({"DATA": "523 the message is too long"}, "523 the message", True),
        ({"DATA": "552 5.2.2 mailbox full"}, "552 5.2.2 mailbox full", False),
        ({"DATA": "550 5.7.1 too many messages"}, "550 5.7.1 too many", False),
        ({"DATA": "550 5.7.60 may not send as this sender"}, "550 5.7.60 may not", False),
        ({"DATA": "554 5.7.1 client host blocked"}, "554 5.7.1 client host", False),
        ({"DATA": "554 looks like spam"}, "554 looks like spam", False),
        ({"DATA": "451 come back later"}, "451 come back later", False),
    ],
)
async def test_refusals_are_told_and_only_a_message_that_is_too_big_is_permanent(refuse, words, permanent):
    with smtp_sink() as sink:
        sink.refuse |= refuse
        with pytest.raises(NotSent, match=words) as caught:
            await Mail(settings_for(sink)).send(MESSAGE)
        assert caught.value.permanent is permanent


async def test_one_refused_recipient_of_two_is_no_failure_since_the_other_has_it():
    with smtp_sink() as sink, capture_logs() as logs:
        sink.refuse[TO[0]] = "550 no such user"
        remark = await Mail(settings_for(sink)).send(MESSAGE)
        assert sink.mails[0].rcpt_tos == [TO[1]]
        sink.refuse.clear()
        assert await Mail(settings_for(sink)).send(MESSAGE) is None
    assert remark == "the others have it, refused are: ops@example.org (550 no such user)"
    assert [(entry["recipient"], entry["reason"]) for entry in logs] == [(TO[0], "550 no such user")]


async def test_a_server_that_is_not_there_and_one_that_says_nothing():
    away = MailSettings("127.0.0.1", free_port(), Tls.NONE, "a@example.org", TO)
    with pytest.raises(NotSent, match="Connection refused"):
        await Mail(away).send(MESSAGE)

    async def silent(c: Conversation) -> None:
        await asyncio.sleep(60)

    async with raw_server(silent) as server:
        begun = time.monotonic()
        with pytest.raises(NotSent, match="no answer within"):
            await Mail(replace(away, port=server.port), timeout_s=1.3).send(MESSAGE)
        assert time.monotonic() - begun < 9  # and not the usual ten


async def test_a_server_that_talks_without_end_is_left():
    async def endless(c: Conversation) -> None:
        while True:
            await c.say(b"220-" + b"x" * 1000 + b"\r\n")

    async with raw_server(endless) as server:
        to = MailSettings("127.0.0.1", server.port, Tls.NONE, "a@example.org", TO)
        with pytest.raises(NotSent):
            await Mail(to).send(MESSAGE)


async def test_a_message_that_was_taken_is_sent_though_the_goodbye_hangs():
    async def no_goodbye(c: Conversation) -> None:
        await c.say(b"220 hi\r\n")
        while line := await c.reader.readline():
            if line.startswith(b"QUIT"):
                await asyncio.sleep(60)
            if line.startswith(b"DATA"):
                await c.say(b"354 go on\r\n")
                await c.reader.readuntil(b"\r\n.\r\n")
            await c.say(b"250 fine\r\n")

    async with raw_server(no_goodbye) as server:
        to = MailSettings("127.0.0.1", server.port, Tls.NONE, "a@example.org", TO)
        await Mail(to).send(MESSAGE)


HEADERS = [
    "Subject", "From", "To", "Date", "Message-ID", "Auto-Submitted", "MIME-Version", "Content-Type",
]  # fmt: skip


class Tags(HTMLParser):
    """Every tag and attribute of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(f"{tag}.{name}" for name, _ in attrs)}

    def handle_data(self, data: str) -> None:
        self.text += data


OUR_TAGS = {
    "html", "html.lang", "head", "meta", "meta.charset", "body", "body.style", "h2", "h2.style", "div",
    "div.style", "b", "b.style", "p", "p.style",
}  # fmt: skip


@given(message=messages)
@settings(max_examples=60, deadline=None)
def test_whatever_a_name_holds_no_header_is_added_and_no_tag(message):
    raw = compose(message, "evermirror@example.org", TO, AT).as_bytes()
    mail = email.message_from_bytes(raw, policy=email.policy.default)
    assert mail.keys() == HEADERS
    assert not mail.defects
    assert all(len(line) <= 998 for line in raw.split(b"\r\n"))
    text, html = (part.get_content() for part in mail.iter_parts())
    tags = Tags()
    tags.feed(html)
    assert tags.found <= OUR_TAGS
    assert text.count("\n    ") >= 2 * len(message.items)


def test_markup_in_a_name_is_shown_as_it_is_written():
    mail = compose(hostile_message("<script>x</script><img src=//evil.example>&amp;"), "a@b.example", TO, AT)
    _, html = (part.get_content() for part in mail.iter_parts())
    tags = Tags()
    tags.feed(html)
    assert tags.found <= OUR_TAGS
    assert tags.text.count("<script>x</script><img src=//evil.example>&amp;") == 5


async def test_a_login_that_the_server_repeats_in_its_own_form_is_not_shown():
    async def repeats(c: Conversation) -> None:
        await c.say(b"220 hi\r\n")
        while line := await c.reader.readline():
            if line.startswith(b"EHLO"):
                await c.say(b"250-hi\r\n250 AUTH PLAIN\r\n")
            else:
                await c.say(b"535 what is " + line.strip() + b"?\r\n")

    async with raw_server(repeats) as server:
        to = MailSettings("127.0.0.1", server.port, Tls.NONE, "a@example.org", TO, *LOGIN)
        with pytest.raises(NotSent, match=r"535 what is AUTH PLAIN \*\*\*\?"):
            await Mail(to).send(MESSAGE)


async def test_what_is_made_of_the_password_is_not_shown_either():
    answers: list[bytes] = []

    async def repeats(c: Conversation) -> None:
        await c.say(b"220 hi\r\n")
        while line := await c.reader.readline():
            if line.startswith(b"EHLO"):
                await c.say(b"250-hi\r\n250 AUTH CRAM-MD5\r\n")
            elif line.startswith(b"AUTH CRAM-MD5"):
                await c.say(b"334 " + base64.b64encode(b"<1.2@host>") + b"\r\n")
                answers.append((await c.reader.readline()).strip())
                digest = base64.b64decode(answers[-1]).rpartition(b" ")[2]
                await c.say(b"535 5.7.8 no " + answers[-1] + b" is " + digest + b", sorry\r\n")
            else:
                await c.say(b"250 fine\r\n")

    async with raw_server(repeats) as server:
        to = MailSettings("127.0.0.1", server.port, Tls.NONE, "a@example.org", TO, *LOGIN)
        with pytest.raises(NotSent, match=r"535 5\.7\.8 no \*\*\* is \*\*\*, sorry"):
            await Mail(to).send(MESSAGE)
    assert answers  # it was asked for, and sent


@pytest.mark.parametrize("host", ["h\r\nX", "h h", ""])
async def test_a_host_that_cannot_be_is_a_failure_and_no_crash(host):
    to = MailSettings(host, free_port(), Tls.NONE, "a@example.org", TO)
    with pytest.raises(NotSent) as caught:
        await Mail(to, timeout_s=3).send(MESSAGE)
    assert caught.value.reason


async def test_a_short_password_blots_out_no_ordinary_words():
    to = MailSettings("127.0.0.1", free_port(), Tls.NONE, "a@example.org", TO, "robot", "s")
    with pytest.raises(NotSent, match=r"^Connection refused$"):
        await Mail(to).send(MESSAGE)
    assert Reasons(["pass"]).words("pass is no password; 'pass', xpassx") == (
        "*** is no password; '***', xpassx"
    )


async def test_a_hostile_name_reaches_the_server_as_mere_text():
    with smtp_sink() as sink:
        await Mail(settings_for(sink)).send(hostile_message())
        await Mail(settings_for(sink)).send(hostile_message("\r\n.\r\nMAIL FROM:<x@evil.example>\r\n"))
        await Mail(settings_for(sink)).send(digest(100, 5))
    assert [envelope.rcpt_tos for envelope in sink.mails] == [list(TO)] * 3
    mail = read(sink)
    assert mail.keys() == HEADERS


def test_settings_show_no_password():
    assert "c4n4ry" not in repr(MailSettings("h", 1, Tls.TLS, "a@b", TO, *LOGIN))
