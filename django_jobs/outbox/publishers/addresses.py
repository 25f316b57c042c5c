"""Where a webhook may go: what its URL may be, and which addresses of the network are public.

A URL that somebody else chose must not make this site talk to itself or to its neighbours. So the name is looked up
once, every address that it has is checked, and the connection goes to one of those: there is no second look-up.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django_jobs.exceptions import DefinitionError

PORTS = {"https": frozenset({443, 8443}), "http": frozenset({80, 8080})}
_DEFAULT_PORT = {"https": 443, "http": 80}
_NAME = re.compile(
    r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.?", re.ASCII
)

# Not for everybody on the Internet, by the registries of special-purpose addresses; written out, because what the
# standard library calls global differs between its versions.
_RESERVED_4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
        *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",  # a public address that answers for the host of a virtual machine
    )
)
# Of IPv6 only this part is for everybody; IPv4 in other clothes (mapped, NAT64) lies outside of it,
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")
# or in here (Teredo, 6to4), with protocol assignments and addresses for documents.
_RESERVED_6 = tuple(ipaddress.IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))


def is_public(address: str) -> bool:
    """Say whether an address that a look-up returned belongs to the public Internet; what cannot be read does not."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv4Address):
        return not any(found in network for network in _RESERVED_4)
    return found.scope_id is None and found in _GLOBAL_6 and not any(found in network for network in _RESERVED_6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A checked URL in parts: what is connected to, and what is asked for there."""

    scheme: str
    host: str
    port: int
    path: bytes

    @property
    def place(self) -> str:
        """Host and port: what may be told. The path is not told, it can hold a secret."""
        return f"{self.host}:{self.port}"

    @property
    def host_header(self) -> str:
        """The value of the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORT[self.scheme] else f"{host}:{self.port}"


def parse_target(url: Any, *, allow_http: bool, ports: Collection[int] | None) -> Target:
    """Check a URL, which was parsed by the one parser that is used here (``httpx.URL``).

    Raises:
        DefinitionError: It is not https, names no host, carries a user or a password, or another port than is allowed.
    """
    if url.scheme not in PORTS or (url.scheme == "http" and not allow_http):
        msg = f"The URL of a webhook must begin with https://, not {url.scheme}://; allow_http=True permits http."
        raise DefinitionError(msg)
    if url.userinfo:
        msg = "The URL of a webhook must not carry a user or a password; give headers= instead."
        raise DefinitionError(msg)
    if url.fragment:
        msg = "The URL of a webhook must not have a part after '#'; it would not be sent."
        raise DefinitionError(msg)
    host = url.raw_host.decode("ascii", "replace")
    if not _is_host(host):
        msg = f"The URL of a webhook must name a host, not {host[:80]!r}."
        raise DefinitionError(msg)
    port = _DEFAULT_PORT[url.scheme] if url.port is None else url.port
    allowed = frozenset(ports) if ports is not None else PORTS[url.scheme]
    if port not in allowed or not 0 < port < 65536:
        msg = f"The URL of a webhook has port {port}; allowed are {', '.join(map(str, sorted(allowed)))} (see ports=)."
        raise DefinitionError(msg)
    return Target(scheme=url.scheme, host=host, port=port, path=url.raw_path)


def _is_host(host: str) -> bool:
    if ":" not in host:
        return len(host) <= 253 and _NAME.fullmatch(host) is not None
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return "%" not in host
