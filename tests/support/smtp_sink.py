"""A real SMTP server (aiosmtpd) that keeps what it is given."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.support.ports import free_port


@dataclass
class SmtpSink:
    """``refuse`` has the answer to a recipient, or to the data ("DATA"), instead of yes."""

    port: int = 0
    mails: list[Envelope] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    refuse: dict[str, str] = field(default_factory=dict)

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refuse:
            return self.refuse[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if "DATA" in self.refuse:
            return self.refuse["DATA"]
        self.mails.append(envelope)
        self.sessions.append(session)
        return "250 taken"


class _Controller(Controller):
    """Its own test for being ready would be a TLS client with the server's context."""

    def _trigger_server(self) -> None:
        if self.ssl_context is None:
            super()._trigger_server()
            return
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        plain = socket.create_connection((self.hostname, self.port), 5)
        with plain, trusting.wrap_socket(plain) as client:
            client.recv(1024)


@contextmanager
def smtp_sink(
    *,
    login: tuple[str, str] | None = None,
    starttls: ssl.SSLContext | None = None,
    tls: ssl.SSLContext | None = None,
) -> Iterator[SmtpSink]:
    """``login``: the one pair that is let in, after STARTTLS; nobody else may send."""
    sink = SmtpSink()

    def authenticate(
        server: SMTP, session: Session, envelope: Envelope, how: str, data: object
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        pair = (data.login.decode(), data.password.decode())
        if pair == login:
            return AuthResult(success=True)
        # What no server should do: it repeats the password.
        message = f"535 5.7.8 {data.password.decode()} is not the password"
        return AuthResult(success=False, handled=False, message=message)

    more: dict[str, object] = {}
    if login is not None:
        more = {
            "authenticator": authenticate,
            "auth_required": True,
            "auth_require_tls": starttls is not None,
        }
    if starttls is not None:
        more |= {"tls_context": starttls, "require_starttls": True}
    controller = _Controller(sink, hostname="127.0.0.1", port=free_port(), ssl_context=tls, **more)
    controller.start()
    sink.port = controller.port
    try:
        yield sink
    finally:
        controller.stop()
