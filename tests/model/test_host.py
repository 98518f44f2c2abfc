"""Hosts: one spelling for each, and none that two programs could read differently."""

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.errors import InvalidUrl
from evermirror.model.host import as_address, canonical_host


@pytest.mark.parametrize(
    ("given_as", "canonical"),
    [
        ("GitHub.COM", "github.com"),
        ("a-b.c_d.example", "a-b.c_d.example"),
        ("_x.example", "_x.example"),
        ("intranet", "intranet"),
        ("123.example", "123.example"),
        ("1.2.3.4.example", "1.2.3.4.example"),
        ("8.8.8.8", "8.8.8.8"),
        ("0.0.0.0", "0.0.0.0"),
        ("[2001:DB8:0:0::1]", "2001:db8::1"),
        ("[::ffff:1.2.3.4]", "::ffff:102:304"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("bu\u0308cher.example", "xn--bcher-kva.example"),
        ("例え.jp", "xn--r8jz45g.jp"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("x" * 63 + ".example", "x" * 63 + ".example"),
        ("0xabc.example", "0xabc.example"),
    ],
)
def test_a_host_has_one_spelling(given_as, canonical):
    assert canonical_host(given_as) == canonical
    again = f"[{canonical}]" if ":" in canonical else canonical
    assert canonical_host(again) == canonical


@pytest.mark.parametrize(
    "host",
    ["", ".", "a.", "github.com.", ".a", "a..b", "-a.example", "a-.example", "a b", "a/b", "a@b", "a:b",
     "exa%6dple.com",
     "x" * 64 + ".example", "x." * 126 + "example", "127.1", "2130706433", "0x7f000001", "0x7f.0.0.1",
     "0177.0.0.1",
     "127.0.0.01", "127.0.0.0x1", "1.2.3", "1.2.3.4.5", "256.1.1.1", "1.2.3.999", "0", "0x", "example.0x10",
     "example.123",
     "１２７.0.0.1", "127.0.0.１", "١٢٧.0.0.1", "ⓖithub.com", "ｇithub.com", "github。com", "github．com",
     "github｡com",
     "straße.de", "σς.gr", "a\u200db.example", "a\u200bb.example", "\u212aithub.com", "git\u017fhub.com",
     "☃.net",
     "[::1", "[]", "[1.2.3.4]", "[::1%eth0]", "[fe80::1%25eth0]", "[::１]", "[v1.x]", "::1", "²³.example",
     "①.example",
     "ü" * 64, "ü" * 300, "\ud800.example", "a\0b", "*"],
)  # fmt: skip
def test_what_could_be_read_in_two_ways_is_refused(host):
    with pytest.raises(InvalidUrl) as refused:
        canonical_host(host)
    assert refused.value.hint


@given(st.text(alphabet="0123456789abcdefxX.", min_size=1, max_size=24))
def test_whatever_libc_takes_for_an_ipv4_address_is_that_very_address_or_refused(host):
    try:
        canonical = canonical_host(host)
    except InvalidUrl:
        return
    try:
        packed = socket.inet_aton(canonical)
    except OSError:
        assert as_address(canonical) is None
    else:
        assert as_address(canonical) == ipaddress.IPv4Address(packed)


@given(st.text(max_size=40) | st.text(alphabet="aZ0-._[]:%ü１。", max_size=40))
def test_a_host_that_passes_is_plain_lower_case_ascii_and_stays_as_it_is(text):
    try:
        canonical = canonical_host(text)
    except InvalidUrl:
        return
    assert canonical.isascii()
    assert canonical == canonical.lower()
    assert not set(canonical) & set(" /\\@%?#[]")
    assert not canonical.startswith("-")
    assert canonical_host(f"[{canonical}]" if ":" in canonical else canonical) == canonical
