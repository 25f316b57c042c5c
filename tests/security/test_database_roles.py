"""S16: the roles of the documentation are enough for what each process does, and for nothing else."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import ProgrammingError, connection, transaction

from django_jobs.models import OperatorAction
from django_jobs.testing import JobsKit
from tests.factories_decisions import OperatorActionFactory
from tests.integration.commands.test_jobs_command import jobs
from tests.integration.worker.conftest import Declare

pytestmark = [pytest.mark.postgres, pytest.mark.django_db]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "use-postgresql.md"


@contextmanager
def role(name: str) -> Iterator[None]:
    """Have the rights of this role alone."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {name}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET ROLE")


@pytest.fixture
def roles() -> dict[str, str]:
    """Make the roles as the page says, under names of this test; they go with its transaction."""
    (text,) = re.findall(r"```sql\n(CREATE ROLE.*?)```", PAGE.read_text(), re.DOTALL)
    tail = uuid.uuid4().hex[:8]
    with connection.cursor() as cursor:
        cursor.execute(re.sub(r"\bshop_(\w+)", rf"shop_\1_{tail}", text))
    return {name: f"shop_{name}_{tail}" for name in ("producer", "worker", "reader")}


def refused(sql: str) -> bool:
    """Say whether the database refuses this for want of a right."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql)
    except ProgrammingError as error:
        return "permission denied" in str(error)
    return False


def test_s16_each_role_can_do_its_work(roles: dict[str, str], declare: Declare) -> None:
    """S16: a producer enqueues with a key and again, a worker runs the job, a reader lists and verifies."""
    ran: list[int] = []

    def handler(n: int) -> None:
        ran.append(n)

    charge = declare(handler, key="order:{n}")
    with JobsKit() as kit:
        with role(roles["producer"]):
            outcomes = [charge.enqueue(n=7).outcome, charge.enqueue(n=7).outcome]
        with role(roles["worker"]):
            kit.drain().assert_succeeded()
        with role(roles["reader"]):
            listed, verified = jobs("list"), jobs("verify")

    assert (outcomes, ran) == (["created", "duplicate"], [7])
    assert (listed[1], verified[1]) == (0, 0)


def test_s16_no_role_can_do_more(roles: dict[str, str]) -> None:
    """S16: no role makes or changes a table, a producer changes no job, and no role rewrites the audit."""
    OperatorActionFactory()
    for name in roles.values():
        with role(name):
            assert refused("CREATE TABLE planted (n integer)")
            assert not refused("SELECT 1 FROM django_jobs_job")
            assert refused("UPDATE django_jobs_operatoraction SET actor = 'nobody'")
            assert refused("DELETE FROM django_jobs_operatoraction")
    for name, statement in (
        ("producer", "UPDATE django_jobs_job SET state = 'queued'"),
        ("producer", "UPDATE django_jobs_jobpayload SET arguments = '{}'"),
        ("producer", "INSERT INTO django_jobs_operatoraction (id) VALUES (gen_random_uuid())"),
        ("reader", "INSERT INTO django_jobs_jobstep (id) VALUES (gen_random_uuid())"),
        ("reader", "DELETE FROM django_jobs_job"),
    ):
        with role(roles[name]):
            assert refused(statement), (name, statement)
    assert OperatorAction.objects.count() == 1
