"""Masking of secrets."""

from __future__ import annotations

import json
import string
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.domain.redaction import DEFAULT_NAMES, MASK, Redactor
from django_jobs.exceptions import DefinitionError

REDACTOR = Redactor()
CANARY = "c4n4ry-4711"


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "PASSWORD",
        "userPassword",
        "db_password_2",
        "passwords",
        "X-Api-Key",
        "stripeApiKey",
        "apikey",
        "Authorization",
        "accesstoken",
        "card",
        "cards",
        "card_number",
        "cardNumber",
        "creditCard",
        "CVV",
        "cvv2",
        "user.pin",
        "Set-Cookie",
    ],
)
def test_hides_a_secret_name_in_every_spelling(name: str) -> None:
    """A secret name is found whatever its case and whatever it is joined with."""
    assert REDACTOR.hides(name)
    assert REDACTOR.value({name: CANARY}) == {name: MASK}


@pytest.mark.parametrize("name", ["order_id", "shipping", "discard", "company", "cardinal", "postcard", "spine", "key"])
def test_hides_no_word_that_only_contains_a_short_name(name: str) -> None:
    """Ordinary words are left alone although short secret names occur in them."""
    assert not REDACTOR.hides(name)
    assert REDACTOR.value({name: 7}) == {name: 7}


def test_value_masks_at_any_depth_and_changes_nothing_else() -> None:
    """Whole branches under a secret key are masked; the rest, and a missing secret, stay as they are."""
    value = {
        "order": {"id": 7, "lines": [{"price": "10.00", "card": {"number": CANARY, "month": 3}}]},
        "tokens": [CANARY, CANARY],
        "secret": None,
        "note": f"call with token={CANARY} please",
        "pair": (1, True),
    }
    assert REDACTOR.value(value) == {
        "order": {"id": 7, "lines": [{"price": "10.00", "card": MASK}]},
        "tokens": MASK,
        "secret": None,
        "note": f"call with token={MASK} please",
        "pair": [1, True],
    }
    assert value["order"]["lines"][0]["card"]["number"] == CANARY  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password=SECRET", "password=[redacted]"),
        ("password: SECRET, user: ann", "password: [redacted], user: ann"),
        ("password = 'SECRET' user=ann", "password = [redacted] user=ann"),
        ('password="SEC \\" RET" user=ann', "password=[redacted] user=ann"),
        ('{"password": "SECRET", "id": 7}', '{"password": [redacted], "id": 7}'),
        ('{"cvv":123,"id":7}', '{"cvv":[redacted],"id":7}'),
        ("{'token': b'SECRET', 'id': 7}", "{'token': [redacted], 'id': 7}"),
        ('{\\"password\\": \\"SECRET\\", \\"id\\": 7}', '{\\"password\\": [redacted], \\"id\\": 7}'),
        ('tokens: ["SECRET", "SECRET"] x', "tokens: [redacted] x"),
        ("secret={'a': 'SECRET'} x", "secret=[redacted] x"),
        ("environ['DB_PASSWORD'] = 'SECRET'", "environ['DB_PASSWORD'] = [redacted]"),
        ("password=SecretStr('SECRET') x", "password=[redacted] x"),
        ("Authorization: Bearer SECRET\nHost: x", "Authorization: [redacted]\nHost: x"),
        ("Authorization: Basic SECRET==, x\ny", "Authorization: [redacted]\ny"),
        ("authorization='Basic SECRET==' x", "authorization=[redacted] x"),
        ("Cookie: a=SECRET; b=SECRET\nHost: x", "Cookie: [redacted]\nHost: x"),
        ("{'Set-Cookie': 'a=SECRET; b=SECRET', 'Host': 'x'}", "{'Set-Cookie': [redacted], 'Host': 'x'}"),
        ("sent Bearer SECRET to x", "sent Bearer [redacted] to x"),
        ("postgres://ann:SECRET@db/shop", "postgres://[redacted]@db/shop"),
        ("https://SECRET@git.example/x", "https://[redacted]@git.example/x"),
        ("redis://:SE@CRET@db:6379/0", "redis://[redacted]@db:6379/0"),
        ("GET /x?id=7&key=SECRET&b=1", "GET /x?id=7&key=[redacted]&b=1"),
        ("GET /x?token=SECRET&b=1", "GET /x?token=[redacted]&b=1"),
        ("https://x.example/y?sig=SECRET", "https://x.example/y?sig=[redacted]"),
        ("jwt eyJhbGciOi.eyJzdWIi.SECRET end", "jwt [redacted] end"),
        ("-----BEGIN RSA PRIVATE KEY-----\nSECRET\n-----END RSA PRIVATE KEY----- end", "[redacted] end"),
        ("-----BEGIN PRIVATE KEY-----\nSECRET", "[redacted]"),
        ("https://shop.example/orders/7", "https://shop.example/orders/7"),
        ("KeyError: 'password'", "KeyError: 'password'"),
        ("the token has expired", "the token has expired"),
        ("shipping: fast", "shipping: fast"),
    ],
)
def test_text_masks_what_stands_after_a_secret_name(text: str, expected: str) -> None:
    """Pairs, headers, URLs and keys lose their secret and keep what tells a reader where it stood."""
    assert REDACTOR.text(text) == expected


@pytest.mark.parametrize(
    "shape",
    [
        "{name}={secret}",
        "{name}: {secret}",
        "x {name} = {secret}, y",
        "call({name}='{secret}', y=1)",
        '{{"{name}": "{secret}"}}',
        '{{"a": {{"{name}" : "{secret}"}}}}',
        "{{'{name}': '{secret}'}}",
        "https://x.example/?a=1&{name}={secret}&b=2",
        "Traceback:\n  login({name}={secret})\nValueError: bad {name}: {secret}",
    ],
)
@given(
    name=st.sampled_from(sorted(DEFAULT_NAMES)),
    middle=st.text(alphabet=string.ascii_letters + "-_.~+/!$%|", max_size=9),
)
def test_text_lets_no_canary_through(shape: str, name: str, middle: str) -> None:
    """Under every default name and in every shape the secret is gone, whatever signs it has."""
    masked = REDACTOR.text(shape.format(name=name, secret=f"a{middle}{CANARY}"))
    assert CANARY not in masked
    assert MASK in masked


@given(
    st.recursive(
        st.integers() | st.text(max_size=5) | st.none(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "token", "b"]), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    st.sampled_from(sorted(DEFAULT_NAMES)),
)
def test_value_lets_no_canary_through(value: Any, name: str) -> None:
    """A secret under a secret key is gone at any depth, and masking twice changes nothing more."""
    planted = {"outer": [value, {name: {"inner": [CANARY, value]}}]}
    masked = REDACTOR.value(planted)
    assert CANARY not in json.dumps(masked)
    assert REDACTOR.value(masked) == masked


@given(st.text(max_size=200))
def test_text_is_stable(text: str) -> None:
    """What has been masked once is not changed by masking again."""
    once = REDACTOR.text(text)
    assert REDACTOR.text(once) == once


@pytest.mark.parametrize(
    "text",
    ["a" * 200_000, "password" * 25_000, "password=" * 20_000, 'token="' * 20_000, "\\" * 200_000, "token=[" * 20_000],
)
def test_text_is_masked_in_reasonable_time(text: str) -> None:
    """No text makes the masking slow, however it is built."""
    began = time.perf_counter()
    assert isinstance(REDACTOR.text(text), str)
    assert time.perf_counter() - began < 5


def test_own_names_replace_the_default() -> None:
    """A project may give its own names, and none at all means only the fixed shapes are masked."""
    own = Redactor(["patient", "tax-number"])
    assert own.value({"patientName": "x", "taxNumber": 7, "password": 1}) == {
        "patientName": MASK,
        "taxNumber": MASK,
        "password": 1,
    }
    assert Redactor([]).text("password=x Bearer abc") == f"password=x Bearer {MASK}"


@pytest.mark.parametrize("name", ["", "  ", 7])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    """A name that could never match is refused where it is set."""
    with pytest.raises(DefinitionError, match="give text"):
        Redactor([name])
