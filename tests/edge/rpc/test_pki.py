"""The coordinator's own CA, and how a worker comes to believe it and no other."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
import ssl
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from evermirror.edge.rpc.join import fetch_ca, join_token, split_join_token
from evermirror.edge.rpc.pki import ca_fingerprint, make_ca, open_ca
from evermirror.errors import EnvironmentUnfit, UsageError
from evermirror.model.failure import FailureError, FailureKind

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def server_certificate(chain: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificates(chain.read_bytes())[0]


def names_of(chain: Path) -> set[str]:
    names = server_certificate(chain).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in names}


def test_keys_are_readable_by_their_owner_only(tmp_path: Path):
    own = make_ca(tmp_path / "pki", [])
    for place in (own.tls.key, tmp_path / "pki" / "ca.key"):
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "pki").stat().st_mode) == 0o700
    assert b"PRIVATE" not in own.ca_pem + own.tls.chain.read_bytes()


def test_the_ca_lasts_ten_years_and_the_server_has_its_names(tmp_path: Path):
    own = make_ca(tmp_path, ["Mirror.Example.org", "192.0.2.7", "[2001:db8::1]"], now=NOW)
    ca = x509.load_pem_x509_certificate(own.ca_pem)
    assert timedelta(days=3649) < ca.not_valid_after_utc - NOW < timedelta(days=3653)
    assert names_of(own.tls.chain) == {
        "mirror.example.org",
        "192.0.2.7",
        "2001:db8::1",
        "localhost",
        "127.0.0.1",
        "::1",
    }


def test_nothing_changes_while_nothing_has_to(tmp_path: Path):
    first = make_ca(tmp_path, ["a.example"], now=NOW)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert make_ca(tmp_path, ["a.example"], now=NOW + timedelta(days=300)) == first
    assert open_ca(tmp_path, now=NOW) == first.ca_pem
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_server_certificate_is_renewed_in_time_by_the_same_ca(tmp_path: Path):
    first = make_ca(tmp_path, ["a.example"], now=NOW)
    old = server_certificate(first.tls.chain)
    later = old.not_valid_after_utc - timedelta(days=29)
    again = make_ca(tmp_path, ["a.example"], now=later)
    assert again.ca_pem == first.ca_pem
    new = server_certificate(again.tls.chain)
    assert new.not_valid_after_utc - later > timedelta(days=300)
    new.verify_directly_issued_by(x509.load_pem_x509_certificate(first.ca_pem))


def test_new_names_make_a_new_server_certificate(tmp_path: Path):
    first = make_ca(tmp_path, ["a.example"])
    again = make_ca(tmp_path, ["b.example"])
    assert again.ca_pem == first.ca_pem
    assert "b.example" in names_of(again.tls.chain)
    assert "a.example" not in names_of(again.tls.chain)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 300, "ü.example", "a:1", "a@b"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str):
    with pytest.raises(UsageError):
        make_ca(tmp_path, [name])


def test_a_token_made_before_the_first_start_names_the_same_ca(tmp_path: Path):
    pem = open_ca(tmp_path)
    assert make_ca(tmp_path, ["a.example"]).ca_pem == pem


def test_two_that_start_at_once_make_one_ca(tmp_path: Path):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: make_ca(tmp_path, [f"n{n % 2}.example"]).ca_pem, range(16)))
    assert len(set(made)) == 1


def test_a_crash_between_key_and_certificate_is_mended(tmp_path: Path):
    make_ca(tmp_path, [])
    (tmp_path / "ca.pem").unlink()
    own = make_ca(tmp_path, [])
    server_certificate(own.tls.chain).verify_directly_issued_by(x509.load_pem_x509_certificate(own.ca_pem))


@pytest.mark.parametrize(
    "damage", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_a_damaged_server_certificate_is_made_anew_but_a_damaged_ca_is_told(tmp_path: Path, damage: bytes):
    own = make_ca(tmp_path, [])
    own.tls.chain.write_bytes(damage)
    make_ca(tmp_path, [])
    assert "localhost" in names_of(own.tls.chain)
    (tmp_path / "ca.pem").write_bytes(damage)
    with pytest.raises(EnvironmentUnfit, match="new token"):
        make_ca(tmp_path, [])


def test_a_ca_that_ended_is_told(tmp_path: Path):
    make_ca(tmp_path, [], now=NOW)
    with pytest.raises(EnvironmentUnfit, match="ended on"):
        make_ca(tmp_path, [], now=NOW + timedelta(days=4000))


def test_another_ca_in_its_place_is_told(tmp_path: Path):
    make_ca(tmp_path / "a", [])
    make_ca(tmp_path / "b", [])
    (tmp_path / "a" / "ca.pem").write_bytes((tmp_path / "b" / "ca.pem").read_bytes())
    with pytest.raises(EnvironmentUnfit, match="does not belong"):
        make_ca(tmp_path / "a", [])


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentUnfit, match="cannot be used"):
        make_ca(tmp_path / "file" / "pki", [])


def test_a_fingerprint_is_short_and_names_one_ca(tmp_path: Path):
    one, two = (ca_fingerprint(open_ca(tmp_path / name)) for name in "ab")
    assert one != two
    assert len(one) * 5 >= 128
    assert one == one.lower()
    assert one.isalnum()


@given(st.binary(min_size=20, max_size=20), st.text("abcXYZ019_-", min_size=8, max_size=60))
def test_a_token_carries_its_fingerprint(raw: bytes, secret: str):
    fingerprint = base64.b32encode(raw).decode().lower()
    assert split_join_token(join_token(secret, fingerprint)) == (secret, fingerprint)
    assert split_join_token(f" {join_token(secret, None)}\n") == (secret, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "em_short.",
        "em_abcdefgh.xyz",
        "em_abcdefgh." + "A" * 32,
        "em_abc defgh",
        "em_ü12345678",
        "." + "a" * 32,
    ],
)
def test_what_is_no_token_is_refused_and_not_repeated(text: str):
    with pytest.raises(UsageError) as caught:
        split_join_token(text)
    assert not text or text not in str(caught.value)


async def tls_server(chain: Path, key: Path) -> tuple[asyncio.Server, int, list[bytes]]:
    """Says nothing, and keeps what it is told."""
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            heard.append(await reader.read(1000))
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    server = await asyncio.start_server(listen, "127.0.0.1", 0, ssl=context)
    return server, server.sockets[0].getsockname()[1], heard


async def test_the_ca_that_the_token_names_is_fetched_and_nothing_is_said(tmp_path: Path):
    own = make_ca(tmp_path, [])
    server, port, heard = await tls_server(own.tls.chain, own.tls.key)
    async with server:
        assert await fetch_ca("127.0.0.1", port, ca_fingerprint(own.ca_pem)) == own.ca_pem
        await asyncio.sleep(0.2)
    assert b"".join(heard) == b""


async def test_a_ca_that_the_token_does_not_name_is_refused(tmp_path: Path):
    own, other = make_ca(tmp_path / "own", []), make_ca(tmp_path / "other", [])
    server, port, heard = await tls_server(other.tls.chain, other.tls.key)
    async with server:
        with pytest.raises(FailureError) as caught:
            await fetch_ca("127.0.0.1", port, ca_fingerprint(own.ca_pem))
        await asyncio.sleep(0.2)
    assert caught.value.failure.kind is FailureKind.AUTH_FAILED
    assert b"".join(heard) == b""


async def test_a_servers_certificate_is_no_ca_even_where_its_fingerprint_fits(tmp_path: Path):
    own = make_ca(tmp_path, [])
    leaf = server_certificate(own.tls.chain).public_bytes(Encoding.PEM)
    server, port, _ = await tls_server(own.tls.chain, own.tls.key)
    async with server:
        with pytest.raises(FailureError) as caught:
            await fetch_ca("127.0.0.1", port, ca_fingerprint(leaf))
        await asyncio.sleep(0.2)
    assert caught.value.failure.kind is FailureKind.AUTH_FAILED


async def test_fetching_from_nobody_or_from_the_silent_ends(tmp_path: Path):
    fingerprint = "a" * 32
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(FailureError, match="did not answer"):
            await fetch_ca("127.0.0.1", port, fingerprint, timeout_s=0.3)
    with pytest.raises(FailureError, match="cannot be reached"):
        await fetch_ca("127.0.0.1", port, fingerprint)
    with pytest.raises(FailureError, match="cannot be reached"):
        await fetch_ca("no-such-host.invalid", port, fingerprint)


async def test_fetching_from_what_is_no_tls_server_ends():
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(os.urandom(500))
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        with pytest.raises(FailureError) as caught:
            await fetch_ca("127.0.0.1", server.sockets[0].getsockname()[1], "a" * 32)
    assert caught.value.failure.kind is FailureKind.NETWORK_TIMEOUT
