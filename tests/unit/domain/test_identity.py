"""Keys, scopes, fingerprints and provider keys."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from django_jobs.domain.identity import (
    check_key,
    check_name,
    fingerprint,
    format_key,
    is_live,
    key_fields,
    provider_key,
    request_digest,
    scope_text,
)
from django_jobs.exceptions import DefinitionError, KeyFormatError, PayloadError

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=8)


def test_fingerprint_is_the_marked_sha256_of_the_text() -> None:
    """A fingerprint can be checked in SQL: a version mark and the hex SHA-256 of exactly the stored text."""
    text = '{"order_id":7}'
    assert fingerprint(text) == "v1:" + hashlib.sha256(text.encode()).hexdigest()
    assert request_digest(text) == fingerprint(text)


@pytest.mark.parametrize("key", ["a", "order:7", "a b", "~" * 255])
def test_check_key_accepts_printable_ascii(key: str) -> None:
    """A key of 1 to 255 printable ASCII signs is returned as it is."""
    assert check_key(key) == key


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", "empty"),
        ("a" * 256, "256 signs, more than 255"),
        ("ordér", "outside printable ASCII"),
        ("a\nb", "outside printable ASCII"),
        ("a\x00", "outside printable ASCII"),
        ("a\x7f", "outside printable ASCII"),
        (" a", "starts or ends with a space"),
        ("a ", "starts or ends with a space"),
        (7, "is of type int; give text"),
        (None, "is of type NoneType"),
    ],
)
def test_check_key_refuses_what_is_no_header(key: object, words: str) -> None:
    """A key that a database or an HTTP header could change is refused with the mend."""
    with pytest.raises(KeyFormatError, match="The key") as refused:
        check_key(key)
    assert words in str(refused.value)


def test_check_name_says_what_it_checked() -> None:
    """Other stored names follow the same rule under their own name and limit."""
    assert check_name("payments", what="queue name", limit=8) == "payments"
    with pytest.raises(KeyFormatError, match="queue name has 9 signs, more than 8"):
        check_name("payments!", what="queue name", limit=8)


@pytest.mark.parametrize(
    ("template", "arguments", "key"),
    [
        ("order:{order_id}", {"order_id": 7}, "order:7"),
        ("order:{order_id}", {"order_id": "7"}, "order:7"),
        ("order:{order_id}", {"order_id": UUID(int=7)}, "order:00000000-0000-0000-0000-000000000007"),
        ("{a}:{b}", {"a": "x:y", "b": "50%"}, "x%3Ay:50%25"),
        ("{a}-{b}", {"a": "1-2", "b": 3}, "1%2D2-3"),
        ("user:{name}", {"name": "Zoë B"}, "user:Zo%C3%AB%20B"),
        ("flag:{on}", {"on": True}, "flag:true"),
        ("set:{ids}", {"ids": (1, 2)}, "set:[1,2]"),
        ("nightly", {}, "nightly"),
        ("re-charge:{a}-x", {"a": "1-2"}, "re-charge:1-2-x"),
        ("{{x}}:{a}", {"a": 1}, "{x}:1"),
    ],
)
def test_format_key_writes_values_into_the_template(template: str, arguments: dict[str, Any], key: str) -> None:
    """Values are written as in the payload, encoded where they could be taken for the template."""
    assert format_key(template, arguments) == key


@pytest.mark.parametrize("template", ["{a}:{b}", "{a}-{b}", "x{a}y/{b}z", "{a}x-1{b}", "{a}, {b}", "{a}{{{b}"])
@given(one=st.tuples(TEXTS, TEXTS), other=st.tuples(TEXTS, TEXTS))
def test_format_key_never_gives_two_values_one_key(template: str, one: tuple[str, str], other: tuple[str, str]) -> None:
    """Whatever the values hold, two different lists of values make two keys."""
    assume(one != other)
    keys = [format_key(template, {"a": a, "b": b}) for a, b in (one, other)]
    assert keys[0] != keys[1]


@given(parts=st.lists(st.sampled_from([":", "-", "%", "%3A", "2D", "3", "A", "a:", ":a"]), min_size=2, max_size=6))
def test_format_key_keeps_values_apart_that_share_their_signs(parts: list[str]) -> None:
    """However one row of signs is cut into two values, each cut has its own key."""
    cuts = {("".join(parts[:at]), "".join(parts[at:])) for at in range(1, len(parts))}
    for template in ("{a}:{b}", "{a}-{b}", "{a}3-A{b}"):
        keys = {format_key(template, {"a": a, "b": b}) for a, b in cuts}
        assert len(keys) == len(cuts)


@pytest.mark.parametrize("value", [None, ""])
def test_format_key_refuses_an_empty_value(value: object) -> None:
    """A missing id would make strangers duplicates of each other."""
    with pytest.raises(PayloadError, match="order_id is empty"):
        format_key("order:{order_id}", {"order_id": value})


def test_format_key_refuses_a_missing_argument_and_a_long_result() -> None:
    """A key needs all its arguments and the length of a key."""
    with pytest.raises(DefinitionError, match="needs the argument 'order_id'"):
        format_key("order:{order_id}", {})
    with pytest.raises(KeyFormatError, match="more than 255"):
        format_key("order:{order_id}", {"order_id": "é" * 100})


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("order:{order.id}", "plain argument name"),
        ("order:{order[0]}", "plain argument name"),
        ("order:{}", "plain argument name"),
        ("order:{0}", "plain argument name"),
        ("order:{a!r}", "plain argument name"),
        ("order:{a:>10}", "plain argument name"),
        ("order:{a", "cannot be read"),
        ("{a}{b}", "no separator before {b}"),
        ("{a}x1{b}", "no separator before {b}"),
        ("{a}%{b}", "no separator before {b}"),
    ],
)
def test_key_fields_refuses_a_template_that_cannot_be_trusted(template: str, words: str) -> None:
    """A template that is not plain, or that could give two argument lists one key, is refused where it is written."""
    with pytest.raises(DefinitionError) as refused:
        key_fields(template)
    assert words in str(refused.value)


def test_key_fields_names_the_arguments_and_refuses_unknown_ones() -> None:
    """The fields are checked against the handler's parameters, and the message lists those."""
    assert key_fields("a:{x}:{y}", parameters=["y", "x", "z"]) == ("x", "y")
    assert key_fields("nightly") == ()
    with pytest.raises(DefinitionError, match=r"names 'x', which the handler does not take; it takes a, b\."):
        key_fields("a:{x}", parameters=["b", "a"])
    with pytest.raises(DefinitionError, match="it takes nothing"):
        key_fields("a:{x}", parameters=[])


@given(one=st.tuples(st.text(max_size=6), TEXTS), other=st.tuples(st.text(max_size=6), TEXTS))
def test_scope_text_is_one_text_per_tenant_and_scope(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Two pairs of tenant and scope never share a text."""
    assume("\ud800" not in "".join(one + other))
    assume(one != other)
    try:
        texts = scope_text(*one), scope_text(*other)
    except UnicodeEncodeError:
        assume(False)
    assert texts[0] != texts[1]


def test_scope_text_keeps_a_slash_of_the_tenant_apart() -> None:
    """A slash belongs to the tenant or to the scope, and that stays visible."""
    assert scope_text("a/b", "c") == "a%2Fb/c"
    assert scope_text("a", "b/c") == "a/b/c"
    assert scope_text("", "shop.charge") == "/shop.charge"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"unfinished": True}, True),
        ({"unfinished": True, "finished_at": NOW - 9 * DAY, "expires_at": NOW - DAY}, True),
        ({"finished_at": NOW - DAY, "ttl": 2 * DAY}, True),
        ({"finished_at": NOW - DAY, "ttl": DAY}, False),
        ({"finished_at": NOW - 99 * DAY, "ttl": None}, True),
        ({"finished_at": None, "ttl": DAY}, True),
        ({"finished_at": None, "expires_at": NOW + DAY}, True),
        ({"finished_at": None, "expires_at": NOW}, False),
        ({"finished_at": NOW, "ttl": 9 * DAY, "expires_at": NOW - DAY}, False),
    ],
)
def test_is_live_derives_the_life_of_a_key(facts: dict[str, Any], expected: bool) -> None:
    """A key lives while its job is unfinished, then for its time to live, and pruning has the last word."""
    defaults: dict[str, Any] = {"unfinished": False, "finished_at": None, "ttl": DAY, "expires_at": None, "now": NOW}
    assert is_live(**{**defaults, **facts}) is expected


def key_of(**changes: Any) -> str:
    """Make a provider key of quiet defaults."""
    facts: dict[str, Any] = {
        "namespace": "n",
        "tenant": "",
        "provider": "payments",
        "business_key": "order:7",
        "effect_name": "charge",
        "epoch": 0,
    }
    return provider_key(**{**facts, **changes})


def test_provider_key_is_stable_for_ever() -> None:
    """The form is part of the contract: a new release must send the key that an old one sent."""
    joined = b"1:n0:8:payments7:order:76:charge1:0"
    assert key_of() == "dj1_" + hashlib.sha256(joined).hexdigest()[:40]


def test_provider_key_changes_with_every_part() -> None:
    """Each part of the identity makes another key, and moving a sign between parts does too."""
    keys = {
        key_of(),
        key_of(namespace="m"),
        key_of(tenant="t"),
        key_of(provider="payment"),
        key_of(business_key="order:8"),
        key_of(effect_name="refund"),
        key_of(epoch=1),
        key_of(business_key="order:7c", effect_name="harge"),
        key_of(namespace="", tenant="n"),
    }
    assert len(keys) == 9


def test_provider_key_fits_what_the_provider_allows() -> None:
    """A provider may want a UUID or a shorter key; too short a key is refused."""
    assert str(UUID(key_of(alphabet="uuid"))) == key_of(alphabet="uuid")
    assert key_of(max_length=24) == key_of()[:24]
    with pytest.raises(DefinitionError, match="too short; allow 24 or more"):
        key_of(max_length=23)
    with pytest.raises(DefinitionError, match="too short; allow 36 or more"):
        key_of(alphabet="uuid", max_length=35)
