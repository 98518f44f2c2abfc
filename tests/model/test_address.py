"""Which addresses may be reached, and what an operator's exceptions let through."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.errors import InvalidValue
from evermirror.model.address import AllowList, forbidden_reason

FORBIDDEN = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16", "169.254.169.254", "169.254.0.1", "172.16.0.1", "172.31.255.255", "192.0.0.1",
    "192.0.0.170",
    "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::2", "::127.0.0.1", "::10.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "::ffff:169.254.169.254", "::ffff:7f00:1", "::ffff:0:127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::8.8.8.8", "64:ff9b:1:ffff::1", "100::1", "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1",
    "2002:7f00:1::",
    "2002:0a00:0001::1", "2002:c0a8:0101::", "3ffe::1", "3fff::1", "3fff:fff:ffff::1", "4000::1", "5f00::1",
    "fc00::1",
    "fd00::1", "fdff:ffff::1", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "feff::1", "ff02::1",
    "ff0e::1",
    "2606:4700::5efe:10.0.0.1", "2606:4700::200:5efe:127.0.0.1", "2606:4700::1%1", "fd00:ec2::254",
    "", "github.com", "127.1", "0x7f.0.0.1", "010.0.0.1", "2130706433", "1.2.3.4/32", "１２７.0.0.1",
    "8.8.8.8 ", "[::1]",
]  # fmt: skip

PUBLIC = [
    "8.8.8.8", "1.1.1.1", "140.82.112.3", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1",
    "168.63.129.17",
    "11.0.0.0", "126.255.255.255", "128.0.0.1", "192.0.1.1", "192.169.0.1", "198.17.255.255", "198.20.0.0",
    "223.255.255.1",
    "2606:4700:4700::1111", "2a00:1450:4001::1", "2400:3200::1", "::ffff:8.8.8.8", "64:ff9b::808:808",
    "2002:808:808::1",
]  # fmt: skip


@pytest.mark.parametrize("ip", FORBIDDEN)
def test_what_is_not_the_public_internet_is_forbidden(ip):
    assert forbidden_reason(ip)


@pytest.mark.parametrize("ip", PUBLIC)
def test_what_is_public_passes(ip):
    assert forbidden_reason(ip) is None


def test_the_reason_names_the_range_and_the_hidden_address():
    assert forbidden_reason("10.0.0.1") == "private network"
    assert forbidden_reason("169.254.169.254") == "link-local, cloud metadata"
    assert forbidden_reason("::ffff:10.0.0.1") == "private network, as 10.0.0.1 inside IPv6"


@given(st.ip_addresses(v=4))
def test_no_ipv4_that_python_calls_internal_passes_in_any_disguise(address):
    number = int(address)
    internal = not address.is_global or address.is_multicast or address.is_reserved
    if internal:
        assert forbidden_reason(str(address))
    if internal or forbidden_reason(str(address)):
        for outer in (
            (0xFFFF << 32) | number,
            number,
            (0x64FF9B << 96) | number,
            (0x64FF9B0001 << 80) | number,
            (0x2002 << 112) | (number << 80) | 1,
            (0x20010000 << 96) | (number << 64),
            (0x20010000 << 96) | (number ^ 0xFFFFFFFF),
            (0x26064700 << 96) | (0x5EFE << 32) | number,
        ):
            assert forbidden_reason(str(ipaddress.IPv6Address(outer)))


@given(st.ip_addresses(v=6))
def test_no_ipv6_that_python_calls_internal_passes(address):
    special = address.ipv4_mapped or address in ipaddress.IPv6Network("64:ff9b::/96") or address.sixtofour
    if not special and (not address.is_global or address.is_multicast or address.is_reserved):
        assert forbidden_reason(str(address))


@given(st.text(max_size=60))
def test_no_text_breaks_the_judge(text):
    forbidden_reason(text)


ALLOW = AllowList.parse(
    ["git.corp", "*.Corp.Example", "forge:8443", "10.1.0.0/16", "192.168.7.9", "127.0.0.1:8080", "::1",
     "[fd00::5]:22",
     "fd12::/16", "*.ports.example:9000", "bücher.example"]
)  # fmt: skip


@pytest.mark.parametrize(
    ("host", "port", "allowed"),
    [
        ("git.corp", 443, True),
        ("git.corp", 1, True),
        ("x.git.corp", 443, False),
        ("evilgit.corp", 443, False),
        ("a.corp.example", 443, True),
        ("a.b.corp.example", 443, True),
        ("corp.example", 443, False),
        ("evilcorp.example", 443, False),
        ("forge", 8443, True),
        ("forge", 443, False),
        ("a.ports.example", 9000, True),
        ("a.ports.example", 9001, False),
        ("10.1.2.3", 80, True),
        ("10.2.0.1", 80, False),
        ("192.168.7.9", 80, True),
        ("192.168.7.8", 80, False),
        ("127.0.0.1", 8080, True),
        ("127.0.0.1", 8081, False),
        ("::1", 443, True),
        ("::2", 443, False),
        ("fd00::5", 22, True),
        ("fd00::5", 443, False),
        ("fd12:1::1", 443, True),
        ("::ffff:10.1.2.3", 443, True),
        ("xn--bcher-kva.example", 443, True),
    ],
)
def test_the_allow_list_lets_through_what_it_names_and_nothing_else(host, port, allowed):
    assert ALLOW.allows_host(host, port) is allowed


def test_addresses_are_allowed_by_network_not_by_name():
    assert ALLOW.allows_address("10.1.9.9", 443)
    assert ALLOW.allows_address("::ffff:10.1.9.9", 443)
    assert not ALLOW.allows_address("64:ff9b::10.1.9.9", 443)
    assert not ALLOW.allows_address("10.2.9.9", 443)
    assert not ALLOW.allows_address("not-an-address", 443)
    assert not AllowList().allows_address("10.0.0.1", 443)
    assert AllowList.parse(["fe80::/10"]).allows_address("fe80::1%2", 443)


@pytest.mark.parametrize(
    "entry",
    ["", "*", "*.", "10.0.0.1/8", "10.0.0.0/33", "a b", "-x", "host:0", "host:65536", "host:x", "host:",
     "127.1", "0x7f.1",
     "https://git.corp", "git.corp/path", "1:2:3", "[::1", "fe80::1%eth0x/99", "a..b", "exa%6dple", "host:１",
     "host:9999999"],
)  # fmt: skip
def test_an_entry_that_cannot_be_meant_is_refused_with_the_accepted_forms(entry):
    with pytest.raises(InvalidValue) as refused:
        AllowList.parse([entry])
    assert refused.value.hint.startswith("Write ")


def test_a_network_with_host_bits_is_told_what_was_meant():
    with pytest.raises(InvalidValue, match=r"Write 10\.0\.0\.0/8"):
        AllowList.parse(["10.0.0.1/8"])
