"""Where webhooks may go: public addresses only, and URLs that say no more than host, port and path."""

from __future__ import annotations

import ipaddress

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.exceptions import DefinitionError
from django_jobs.outbox.publishers.addresses import is_public, parse_target
from django_jobs.outbox.publishers.webhook import Webhook

SECRET = b"0123456789abcdef0123456789abcdef"

NOT_PUBLIC = [
    "0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "169.254.169.254",
    "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
    "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16",
    "::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1",
    "2001::1", "2001:2::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::1", "3fff::1", "5f00::1", "fc00::1",
    "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "2606:4700::1%eth0", "", "localhost", "1.2.3", "0x7f.1",
]  # fmt: skip


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_address_that_is_not_for_everybody_is_refused(address: str) -> None:
    """Loopback, private, link-local, shared, reserved, multicast, metadata, and IPv4 in the clothes of IPv6."""
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.216.34", "100.128.0.1", "172.32.0.1", "2606:4700::1", "2a00:1450::5"]
)
def test_address_for_everybody_is_accepted(address: str) -> None:
    """The neighbours of the refused ranges are public."""
    assert is_public(address)


@given(st.ip_addresses())
def test_what_the_standard_library_calls_private_is_never_public(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    """The list written here is at least as strict as the one that comes with Python."""
    if (
        address.is_private
        or address.is_multicast
        or address.is_reserved
        or address.is_link_local
        or address.is_loopback
    ):
        assert not is_public(str(address))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://h.example/", "must begin with https"),
        ("ftp://h.example/", "must begin with https"),
        ("//h.example/", "must begin with https"),
        ("h.example/path", "must begin with https"),
        ("file:///etc/passwd", "must begin with https"),
        ("https://", "must name a host"),
        ("https:///path", "must name a host"),
        ("https://user@h.example/", "user or a password"),
        ("https://user:secret@h.example/", "user or a password"),
        ("https://h.example\\@evil.example/", "user or a password"),
        ("https://h.example/#part", "after '#'"),
        ("https://a b.example/", "must name a host"),
        ("https://h..example/", "must name a host"),
        ("https://0177.0.0.1/", "cannot be read"),
        ("https://-h.example/", "must name a host"),
        ("https://[fe80::1%25eth0]/", "must name a host"),
        ("https://h.example:22/", "has port 22"),
        ("https://h.example:0/", "has port 0"),
        ("https://h.example:99999/", r"has port 99999|cannot be read"),
        ("https://h.example:port/", "cannot be read"),
        ("https://xn--/", r"cannot be read|must name a host"),
        ("https://h.example/\r\nX-Evil: 1", "cannot be read"),
        ("https://h.example\x00/", "cannot be read"),
        ("", "begins with https"),
        (None, "begins with https"),
        ("https://" + "a." * 200 + "example/", r"must name a host|cannot be read"),
    ],
)  # fmt: skip
def test_url_that_could_mean_something_else_is_refused(url: object, why: str) -> None:
    """At the declaration, with a message that never shows a password."""
    with pytest.raises(DefinitionError, match=why) as refused:
        Webhook(url, secrets=SECRET)  # type: ignore[arg-type]

    assert "secret@" not in str(refused.value)


def test_url_in_parts() -> None:
    """International names are asked for in their ASCII form, IPv6 stands in brackets, usual ports are not told."""
    umlaut = parse_target(httpx.URL("https://Bücher.example/ü?a=b"), allow_http=False, ports=None)
    six = parse_target(httpx.URL("https://[2606:4700::1]:8443"), allow_http=False, ports=None)
    plain = parse_target(httpx.URL("http://h_1.example:8080/x"), allow_http=True, ports=None)

    assert (umlaut.host, umlaut.port, umlaut.host_header) == ("xn--bcher-kva.example", 443, "xn--bcher-kva.example")
    assert umlaut.path == b"/%C3%BC?a=b"
    assert (six.host, six.host_header, six.path) == ("2606:4700::1", "[2606:4700::1]:8443", b"/")
    assert plain.host_header == "h_1.example:8080"
    assert parse_target(httpx.URL("https://h.example:22/"), allow_http=False, ports=[22]).port == 22
