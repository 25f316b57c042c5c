"""Two databases: a job is never recorded beside a transaction that it could not commit with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from django.db.utils import ConnectionHandler
from pytest_django import DjangoDbBlocker

from django_jobs.exceptions import CrossDatabaseError
from django_jobs.models import IdempotencyKey, Job, JobPayload
from testproject.databases import database_from_url
from tests.databases import Server
from tests.declared import charge, plain

OTHER = "other"
commits = pytest.mark.django_db(transaction=True, databases=["default", OTHER])


@pytest.fixture(scope="module", autouse=True)
def second_database(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Give the project another database, as the alias ``other``; always SQLite, so both kinds meet."""
    entry = database_from_url(f"sqlite:///{tmp_path_factory.mktemp('other') / 'other.sqlite3'}")
    connections.settings[OTHER] = ConnectionHandler({"default": {}, OTHER: entry}).settings[OTHER]
    with django_db_blocker.unblock():
        call_command("migrate", database=OTHER, verbosity=0, interactive=False)
        yield
        connections[OTHER].close()
    del connections[OTHER]
    del connections.settings[OTHER]


@pytest.fixture
def other(transactional_db: None) -> Iterator[str]:
    """The alias of the second database; emptied afterwards."""
    yield OTHER
    for model in (Job, JobPayload, IdempotencyKey):
        model.objects.using(OTHER).all().delete()


@commits
def test_transaction_on_another_database_is_refused(server: Server, other: str) -> None:
    """R48: the two would not commit together, so the job could exist without the rows that it is about."""
    with transaction.atomic(using=other), pytest.raises(CrossDatabaseError, match=r"'other'.*detached=True"):
        plain.enqueue()
    with transaction.atomic(), pytest.raises(CrossDatabaseError, match="'default'"):
        plain.using(database=other).enqueue()
    assert Job.objects.count() == Job.objects.using(other).count() == 0


@commits
def test_detached_job_may_go_to_another_database(server: Server, other: str) -> None:
    """Who says so accepts that the one may be there without the other."""
    with transaction.atomic():
        assert plain.using(database=other, detached=True).enqueue().outcome == "created"
        transaction.set_rollback(True)

    assert Job.objects.using(other).count() == 1


@commits
def test_each_database_has_its_own_transaction_and_keys(server: Server, other: str) -> None:
    """R48 on a second database: rollback leaves no job, and the key scope is the database's."""
    charge.enqueue(order_id=1)
    there = charge.using(database=other)
    with transaction.atomic(using=other):
        assert there.enqueue(order_id=1).outcome == "created"
        transaction.set_rollback(True, using=other)
    assert Job.objects.using(other).count() == 0

    with transaction.atomic(using=other):
        assert there.enqueue(order_id=1).outcome == "created"
    assert there.enqueue(order_id=1).outcome == "duplicate"


@commits
def test_transactions_on_both_databases_are_refused_too(server: Server, other: str) -> None:
    """One of the two cannot commit with the job, whichever it is."""
    with transaction.atomic(), transaction.atomic(using=other), pytest.raises(CrossDatabaseError):
        plain.enqueue()


@commits
def test_connection_that_is_only_open_is_no_obstacle(server: Server, other: str) -> None:
    """Reading from another database outside of a transaction is nothing that must commit."""
    Job.objects.using(other).count()

    assert plain.enqueue().outcome == "created"


@commits
def test_manual_transaction_on_another_database_is_refused(server: Server, other: str) -> None:
    """Autocommit that was switched off is an open transaction."""
    transaction.set_autocommit(False, using=other)
    try:
        with pytest.raises(CrossDatabaseError):
            plain.enqueue()
    finally:
        transaction.rollback(using=other)
        transaction.set_autocommit(True, using=other)
