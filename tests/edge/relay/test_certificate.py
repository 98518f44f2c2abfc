"""A relay's certificate is made once, kept private, and never silently replaced."""

from __future__ import annotations

import ssl
from concurrent.futures import ThreadPoolExecutor

import pytest

from evermirror.edge.relay.certificate import fingerprint_of, listening_context, own_certificate
from evermirror.errors import EnvironmentUnfit


def test_made_once_and_the_same_afterwards(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: own_certificate(tmp_path / "relay"), range(8)))
    assert len(set(made)) == 1
    assert made[0].file.stat().st_mode & 0o777 == 0o600
    pem = made[0].file.read_text()
    der = ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERTIFICATE") :])
    assert fingerprint_of(der) == made[0].fingerprint
    assert listening_context(made[0]).minimum_version is ssl.TLSVersion.TLSv1_3


def test_a_broken_one_is_told_and_not_replaced(tmp_path):
    made = own_certificate(tmp_path)
    other = own_certificate(tmp_path / "other").file.read_text()
    own = made.file.read_text()
    mixed = own[: own.index("-----BEGIN CERT")] + other[other.index("-----BEGIN CERT") :]
    for broken in ("", "garbage", own[:300], mixed):
        made.file.write_text(broken)
        with pytest.raises(EnvironmentUnfit, match="cannot be used"):
            own_certificate(tmp_path)
        assert made.file.read_text() == broken
