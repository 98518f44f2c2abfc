"""What a worker needs to join: a token that carries the CA's fingerprint, and the CA that it names."""

from __future__ import annotations

import asyncio
import hmac
import re
import ssl
from typing import Any

from cryptography import x509

from evermirror.edge.rpc.pki import FINGERPRINT_BYTES, fingerprint_of_der
from evermirror.errors import UsageError
from evermirror.model.failure import Failure, FailureError, FailureKind

FETCH_S = 10.0  # for connecting and shaking hands
CHAIN_MAX = 10  # certificates looked at

_FINGERPRINT = re.compile(rf"[a-z2-7]{{{FINGERPRINT_BYTES * 8 // 5}}}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{8,256}")
_WHICH_PORT = "Give the host and gRPC port of the coordinator (server.grpc_listen)"
_ANOTHER = "Ask for a new token; if that does not help, somebody is between you and the coordinator"


class NotListening(FailureError):
    """Nobody answers at that address, yet: an all-in-one listens only from its first token for a node on."""


def join_token(secret_token: str, fingerprint: str | None) -> str:
    """What is handed to a worker. None: the coordinator's certificate is from a CA that everybody knows."""
    return secret_token if fingerprint is None else f"{secret_token}.{fingerprint}"


def split_join_token(text: str) -> tuple[str, str | None]:
    """The secret, and the fingerprint where it has one; the error does not repeat the text."""
    secret, dot, fingerprint = text.strip().partition(".")
    if not _SECRET.fullmatch(secret) or (dot and not _FINGERPRINT.fullmatch(fingerprint)):
        raise UsageError(
            "this is no token for joining", hint="Copy it whole, as `evermirror token create` printed it"
        )
    return secret, fingerprint or None


async def fetch_ca(host: str, port: int, fingerprint: str, *, timeout_s: float = FETCH_S) -> bytes:
    """The CA (PEM) that the server shows and the fingerprint names. Nothing else that comes is believed, and
    nothing is sent. Raises FailureError: NETWORK_TIMEOUT, or AUTH_FAILED where it is another CA."""
    try:
        async with asyncio.timeout(timeout_s):
            chain = await _shown_chain(host, port)
    except ssl.SSLError as e:
        message = f"{host}:{port} does not speak TLS as a coordinator does: {e.reason or 'handshake failed'}"
        raise FailureError(Failure(FailureKind.NETWORK_TIMEOUT, message, hint=_WHICH_PORT)) from None
    except TimeoutError:
        message = f"{host}:{port} did not answer within {timeout_s:g} s"
        raise NotListening(Failure(FailureKind.NETWORK_TIMEOUT, message, hint=_WHICH_PORT)) from None
    except (OSError, UnicodeError) as e:
        why = getattr(e, "strerror", None) or str(e) or type(e).__name__
        message = f"{host}:{port} cannot be reached: {why}"
        raise NotListening(Failure(FailureKind.NETWORK_TIMEOUT, message, hint=_WHICH_PORT)) from None
    for der in chain[:CHAIN_MAX]:
        if hmac.compare_digest(fingerprint_of_der(der), fingerprint) and _is_ca(der):
            return ssl.DER_cert_to_PEM_cert(der).encode()
    message = f"{host}:{port} does not show the CA that the token names"
    raise FailureError(Failure(FailureKind.AUTH_FAILED, message, hint=_ANOTHER))


async def _shown_chain(host: str, port: int) -> list[bytes]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # what is shown is compared with the fingerprint, and only kept
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        return _unverified_chain(writer.get_extra_info("ssl_object"))
    finally:
        writer.transport.abort()


def _unverified_chain(secured: Any) -> list[bytes]:
    """Public since Python 3.13, which gives DER; before, the same is there under another name, as objects."""
    public = getattr(secured, "get_unverified_chain", None)
    shown = public() if public is not None else secured._sslobj.get_unverified_chain()
    return [_der(certificate) for certificate in shown or ()]


def _der(certificate: Any) -> bytes:
    if isinstance(certificate, bytes):
        return certificate
    pem: str = certificate.public_bytes()
    return ssl.PEM_cert_to_DER_cert(pem)


def _is_ca(der: bytes) -> bool:
    try:
        constraints = x509.load_der_x509_certificate(der).extensions.get_extension_for_class(
            x509.BasicConstraints
        )
    except (ValueError, x509.ExtensionNotFound):
        return False
    return constraints.value.ca
