"""Asking a worker to drain: the decision, the command line and the admin."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.urls import reverse

from django_jobs import clock
from django_jobs.exceptions import ActionRefusedError
from django_jobs.models import OperatorAction, Worker
from django_jobs.operate.action import Operator
from django_jobs.operate.drain_worker import DrainWorker, WorkerNotFoundError, find_worker
from django_jobs.store.workers import is_asked_to_drain
from tests.factories import JobFactory, WorkerFactory

pytestmark = pytest.mark.django_db

ANN = Operator(actor="ann", owner="shop", reason="its host goes away tonight")
WHO = ("--as", "ann", "--owner", "shop", "--reason", "its host goes away tonight")


def jobs(*args: str) -> str:
    """Run a verb and return what it wrote."""
    out = StringIO()
    call_command("jobs", *args, stdout=out)
    return out.getvalue()


def test_worker_is_asked_and_the_decision_recorded() -> None:
    """The plan says what it runs; then its row says that it shall stop, and nobody is asked twice."""
    worker = WorkerFactory()
    JobFactory(running=True, lease_owner=worker.pk)
    decision = DrainWorker(worker.pk, using="default")
    plan = decision.plan()
    assert f"It runs 1 job now, on {worker.host} as process {worker.pid}." in plan.lines
    assert not is_asked_to_drain(worker.pk, using="default")

    decision.submit(ANN, digest=plan.digest)

    assert is_asked_to_drain(worker.pk, using="default")
    assert OperatorAction.objects.get().action == "drain_worker"
    with pytest.raises(ActionRefusedError, match="stopping already"):
        decision.submit(ANN, digest=decision.plan().digest)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"stopped_at": clock.now()}, "It stopped at"),
        ({"stopping_at": clock.now()}, "stopping already"),
        ({"heartbeat_at": clock.now() - timedelta(hours=1)}, "nobody is there"),
    ],
)
def test_worker_that_cannot_hear_is_not_asked(columns: dict[str, object], why: str) -> None:
    """One that stopped, stops or is silent: the plan says so."""
    decision = DrainWorker(WorkerFactory(**columns).pk, using="default")
    with pytest.raises(ActionRefusedError, match=why):
        decision.submit(ANN, digest=decision.plan().digest)
    assert not Worker.objects.filter(drain_asked_at__isnull=False).exists()


def test_workers_are_found_by_id_and_by_a_name_that_is_theirs_alone() -> None:
    """Two of a name need their ids; those that stopped are not meant."""
    one, other = WorkerFactory(name="web-1"), WorkerFactory(name="web-1")
    assert find_worker(str(one.pk), using="default") == one
    with pytest.raises(WorkerNotFoundError, match="2 workers are called 'web-1'"):
        find_worker("web-1", using="default")
    Worker.objects.filter(pk=other.pk).update(stopped_at=clock.now())
    assert find_worker("web-1", using="default") == one
    for unknown in ("web-2", str(uuid.uuid4())):
        with pytest.raises(WorkerNotFoundError, match="There is no worker"):
            find_worker(unknown, using="default")


def test_user_without_the_permission_is_refused() -> None:
    """Asked again under the lock."""
    decision = DrainWorker(WorkerFactory().pk, using="default")
    eve = Operator(actor="eve", owner="shop", reason="just because I can", user=User.objects.create_user("eve"))
    with pytest.raises(PermissionDenied):
        decision.submit(eve, digest=decision.plan().digest)
    assert not Worker.objects.filter(drain_asked_at__isnull=False).exists()


def test_verb_and_page_ask(client: Client) -> None:
    """The same plan at a shell and in the admin, where the worker is then shown as stopping."""
    worker = WorkerFactory(name="web-1")
    planned = json.loads(jobs("drain-worker", "web-1", *WHO, "--json"))
    client.force_login(User.objects.create_superuser("ann"))
    page = client.get(reverse("admin:django_jobs_worker_drain", args=[worker.pk])).content.decode()
    assert "takes no more jobs" in page
    assert "is asked to drain" in jobs("drain-worker", "web-1", *WHO, "--ack", planned["digest"])
    assert "stopping" in client.get(reverse("admin:django_jobs_worker_changelist")).content.decode()
    with pytest.raises(CommandError, match="There is no worker 'nothing'"):
        jobs("drain-worker", "nothing", *WHO)
