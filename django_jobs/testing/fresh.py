"""A state that is the same before each run of a matrix: rows are rolled back, and what the kit has in memory too."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.core import mail
from django.db import connections, transaction

from django_jobs.enqueue import backpressure
from django_jobs.testing.downstream import FakeDownstream
from django_jobs.testing.kit import JobsKit
from django_jobs.testing.lending import is_closed


@contextmanager
def fresh(
    kit: JobsKit, downstream: FakeDownstream | None, reset: Callable[[], object] | None, databases: Collection[str]
) -> Iterator[None]:
    """Begin with the rows of the test, and leave nothing: neither rows nor mails nor what a fake took.

    Each of ``databases``, and each other one that is open, is inside a transaction that is rolled back, in whichever
    kind of test this is. What the caller keeps elsewhere is for ``reset`` to empty.
    """
    with ExitStack() as stack:
        for connection in connections.all():
            if not is_closed(connection) and (connection.alias in databases or connection.connection is not None):
                stack.enter_context(_rolled_back(connection.alias))
        stack.callback(_put_back, mail.__dict__["outbox"], list(mail.__dict__["outbox"]))
        for receiver in kit.receivers.values():
            for kept in (receiver.events, receiver.parcels):
                stack.callback(_put_back, kept, list(kept))
        if downstream is not None:
            stack.enter_context(downstream.kept())
        if reset is not None:
            reset()
        backpressure.forget_samples()
        stack.callback(backpressure.forget_samples)
        yield


@contextmanager
def _rolled_back(using: str) -> Iterator[None]:
    block: Any = transaction.atomic(using=using)
    block._from_testcase = True  # noqa: SLF001  the transaction of a test, as that of a TestCase is
    with block:
        try:
            yield
        finally:
            transaction.set_rollback(True, using=using)


def _put_back(kept: list[Any], before: list[Any]) -> None:
    kept[:] = copy.copy(before)
