"""A relay's own certificate: self-signed, made once; whoever dials it knows its fingerprint beforehand."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from evermirror.errors import EnvironmentUnfit

# Dialers look at the fingerprint, not at dates: one that ends would only break tunnels some day.
_DAYS = 36_500
_BACKDATED = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class RelayCertificate:
    """``file`` has certificate and key, PEM; ``fingerprint`` is the SHA-256 of the certificate, in hex."""

    file: Path
    fingerprint: str


def own_certificate(folder: Path) -> RelayCertificate:
    """Made where there is none yet. Raises EnvironmentUnfit."""
    place = folder / "relay.pem"
    try:
        with _locked(folder):
            if not place.exists():
                _write(place, _make())
            text = place.read_bytes()
        certificate = x509.load_pem_x509_certificate(text)
        key = serialization.load_pem_private_key(text, None)
    except OSError as e:
        raise _unusable(place, e.strerror or str(e)) from None
    except (ValueError, TypeError):
        raise _unusable(place, "certificate or key cannot be read") from None
    if key.public_key() != certificate.public_key():
        raise _unusable(place, "its key is not the certificate's")
    return RelayCertificate(place, fingerprint_of(certificate.public_bytes(serialization.Encoding.DER)))


def fingerprint_of(der: bytes) -> str:
    return hashlib.sha256(der).hexdigest()


def listening_context(certificate: RelayCertificate) -> ssl.SSLContext:
    """TLS as a relay speaks it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # nobody resumes, and each ticket is a write to a peer that may be gone
    context.load_cert_chain(certificate.file)
    return context


def dialling_context() -> ssl.SSLContext:
    """TLS as dialers speak it: the certificate is compared by ``fingerprint_of`` after the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _unusable(place: Path, why: str) -> EnvironmentUnfit:
    return EnvironmentUnfit(
        f"the relay's certificate {place} cannot be used: {why}",
        hint="Repair it, or remove it: a new one is made, and its fingerprint told by the coordinator",
    )


def _make() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "evermirror relay")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=_DAYS))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(folder / "relay.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write(place: Path, text: bytes) -> None:
    """All at once, and only for us."""
    handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=place.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
