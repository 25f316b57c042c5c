"""Batches and chains that cannot be are refused by a typed error before anything is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_jobs import batch, batch_result, chain, chain_result, inbox, job_result
from django_jobs.domain.ids import uuid7
from django_jobs.exceptions import DefinitionError, JobsError, KeyFormatError
from django_jobs.models import Batch, Chain, Job, JobPayload
from django_jobs.testing import JobsKit
from tests.databases import Server
from tests.declared import charge, plain

ID = uuid7()

REFUSED: dict[str, tuple[Callable[[], Any], type[JobsError], str]] = {
    "on_dead without a hash": (lambda: batch(on_dead=[]), DefinitionError, "on_dead must be"),  # type: ignore[arg-type]
    "on_dead None": (lambda: batch(on_dead=None), DefinitionError, "on_dead must be"),  # type: ignore[arg-type]
    "owner list": (lambda: batch(owner=[]), KeyFormatError, "owner is of type list"),  # type: ignore[arg-type]
    "owner of a chain": (
        lambda: chain(plain.prepare(), owner=0),  # type: ignore[arg-type]
        KeyFormatError,
        "owner is of type int",
    ),
    "database list": (lambda: batch(database=[]), DefinitionError, "no database"),  # type: ignore[arg-type]
    "database of a chain": (
        lambda: chain(plain.prepare(), database={}),  # type: ignore[arg-type]
        DefinitionError,
        "no database",
    ),
    "database of a result": (lambda: batch_result(ID, database=[]), DefinitionError, "no database"),  # type: ignore[arg-type]
    "database of a chain's result": (
        lambda: chain_result(ID, database=[]),  # type: ignore[arg-type]
        DefinitionError,
        "no database",
    ),
    "database of a job's result": (lambda: job_result(ID, database=[]), DefinitionError, "no database"),  # type: ignore[arg-type]
    "database of a message": (
        lambda: inbox.once("stock", "shop", "1", using=[]).__enter__(),  # type: ignore[arg-type]
        DefinitionError,
        "no database",
    ),
    "one call for many": (
        lambda: batch.enqueue(plain.prepare()),  # type: ignore[arg-type]
        DefinitionError,
        "takes a list of calls",
    ),
    "no calls": (lambda: batch.enqueue(None), DefinitionError, "takes a list of calls"),  # type: ignore[arg-type]
    "unknown option": (lambda: batch.enqueue([], foo=1), DefinitionError, "no option 'foo'; it takes callback"),
    "callback with a result": (
        lambda: batch.enqueue([plain.prepare()], callback=plain.prepare().using(pass_result="number")),
        DefinitionError,
        "tests.plain is the callback of a batch",
    ),
    "pass_result without a hash": (
        lambda: plain.prepare().using(pass_result=[]),  # type: ignore[arg-type]
        DefinitionError,
        "names no parameter",
    ),
    "pass_result number": (
        lambda: charge.prepare().using(pass_result=5),  # type: ignore[arg-type]
        DefinitionError,
        "names no parameter",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(database: Server, name: str) -> None:
    """The message names what is wrong; no statement was run."""
    call, error, match = REFUSED[name]

    with CaptureQueriesContext(connection) as queries, pytest.raises(error, match=match):
        call()
    assert len(queries) == 0
    assert not Batch.objects.exists()
    assert not Chain.objects.exists()


@pytest.mark.parametrize("name", ["self", "using", "call", "more", "options"])
def test_result_may_be_passed_under_any_name(declare: Any, jobs: JobsKit, name: str) -> None:
    """The names of parameters are the handler's; those of this package are not in the way."""
    seen: list[Any] = []
    text = f"def taking({name}=None): seen.append({name})"
    namespace: dict[str, Any] = {"seen": seen, "__name__": __name__}
    exec(text, namespace)

    def first() -> int:
        return 7

    taking = declare(namespace["taking"])
    chain(declare(first).prepare(), taking.prepare().using(pass_result=name)).enqueue()

    jobs.run_until_idle()
    assert seen == [7]
    assert JobPayload.objects.count() == Job.objects.count() == 2
