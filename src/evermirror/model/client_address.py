"""Where a request comes from: the client's address behind proxies, and the network that limits count by."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

ADDRESSES_KEPT = 1_000  # that need not be read again: a forge's hooks all come from a few
HOPS_MAX = 20  # proxies in a row; real chains have two or three


@lru_cache(ADDRESSES_KEPT)
def client_network(address: str | None) -> str:
    """What a client is limited by: its IPv4 address, or its IPv6 /64, since one host owns all of that."""
    ip = _read(address)
    if isinstance(ip, IPv6Address):
        return str(IPv6Network((int(ip) >> 64 << 64, 64)))
    return "unknown" if ip is None else str(ip)


@lru_cache(ADDRESSES_KEPT)
def is_loopback(address: str | None) -> bool:
    """Whether a client's address is this machine's own."""
    ip = _read(address)
    return ip is not None and ip.is_loopback


def is_address(text: str) -> bool:
    """Whether it is an IP address."""
    return _read(text) is not None


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    """Proxies that say truly for whom they ask (``server.trusted_proxies``)."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> TrustedProxies:
        """Reads ``127.0.0.1``, ``::1``, ``10.0.0.0/8``; raises ValueError."""
        return cls(tuple(_network(entry) for entry in entries))

    def trusts(self, address: str | None) -> bool:
        ip = _read(address)
        return ip is not None and any(ip in network for network in self.networks)

    def client_of(self, peer: str | None, forwarded_for: Sequence[str]) -> str | None:
        """The client's address: ``peer``, unless that is a trusted proxy. Then ``forwarded_for`` (the values
        of X-Forwarded-For) is read from its end, where the nearest proxy has written, up to the first address
        that is no trusted proxy: what stands before that, the client may have made up. None where a trusted
        proxy has written something else than an address."""
        client = peer
        entries = ",".join(forwarded_for).rsplit(",", HOPS_MAX)[-HOPS_MAX:] if forwarded_for else []
        while entries and self.trusts(client):
            client = _without_port(entries.pop())
            if not is_address(client):
                return None
        return client


def _read(address: str | None) -> IPv4Address | IPv6Address | None:
    """IPv4 inside IPv6, as a socket for both shows it, is IPv4."""
    try:
        ip = ipaddress.ip_address(address or "")
    except ValueError:
        return None
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return mapped if mapped is not None else ip


def _network(entry: str) -> IPv4Network | IPv6Network:
    try:
        network = ipaddress.ip_network(entry)
    except ValueError:
        raise ValueError(f'{entry!r} is neither an address nor a network such as "10.0.0.0/8"') from None
    if network.prefixlen == 0:
        raise ValueError(f"{entry!r} is everybody: name the proxies' own addresses")
    return network


def _without_port(entry: str) -> str:
    """``203.0.113.9:4711`` and ``[2001:db8::9]:4711`` are written by some proxies."""
    entry = entry.strip()
    if entry.startswith("["):
        return entry[1:].partition("]")[0]
    return entry.partition(":")[0] if entry.count(":") == 1 else entry
