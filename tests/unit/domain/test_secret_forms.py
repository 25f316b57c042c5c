"""In which forms a secret is recognised when somebody quotes it."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest

from django_jobs.domain.secret_forms import forms_of, secrets_of_url

PAIR = "shop:pa/ss w0rd"
BASIC = f"Basic {base64.b64encode(PAIR.encode()).decode()}"
KEY = b"24 bytes of a signing key"
SIGNING = "whsec_" + base64.b64encode(KEY).decode()


@pytest.mark.parametrize(
    ("secret", "form"),
    [
        ("Bearer tok_12345", "Bearer tok_12345"),
        ("Bearer tok_12345", "tok_12345"),
        ("tok/12 45", quote("tok/12 45", safe="")),
        ("tok/12 45", "tok%2F12+45"),
        ('tok"12', 'tok\\"12'),
        ("tok_12345", base64.b64encode(b"tok_12345").decode().rstrip("=")),
        (BASIC, BASIC.removeprefix("Basic ")),
        (BASIC, PAIR),
        (BASIC, "pa/ss w0rd"),
        (BASIC, quote("pa/ss w0rd", safe="")),
        (SIGNING, SIGNING),
        (SIGNING, SIGNING.removeprefix("whsec_")),
        (SIGNING, KEY.decode()),
        (SIGNING, KEY.hex()),
        (b"\xff\xfe\xfd\xfc", "fffefdfc"),
        (KEY, base64.b64encode(KEY).decode()),
        ("session=abc123; theme=dark1", "abc123"),
        ('Digest username="shop", response="0123abcd"', "0123abcd"),
    ],
)
def test_secret_is_recognised(secret: str | bytes, form: str) -> None:
    """Whole, in parts, decoded and encoded anew."""
    assert form in forms_of([secret])


@pytest.mark.parametrize("text", ["Bearer", "Basic", "whsec_", "shop", ""])
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    """Names of schemes, the prefix of signing secrets and the user's name are told."""
    assert text not in forms_of([BASIC, SIGNING, "Bearer tok_12345"])


def test_credentials_that_cannot_be_decoded_are_recognised_as_they_are() -> None:
    """Basic without base64 is still a secret."""
    assert {"Basic no base64!", "no base64!"} <= forms_of(["Basic no base64!"])


def test_short_parts_are_left_alone() -> None:
    """A secret of a few signs would be found in every number."""
    assert forms_of(["abc", "Bearer 12"]) == forms_of(["Bearer 12"])
    assert "12" not in forms_of(["Bearer 12"])
    assert "12345" not in forms_of(["Bearer 12345"], least=6)


def test_tokens_in_a_url_are_found() -> None:
    """The whole path is secret, and so are its values and what looks made by a machine; its words are not."""
    found = secrets_of_url("/services/hooks/T0001B0002XYZ/a%2Fb%20secret1?key=k%2F123456&page=2")

    assert {"T0001B0002XYZ", "a/b secret1", "k/123456"} <= set(found)
    assert {"services", "hooks"} & set(found) == set()
    assert secrets_of_url("/") == []


def test_names_in_a_digest_are_no_secrets() -> None:
    """Whose credential it is, and what it is for, is told; what proves it is not."""
    found = forms_of(['Digest username="shop-main", realm="payments", uri="/v1/charges", response="0123abcd"'])

    assert "0123abcd" in found
    assert not {"shop-main", "payments", "/v1/charges"} & found


def test_parts_can_be_left_out() -> None:
    """Then only the whole of a cookie is found, and a token and a password as before."""
    found = forms_of(["tenant=shop-eu; session=abc123", "Bearer tok_12345", BASIC], in_part=False)

    assert {"tenant=shop-eu; session=abc123", "tok_12345", PAIR, "pa/ss w0rd"} <= found
    assert not {"shop-eu", "abc123"} & found
