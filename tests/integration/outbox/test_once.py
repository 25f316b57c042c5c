"""``inbox.once()``: the row and the effect of a message in one transaction of the caller."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.db import transaction

from django_jobs import inbox
from django_jobs.exceptions import DefinitionError, KeyFormatError, OutsideTransactionError, PayloadError
from django_jobs.models import InboxMessage, Quarantine
from testproject.shop.models import Order
from tests.scenes import Told

commits = pytest.mark.django_db(transaction=True)


def act(message_id: str = "evt_1", *, fails: bool = False, **options: Any) -> bool:
    """Write an order the first time that the message comes; returns whether it was."""
    with inbox.once("orders", "shop", message_id, **options) as first:
        if first:
            Order.objects.create(number=uuid.uuid4().hex[:20], customer="ann", amount=5, card="card_ok")
        if fails:
            raise RuntimeError("the effect failed")
    return first


def counts() -> tuple[int, int]:
    """Return how many effects and how many rows there are."""
    return Order.objects.count(), InboxMessage.objects.count()


@commits
def test_effect_happens_the_first_time_only() -> None:
    """Again and again the message comes, and the effect is there once."""
    with Told() as told:
        for expected in (True, False, False):
            with transaction.atomic():
                assert act() is expected

    assert counts() == (1, 1)
    assert InboxMessage.objects.get().job_id is None
    assert [event for event, _ in told.events] == ["inbox.taken", "inbox.duplicate", "inbox.duplicate"]


@commits
def test_outside_of_a_transaction_it_is_refused() -> None:
    """Row and effect would commit apart, and a crash between them would lose or double the effect."""
    with pytest.raises(OutsideTransactionError, match="use atomic"):
        act()

    assert counts() == (0, 0)


@commits
def test_rollback_of_the_caller_undoes_both() -> None:
    """The message counts as not taken, so it is taken when it comes again."""
    with transaction.atomic():
        act()
        transaction.set_rollback(True)
    assert counts() == (0, 0)

    with transaction.atomic():
        assert act() is True
    assert counts() == (1, 1)


@commits
def test_error_in_the_block_undoes_both_though_the_caller_goes_on() -> None:
    """A caller that catches the error and commits does not commit a row without its effect."""
    with transaction.atomic():
        with pytest.raises(RuntimeError, match="the effect failed"):
            act(fails=True)
        assert act("evt_2") is True

    assert counts() == (1, 1)
    with transaction.atomic():
        assert act() is True


@commits
def test_other_content_is_put_aside_and_no_effect() -> None:
    """The first content counts; without content nothing is compared."""
    with transaction.atomic():
        assert act(data={"n": 1}) is True
        assert act(data={"n": 2}) is False
        assert act(data=b"{") is False
        assert act(data={"n": 1}) is False
        assert act() is False

    assert counts() == (1, 1)
    assert set(Quarantine.objects.values_list("data", flat=True)) == {'{"n":2}', "{"}


@commits
def test_message_first_met_without_content_is_compared_with_nothing() -> None:
    """A digest that was never written refuses nobody."""
    with transaction.atomic():
        assert act() is True
        assert act(data={"n": 2}) is False

    assert Quarantine.objects.count() == 0


@commits
def test_same_as_says_what_counts() -> None:
    """As for ``receive``."""
    with transaction.atomic():
        for sent_at, expected in ((1, True), (2, False)):
            assert act(data={"n": 1, "sent_at": sent_at}, same_as=lambda data: data["n"]) is expected

    assert Quarantine.objects.count() == 0


@commits
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"message_id": "a\x00"}, KeyFormatError),
        ({"message_id": "x" * 256}, KeyFormatError),
        ({"keep": 5}, DefinitionError),
        ({"using": "nowhere"}, DefinitionError),
        ({"data": {1, 2}}, PayloadError),
    ],
)
def test_bad_input_is_refused_before_any_sql(options: dict[str, Any], error: type[Exception]) -> None:
    """The caller's transaction goes on."""
    with transaction.atomic():
        with pytest.raises(error):
            act(**options)
        assert act("evt_2") is True

    assert counts() == (1, 1)
