"""The coordinator's own certificate authority: made once, told to workers by the fingerprint in their token.

  coordinator                                          worker
    ca.key, ca.pem   10 years; signs …                   token = secret "." fingerprint of ca.pem
    server.key, server.pem (with ca.pem behind it)       fetch_ca: connects once, believes and sends nothing,
      renewed before it ends, or when names change         and keeps the CA whose fingerprint is the token's;
                                                         then every connection is verified by that CA
A folder is locked while it is changed: a token may be made before, or while, the coordinator first starts.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import ipaddress
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from evermirror.errors import EnvironmentUnfit, UsageError

CA_DAYS = 3650
SERVER_DAYS = 397  # the longest that strict TLS clients accept
RENEW_DAYS = 30
FINGERPRINT_BYTES = 20  # 160 bits: 32 letters; nobody finds another certificate with the same
_BACKDATED = timedelta(hours=1)  # a worker's clock may be behind
_ALWAYS = ("localhost", "127.0.0.1", "::1")
_NAME_CHARS_MAX = 253

_Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """What a server shows (the chain, its own certificate first) and proves (the key); both PEM."""

    chain: Path
    key: Path


@dataclass(frozen=True, slots=True)
class OwnCa:
    """Our CA's certificate, and the server's files that it signed."""

    ca_pem: bytes
    tls: TlsFiles


def open_ca(folder: Path, *, now: datetime | None = None) -> bytes:
    """The CA's certificate, made if there is none yet; the server's certificate is left alone."""
    with _locked(folder):
        return _pem(_ca(folder, now or datetime.now(UTC))[1])


def make_ca(folder: Path, names: Sequence[str], *, now: datetime | None = None) -> OwnCa:
    """The CA, and a server certificate for these host names and addresses (and localhost) that is good for a
    while: made or renewed as needed. Cheap where nothing is to be done; call it daily."""
    now = now or datetime.now(UTC)
    wanted = _general_names(names)
    tls = TlsFiles(folder / "server.pem", folder / "server.key")
    with _locked(folder):
        ca_key, ca = _ca(folder, now)
        server_key = _key(tls.key)
        if not _still_good(tls.chain, ca, server_key, wanted, now):
            server = _sign_server(ca_key, ca, server_key, wanted, now)
            _write(tls.chain, _pem(server) + _pem(ca), mode=0o644)
    return OwnCa(_pem(ca), tls)


def ca_fingerprint(pem: bytes) -> str:
    """SHA-256 over the certificate, its first 160 bits in base32: short enough to ride on a token."""
    return fingerprint_of_der(x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER))


def fingerprint_of_der(der: bytes) -> str:
    return base64.b32encode(hashlib.sha256(der).digest()[:FINGERPRINT_BYTES]).decode().lower()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as e:
        raise _unusable(folder, e.strerror or str(e)) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    except OSError as e:
        raise _unusable(folder, e.strerror or str(e)) from None
    finally:
        os.close(handle)


def _unusable(place: Path, why: str) -> EnvironmentUnfit:
    return EnvironmentUnfit(
        f"the certificates in {place} cannot be used: {why}",
        hint="Repair the folder, or remove it: then a new CA is made, and every worker needs a new token",
    )


def _ca(folder: Path, now: datetime) -> tuple[_Key, x509.Certificate]:
    """The key is written first: where only that is there, a crash came between, and the rest is made now."""
    key = _key(folder / "ca.key")
    place = folder / "ca.pem"
    if not place.exists():
        _write(place, _pem(_sign_ca(key, now)), mode=0o644)
    ca = _certificate(place)
    if ca.public_key() != key.public_key():
        raise _unusable(folder, "ca.pem does not belong to ca.key")
    if ca.not_valid_after_utc <= now:
        raise _unusable(folder, f"the CA ended on {ca.not_valid_after_utc:%Y-%m-%d}")
    return key, ca


def _key(place: Path) -> _Key:
    if not place.exists():
        made = ec.generate_private_key(ec.SECP256R1())
        form = serialization.PrivateFormat.PKCS8
        plain = serialization.NoEncryption()
        _write(place, made.private_bytes(serialization.Encoding.PEM, form, plain), mode=0o600)
    try:
        key = serialization.load_pem_private_key(place.read_bytes(), None)
    except (ValueError, TypeError):
        raise _unusable(place, "no private key is in it") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _unusable(place, "not a key of ours")
    return key


def _certificate(place: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(place.read_bytes())
    except ValueError:
        raise _unusable(place, "no certificate is in it") from None


def _write(place: Path, text: bytes, *, mode: int) -> None:
    """All at once: whoever reads sees the old file or the new one."""
    handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=place.name)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _general_names(names: Sequence[str]) -> frozenset[x509.GeneralName]:
    return frozenset(_general_name(name) for name in (*_ALWAYS, *names))


def _general_name(name: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name.removeprefix("[").removesuffix("]")))
    try:
        if 0 < len(name) <= _NAME_CHARS_MAX and not set(name) & set(" :/@\0"):
            return x509.DNSName(name.lower())
    except ValueError:  # not ASCII
        pass
    raise UsageError(f"{name!r:.300} is no host name or address for a certificate")


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _begin(
    subject: str, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(subject))
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _sign_ca(key: _Key, now: datetime) -> x509.Certificate:
    name = f"evermirror CA {os.urandom(4).hex()}"  # CAs of two coordinators can be told apart
    return (
        _begin(name, _subject(name), key.public_key(), now, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _sign_server(
    ca_key: _Key, ca: x509.Certificate, key: _Key, names: frozenset[x509.GeneralName], now: datetime
) -> x509.Certificate:
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        _begin("evermirror coordinator", ca.subject, key.public_key(), now, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(sorted(names, key=repr)), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _still_good(
    place: Path, ca: x509.Certificate, key: _Key, names: frozenset[x509.GeneralName], now: datetime
) -> bool:
    """Ours, for this key and exactly these names, and not about to end."""
    try:
        server, *behind = x509.load_pem_x509_certificates(place.read_bytes())
        server.verify_directly_issued_by(ca)
        told = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # missing, cut short, another CA's: all of it is mended by a new one
        return False
    return (
        behind == [ca]
        and server.public_key() == key.public_key()
        and frozenset(told) == names
        and server.not_valid_after_utc - now > timedelta(days=RENEW_DAYS)
    )
