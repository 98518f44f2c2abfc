"""Which addresses may be reached: public ones, and what the operator allows by name or network.

``forbidden_reason`` judges one address, ``AllowList`` holds the exceptions. Python's ``is_global`` alone is
not enough: it knows neither the IPv4 addresses hidden inside IPv6 ones nor cloud services at public-looking
addresses. Unknown ranges are refused: only what is known to be the public internet passes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from evermirror.errors import InvalidUrl, InvalidValue
from evermirror.model.host import as_address, canonical_host

_PORT_MAX = 65535

_V4_RANGES: tuple[tuple[IPv4Network, str], ...] = tuple(
    (IPv4Network(net), reason)
    for net, reason in (
        ("0.0.0.0/8", "this host"),
        ("10.0.0.0/8", "private network"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "cloud metadata"),  # Azure's host agent; looks public
        ("169.254.0.0/16", "link-local, cloud metadata"),
        ("172.16.0.0/12", "private network"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private network"),
        ("198.18.0.0/15", "benchmark"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)

_V6_RANGES: tuple[tuple[IPv6Network, str], ...] = tuple(
    (IPv6Network(net), reason)
    for net, reason in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        (
            "64:ff9b:1::/48",
            "local NAT64",
        ),  # where the IPv4 part sits is the operator's choice: cannot be judged
        ("100::/64", "discard only"),
        ("2001::/32", "Teredo tunnel"),
        ("2001:2::/48", "benchmark"),
        ("2001:db8::/32", "documentation"),
        ("2001::/23", "protocol assignments"),
        ("3ffe::/16", "returned test network"),
        ("3fff::/20", "documentation"),
        ("5f00::/16", "segment routing"),
        ("fc00::/7", "private network"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_V6_PUBLIC = IPv6Network("2000::/3")  # all that is handed out; the rest is special or not assigned
_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})  # bits 64–95: the last 32 are an IPv4 address


def forbidden_reason(ip: str) -> str | None:
    """Why this address may not be reached, in a few words; None for one on the public internet."""
    try:
        address = ip_address(ip)
    except ValueError:
        return "not an IP address"
    if isinstance(address, IPv4Address):
        return _forbidden_v4(address)
    return _forbidden_v6(address)


def _forbidden_v4(address: IPv4Address) -> str | None:
    for network, reason in _V4_RANGES:
        if address in network:
            return reason
    return None if address.is_global else "not public"


def _forbidden_v6(address: IPv6Address) -> str | None:
    if address.scope_id is not None:
        return "scoped to one link"
    inner = _embedded_v4(address)
    if inner is not None:
        reason = _forbidden_v4(inner)
        if reason is not None:
            return f"{reason}, as {inner} inside IPv6"
    for network, reason in _V6_RANGES:
        if address in network:
            return reason
    if address in _V6_PUBLIC or (inner is not None and (address.ipv4_mapped or address in _NAT64)):
        return None
    return "not public"


def _embedded_v4(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 machine that a packet to this address ends up at, where there is one."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    number = int(address)
    compatible = address in _COMPATIBLE and number > 1  # :: and ::1 are their own
    if compatible or address in _NAT64 or (number >> 32) & 0xFFFFFFFF in _ISATAP:
        return IPv4Address(number & 0xFFFFFFFF)
    return None


@dataclass(frozen=True, slots=True)
class AllowList:
    """Hosts and networks that the operator lets us reach although they are internal (``upstreams.allow``).

    In each entry the port is None where any port will do."""

    names: frozenset[tuple[str, int | None]] = frozenset()
    suffixes: tuple[tuple[str, int | None], ...] = ()  # ".corp.example" of "*.corp.example"
    networks: tuple[tuple[IPv4Network | IPv6Network, int | None], ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> AllowList:
        """Reads ``git.corp``, ``*.corp.example``, ``git.corp:8443``, ``[::1]:80``, ``10.0.0.0/8``."""
        names: set[tuple[str, int | None]] = set()
        suffixes: list[tuple[str, int | None]] = []
        networks: list[tuple[IPv4Network | IPv6Network, int | None]] = []
        for entry in entries:
            network = _as_network(entry)
            if network is not None:
                networks.append((network, None))
                continue
            host, port = _split_port(entry)
            if host.startswith("*."):
                suffixes.append(("." + _name(host[2:], entry), port))
                continue
            name = _name(host, entry)
            address = as_address(name)
            if address is None:
                names.add((name, port))
            else:
                networks.append((ip_network(address), port))
        return cls(frozenset(names), tuple(suffixes), tuple(networks))

    def allows_host(self, host: str, port: int | None) -> bool:
        """Whether this canonical host (a name or an address) may be reached wherever it leads."""
        if (host, None) in self.names or (host, port) in self.names:
            return True
        for suffix, only in self.suffixes:
            if host.endswith(suffix) and only in (None, port):
                return True
        return bool(self.networks) and as_address(host) is not None and self.allows_address(host, port)

    def allows_address(self, ip: str, port: int | None) -> bool:
        """Whether this address may be reached although it is not public."""
        if not self.networks:
            return False
        try:
            address = ip_address(ip.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped  # the system connects to the IPv4 machine
        return any(address in network and only in (None, port) for network, only in self.networks)


def _as_network(entry: str) -> IPv4Network | IPv6Network | None:
    """A CIDR or a bare IPv6 address; None for what may be a name or an IPv4 address."""
    if "/" not in entry:
        try:
            return IPv6Network(entry) if entry.count(":") > 1 and "[" not in entry else None
        except ValueError:
            raise _unfit(entry) from None
    try:
        return ip_network(entry)
    except ValueError as error:
        if "host bits" in str(error):
            wider = ip_network(entry, strict=False)
            raise InvalidValue(f"{entry!r} is not a whole network", hint=f"Write {wider}") from None
        raise _unfit(entry) from None


def _split_port(entry: str) -> tuple[str, int | None]:
    host, colon, port = entry.rpartition(":")
    if not colon or entry.endswith("]"):
        return entry, None
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) <= _PORT_MAX):
        raise InvalidValue(f"{entry!r} has no port from 1 to {_PORT_MAX} after its colon", hint=_FORMS)
    return host, int(port)


def _name(host: str, entry: str) -> str:
    try:
        return canonical_host(host)
    except InvalidUrl as error:
        raise InvalidValue(f"{entry[:100]!r}: {error.reason}", hint=_FORMS) from None


def _unfit(entry: str) -> InvalidValue:
    return InvalidValue(f"{entry[:100]!r} is neither a host nor a network", hint=_FORMS)


_FORMS = (
    "Write a host (git.corp, *.corp.example, git.corp:8443), an address (10.0.0.5) or a network (10.0.0.0/8)"
)
