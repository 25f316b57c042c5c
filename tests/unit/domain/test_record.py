"""What is kept of an exception."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.domain.errors import ErrorRecord, describe


class SilentError(Exception):
    """An exception whose text cannot be made."""

    def __str__(self) -> str:
        raise SystemExit("no text for you")


class WrongTextError(Exception):
    """An exception whose text is no text."""

    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


def raised(make: Callable[[], BaseException]) -> BaseException:
    """Raise what ``make`` returns, so that it has a traceback through this file."""
    try:
        raise make()
    except BaseException as error:
        return error


def raised_elsewhere(make: Callable[[], BaseException]) -> BaseException:
    """Do the same in another function."""
    try:
        raise make()
    except BaseException as error:
        return error


def record_of(make: Callable[[], BaseException]) -> ErrorRecord:
    """Raise and describe."""
    return describe(raised(make))


def test_describe_keeps_type_message_and_traceback() -> None:
    """The record names the exception, its text and where it came from, in text that ends with the message."""
    record = record_of(lambda: ValueError("no such coupon"))
    assert (record.type, record.message) == ("ValueError", "no such coupon")
    assert record.traceback.startswith("Traceback (most recent call last):")
    assert record.traceback.rstrip().endswith("ValueError: no such coupon")
    assert describe(json.JSONDecodeError("bad", "x", 0)).type == "json.decoder.JSONDecodeError"


@pytest.mark.parametrize("kind", [SilentError, WrongTextError])
def test_describe_survives_an_exception_without_text(kind: type[Exception]) -> None:
    """An exception whose text cannot be made is kept with a note instead."""
    record = record_of(kind)
    assert "__str__ raised" in record.message
    assert kind.__name__ in record.traceback


def test_describe_survives_a_deep_recursion() -> None:
    """A RecursionError is described within its limits."""

    def fall() -> None:
        fall()

    with pytest.raises(RecursionError) as caught:
        fall()
    record = describe(caught.value)
    assert record.type == "RecursionError"
    assert len(record.traceback.encode()) <= 8192


def test_describe_never_keeps_local_variables() -> None:
    """The traceback shows no values of variables."""
    hidden = "canary" + "-4711"
    record = record_of(lambda: ValueError(f"has {len(hidden)} signs"))
    assert "canary-4711" not in record.traceback


@given(text=st.text(alphabet=st.characters(), max_size=300), limit=st.integers(min_value=1, max_value=200))
def test_describe_keeps_only_what_every_database_can_store(text: str, limit: int) -> None:
    """No NUL, no lone surrogate and never more bytes than the limit, whatever the message was."""
    record = describe(ValueError(text), limit=limit)
    for kept in (record.message, record.traceback):
        assert len(kept.encode("utf-8")) <= limit
        assert "\x00" not in kept


def test_describe_cuts_a_huge_message_with_a_note() -> None:
    """A huge text is cut at the limit, says how long it was, and the traceback keeps its head and its end."""
    record = record_of(lambda: ValueError("é" * 1_000_000 + "\nthe end"))
    assert len(record.message.encode()) <= 8192
    assert "bytes in all]" in record.message
    assert record.traceback.startswith("Traceback")
    assert record.traceback.rstrip().endswith("the end")


def test_describe_redacts_before_it_cuts() -> None:
    """The redaction sees the text first, and what it returns is made storable again."""
    record = describe(ValueError("pin 1234"), redact=lambda text: text.replace("1234", "\x00***"))
    assert record.message == "pin \\x00***"
    assert "1234" not in record.traceback


def test_describe_keeps_nothing_that_could_not_be_redacted() -> None:
    """A redaction that fails hides the text instead of letting it through."""

    def broken(text: str) -> str:
        raise ValueError(text)

    record = describe(ValueError("pin 1234"), redact=broken)
    assert "1234" not in record.message + record.traceback
    assert "redaction failed" in record.message


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 is gone", "order 4711 is gone"),
        ("no user 'ann'", "no user 'bob'"),
        ('no user "ann"', 'no user "bob"'),
        ("id 018f3c5e-7d2a-7cc0-8f11-0123456789ab", "id 018f3c5e-ffff-7cc0-8f11-0123456789ab"),
        ("at 0x7f00aa", "at 0x7f00bb"),
        ("digest deadbeef01", "digest 0badcafe99"),
        ("took 1.5 s", "took 22.75   s"),
    ],
)
def test_fingerprint_folds_what_differs_between_occurrences(one: str, other: str) -> None:
    """Numbers, ids, hex and quoted values do not split a group of equal failures."""
    assert record_of(lambda: ValueError(one)).fingerprint == record_of(lambda: ValueError(other)).fingerprint


def test_fingerprint_tells_different_failures_apart() -> None:
    """Another type, text, place or member of a group is another failure."""
    base = record_of(lambda: ValueError("no coupon")).fingerprint
    assert base.startswith("v1:")
    others = {
        record_of(lambda: KeyError("no coupon")).fingerprint,
        record_of(lambda: ValueError("no order")).fingerprint,
        describe(raised_elsewhere(lambda: ValueError("no coupon"))).fingerprint,
        record_of(lambda: ExceptionGroup("several", [ValueError("no coupon")])).fingerprint,
        record_of(lambda: ExceptionGroup("several", [ExceptionGroup("in", [KeyError("x")])])).fingerprint,
        describe(ValueError("no coupon")).fingerprint,
    }
    assert len(others | {base}) == 7


def test_fingerprint_does_not_depend_on_the_line() -> None:
    """The same failure of the same function in moved code is the same failure."""
    source = "def handler():\n{blank}    raise ValueError('no coupon')\n"
    found = set()
    for blank in ("", "\n\n    x = 1\n"):
        scope: dict[str, Callable[[], None]] = {"__name__": "shop.jobs"}  # type: ignore[dict-item]
        exec(compile(source.format(blank=blank), "/srv/shop/jobs.py", "exec"), scope)
        with pytest.raises(ValueError) as caught:
            scope["handler"]()
        found.add(describe(caught.value).fingerprint)
    assert len(found) == 1


def test_fingerprint_points_at_the_users_own_code() -> None:
    """Frames of libraries below the user's code do not split a group: the same mistake stays one failure."""
    bodies = ("json.loads('{{')", "json.JSONDecoder().decode('{{')")
    found = set()
    for body in bodies:
        scope: dict[str, Callable[[], None]] = {"__name__": "shop.jobs"}  # type: ignore[dict-item]
        exec(compile(f"import json\ndef handler():\n    {body}\n", "/srv/shop/jobs.py", "exec"), scope)
        with pytest.raises(json.JSONDecodeError) as caught:
            scope["handler"]()
        found.add(describe(caught.value).fingerprint)
    assert len(found) == 1


def test_fingerprint_points_past_the_package_itself() -> None:
    """Where inside this package an error was raised does not split a group of the user's failures."""
    found = set()
    for internal in ("renew", "finish"):
        scope: dict[str, Callable[[], None]] = {"__name__": "django_jobs.worker.context"}  # type: ignore[dict-item]
        exec(compile(f"def {internal}():\n    raise ValueError('no lease')\n", "/srv/lib/context.py", "exec"), scope)
        with pytest.raises(ValueError) as caught:
            scope[internal]()
        found.add(describe(caught.value).fingerprint)
    assert len(found) == 1


def test_fingerprint_of_a_wide_group_looks_at_a_bounded_number_of_members() -> None:
    """A group with very many members is described in bounded work."""
    group = ExceptionGroup("many", [ValueError("a")] * 5000)
    assert describe(group).fingerprint == describe(ExceptionGroup("many", [ValueError("a")] * 4000)).fingerprint
