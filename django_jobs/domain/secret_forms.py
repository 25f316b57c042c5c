"""In which forms a secret may come back: whole, in parts, decoded, and encoded anew.

A receiver that tells what it got does not quote the whole header: it may show the token behind ``Bearer``, the decoded
pair of ``Basic``, a value percent-encoded as it stood in the URL, or a signing key without its prefix.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus, unquote

SHORTEST = 4  # signs; what is shorter would be found everywhere
SIGNING_PREFIX = "whsec_"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9-]*[ ]+(?=\S)")
_VALUE = re.compile(r'=\s*"?([^"=;,&\s]+)')  # of a query
_NAMED = re.compile(r'([^"=;,&\s]*)\s*=\s*"?([^"=;,&\s]+)')  # of a cookie or a digest
_PUBLIC = frozenset({"username", "user", "realm", "uri", "algorithm", "qop", "nc", "version", "signedheaders"})  # names
_TOKEN = re.compile(r"(?=.*[0-9]).{8,}|.{16,}")  # what in a path looks made by a machine


def forms_of(secrets: Iterable[str | bytes], *, least: int = SHORTEST, in_part: bool = True) -> frozenset[str]:
    """Return all texts of at least so many signs that show one of these secrets, whole or ``in_part`` too.

    A part is a value in a cookie or a digest; what stands behind a scheme, and a password, is the secret itself.
    """
    parts = {part for secret in secrets for part in _parts(secret, in_part=in_part)}
    return frozenset(form for part in parts for form in _encoded(part) if len(part) >= least and len(form) >= least)


def secrets_of_url(path: str) -> list[str]:
    """Return what in the path and query of a URL may be a secret: the whole, values, and what looks like a token."""
    before, _, query = path.partition("?")
    values = [unquote(value) for value in _VALUE.findall(f"&{query}")]
    tokens = [unquote(segment) for segment in before.split("/") if _TOKEN.fullmatch(segment)]
    return [path, *values, *tokens] if len(before) > 1 else values


def _parts(secret: str | bytes, *, in_part: bool) -> Iterator[str | bytes]:
    yield secret
    if isinstance(secret, bytes):
        return
    if secret.startswith(SIGNING_PREFIX):
        yield secret.removeprefix(SIGNING_PREFIX)
        yield from _decoded(secret.removeprefix(SIGNING_PREFIX))
    scheme = _SCHEME.match(secret)
    if in_part:
        yield from _values(secret if scheme is None else secret[scheme.end() :])
    if scheme is None:
        return
    credentials = secret[scheme.end() :].strip()
    yield credentials
    if scheme[0].strip().lower() == "basic":
        for pair in _decoded(credentials):
            text = pair.decode("utf-8", "replace")
            yield text
            yield text.partition(":")[2]


def _values(text: str) -> list[str]:
    return [value for name, value in _NAMED.findall(text) if value.strip("=") and name.lower() not in _PUBLIC]


def _decoded(text: str) -> list[bytes]:
    try:
        return [base64.b64decode(text + "=" * (-len(text) % 4), validate=True)]
    except (binascii.Error, ValueError):
        return []


def _encoded(part: str | bytes) -> Iterator[str]:
    content = part if isinstance(part, bytes) else part.encode("utf-8", "replace")
    if isinstance(part, bytes):
        try:
            part = content.decode()
        except UnicodeDecodeError:
            part = content.decode("latin-1")
        yield content.hex()
    yield from (part, quote(part, safe=""), quote(part), quote_plus(part))
    yield part.replace("\\", "\\\\").replace('"', '\\"')
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(content).decode()
        yield from (text, text.rstrip("="), quote(text, safe=""))
