"""The same message from many sides at one moment: taken once, and nobody sees an error."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from django.db import connection, transaction

from django_jobs import inbox, receive
from django_jobs.models import IdempotencyKey, InboxMessage, Job, Quarantine
from django_jobs.operate.verify import verify
from testproject.shop.models import Order
from tests.crowd import meanwhile, together
from tests.databases import Server
from tests.declared_consumers import on_payment

commits = pytest.mark.django_db(transaction=True)
DATA = {"order": 7}


def _outcomes(results: list[Any]) -> Counter[str]:
    assert [result for result in results if isinstance(result, Exception)] == []
    return Counter(result.outcome for result in results)


@commits
def test_f21_fifty_of_one_message_at_a_barrier_make_one_job(server: Server) -> None:
    """F21: one creates the job, forty-nine are duplicates with its id, and none is an exception."""
    results = together(*[lambda: receive("payments", "evt_1", DATA, consumer=on_payment)] * 50)

    assert _outcomes(results) == {"created": 1, "duplicate": 49}
    assert {result.job_id for result in results} == {Job.objects.get().pk}
    assert InboxMessage.objects.count() == IdempotencyKey.objects.count() == 1
    assert verify(using="default").violated == ()


@commits
def test_fifty_of_one_message_in_transactions_of_their_own_make_one_job(server: Server) -> None:
    """The same when every caller has a transaction open, as a view under ATOMIC_REQUESTS has."""

    def call() -> Any:
        with transaction.atomic():
            return receive("payments", "evt_1", DATA, consumer=on_payment)

    assert _outcomes(together(*[call] * 50)) == {"created": 1, "duplicate": 49}
    assert Job.objects.count() == InboxMessage.objects.count() == 1


@commits
def test_two_contents_at_once_make_one_job_and_one_quarantine(server: Server) -> None:
    """Whoever comes first is the message; every other content under its id is put aside, once."""
    calls = [lambda n=n: receive("payments", "evt_1", {"n": n % 2}, consumer=on_payment) for n in range(20)]

    outcomes = _outcomes(together(*calls))

    assert outcomes == {"created": 1, "duplicate": 9, "quarantined": 10}
    assert (Job.objects.count(), Quarantine.objects.count()) == (1, 1)


@commits
def test_loser_takes_what_the_winner_rolled_back(server: Server) -> None:
    """It waits for the first one, which rolls back: the message is not lost."""

    def roll_back(pause: Any) -> None:
        with transaction.atomic():
            receive("payments", "evt_1", DATA, consumer=on_payment)
            pause()
            transaction.set_rollback(True)

    with meanwhile(roll_back) as finish:
        results = together(lambda: receive("payments", "evt_1", DATA, consumer=on_payment), finish)

    assert results[0].outcome == "created"
    assert InboxMessage.objects.get().job_id == Job.objects.get().pk == results[0].job_id


@commits
def test_effect_of_fifty_transactions_happens_once(server: Server) -> None:
    """``once`` yields True to one of fifty, and its effect is there once."""

    def call() -> bool:
        with transaction.atomic(), inbox.once("orders", "shop", "evt_1", data=DATA) as first:
            if first:
                Order.objects.create(number="1", customer="ann", amount=5, card="card_ok")
            return first

    results = together(*[call] * 50)

    assert Counter(results) == {True: 1, False: 49}
    assert Order.objects.count() == InboxMessage.objects.count() == 1


@pytest.mark.postgres
@commits
def test_stricter_isolation_is_no_error_either(server: Server) -> None:
    """Where the server isolates more strictly, the transaction of ``receive`` itself is run again."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        name = cursor.fetchone()[0]
        cursor.execute(f"""ALTER DATABASE "{name}" SET default_transaction_isolation = 'repeatable read'""")
    try:
        connection.close()
        results = together(*[lambda: receive("payments", "evt_1", DATA, consumer=on_payment)] * 20)
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f'ALTER DATABASE "{name}" RESET default_transaction_isolation')
        connection.close()

    assert _outcomes(results) == {"created": 1, "duplicate": 19}
    assert Job.objects.count() == 1
