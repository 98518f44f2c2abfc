"""Whose request it is, behind proxies that are believed and others."""

from __future__ import annotations

import pytest

from evermirror.model.client_address import TrustedProxies, client_network, is_loopback

PROXY, OTHER = "127.0.0.1", "10.1.2.3"
PROXIES = TrustedProxies.parse([PROXY, "::1", "10.0.0.0/8"])


def test_ipv6_clients_are_limited_by_their_network():
    assert client_network("2001:db8::1") == client_network("2001:db8::ffff") == "2001:db8::/64"
    assert client_network("::ffff:203.0.113.9") == "203.0.113.9"
    assert client_network(None) == client_network("nonsense") == "unknown"


@pytest.mark.parametrize(
    ("peer", "told", "client"),
    [
        (PROXY, [], PROXY),
        (PROXY, ["203.0.113.9"], "203.0.113.9"),
        ("::ffff:127.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("::1", ["2001:db8::9"], "2001:db8::9"),
        # What a client writes itself stands before what the nearest proxy has added.
        (PROXY, ["127.0.0.1, 198.51.100.1, 203.0.113.9"], "203.0.113.9"),
        (PROXY, ["198.51.100.1", "203.0.113.9"], "203.0.113.9"),
        (PROXY, [f"198.51.100.1, 203.0.113.9, {OTHER}"], "203.0.113.9"),
        (PROXY, [f"{OTHER}, 127.0.0.1"], OTHER),
        (PROXY, ["203.0.113.9:4711"], "203.0.113.9"),
        (PROXY, ["[2001:db8::9]:4711"], "2001:db8::9"),
        # Nobody else is believed.
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),
        (None, ["198.51.100.1"], None),
        # What is no address stands for nobody: above all not for the proxy, which may be on this machine.
        (PROXY, ["198.51.100.1, unknown"], None),
        (PROXY, [f"203.0.113.9, nonsense, {OTHER}"], None),
        (PROXY, [""], None),
        (PROXY, [", ".join(["203.0.113.9"] + [OTHER] * 100_000)], OTHER),
    ],
)
def test_the_first_address_from_the_right_that_is_no_trusted_proxy_is_the_clients(peer, told, client):
    assert PROXIES.client_of(peer, told) == client


def test_by_default_no_proxy_is_believed():
    assert TrustedProxies().client_of(PROXY, ["203.0.113.9"]) == PROXY


def test_loopback_is_known_in_every_spelling():
    assert all(map(is_loopback, ("127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1")))
    assert not any(map(is_loopback, (None, "", "localhost", "10.0.0.1", "::2")))
