"""``jobs status``, ``jobs contract`` and ``jobs metrics``."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import DatabaseError, connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_jobs import clock, job
from django_jobs.observe import gauges
from django_jobs.operate.contract import contract
from tests.factories import JobFactory, PauseFactory, SideEffectFactory, WorkerFactory
from tests.factories_observe import ObservedDeliveryFactory
from tests.integration.commands.test_jobs_command import jobs

pytestmark = pytest.mark.django_db


def status_of(queue: str) -> dict[str, Any]:
    """Return what ``jobs status --json`` says about one queue."""
    text, code = jobs("status", "--json")
    assert code == 0
    (found,) = [item for item in json.loads(text)["queues"] if item["name"] == queue]
    return dict(found)


def test_status_tells_how_a_queue_stands() -> None:
    """What waits and for how long, what runs, what is put off, what waits for a human, who works."""
    now = clock.now()
    JobFactory.create_batch(2, queued=True, available_at=now - timedelta(minutes=9))
    JobFactory(scheduled=True)
    JobFactory(failed=True, available_at=now + timedelta(seconds=90))
    JobFactory(running=True)
    JobFactory(running=True, lease_expires_at=now - timedelta(minutes=1))
    JobFactory(dead_lettered=True)
    JobFactory.create_batch(3, succeeded=True)
    WorkerFactory()
    WorkerFactory(queues='["mail"]')
    WorkerFactory(queues='{"except": ["default"]}')
    WorkerFactory(silent=True)
    found = status_of("default")

    assert {name: found[name] for name in ("state", "waiting", "scheduled", "retry", "running", "expired", "dead")} == {
        "state": "open",
        "waiting": 2,
        "scheduled": 1,
        "retry": 1,
        "running": 2,
        "expired": 1,
        "dead": 1,
    }
    assert found["oldest_seconds"] == pytest.approx(540, abs=5)
    assert found["retry_in_seconds"] == pytest.approx(90, abs=5)
    assert (found["workers"], found["silent"]) == (1, 1)


@pytest.mark.parametrize(
    ("what", "state"), [("paused", "paused"), ("nobody", "no worker"), ("full", "full"), ("nothing", "open")]
)
def test_status_names_what_holds_a_queue(what: str, state: str) -> None:
    """An operator's pause, no worker, or its capacity; an empty queue needs no worker."""
    if what != "nothing":
        JobFactory(queued=True)
    if what in {"paused", "full"}:
        WorkerFactory()
    if what == "paused":
        PauseFactory(of_queue=True)
    with override_settings(DJANGO_JOBS={"QUEUES": {"default": {"capacity": 1}}} if what == "full" else {}):
        found = status_of("default")

    assert found["state"] == state


def test_status_for_people() -> None:
    """A table of queues, and a line for each thing that belongs to none."""
    JobFactory(queued=True, queue_name="mail\x1b[31m")
    owner = JobFactory(dead_lettered=True)
    SideEffectFactory(job=owner, name="charge", state="ambiguous")
    PauseFactory(of_queue=True)
    PauseFactory()
    ObservedDeliveryFactory()
    ObservedDeliveryFactory(dead_lettered=True)
    WorkerFactory(name="gone", silent=True)
    text, code = jobs("status")

    assert code == 0
    assert text.splitlines()[0].split()[:3] == ["QUEUE", "STATE", "WAITING"]
    assert "Queue default is held: by ada: the provider asked for it" in text
    assert "Job type shop.charge is held: by ada" in text
    assert "Side effects without a known outcome: charge 1, oldest" in text
    assert "Events on their way: partner 1, oldest" in text
    assert "Deliveries that wait for a human: partner 1, oldest" in text
    assert text.endswith("0 workers live, 1 silent (gone).\n")
    assert "\x1b" not in text


def test_status_says_at_least_where_the_look_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count that may be too small is marked."""
    monkeypatch.setattr("django_jobs.store.overview.LOOK", 2)
    JobFactory.create_batch(3, dead_lettered=True)

    assert "≥ 2" in jobs("status")[0]


def test_number_of_queries_of_status_is_fixed() -> None:
    """As many for ten queues as for none."""
    with CaptureQueriesContext(connection) as empty:
        jobs("status")
    for number in range(10):
        JobFactory(queued=True, queue_name=f"q{number}")
        JobFactory(failed=True, queue_name=f"q{number}")
    with CaptureQueriesContext(connection) as full:
        jobs("status")

    assert len(full) == len(empty) <= 11


def test_contract_of_a_type_for_programs() -> None:
    """Identity, key, budgets, retry, owner and the word for recovery; times in seconds."""
    (found,) = json.loads(jobs("contract", "shop.charge_order", "--json")[0])["jobs"]

    assert found["retry"].pop("permanent") == ["testproject.shop.models.Order.DoesNotExist"]
    assert found["retry"]["transient_max_age_seconds"] == 21600
    assert {name: found[name] for name in found if name not in {"retry", "code_version"}} == {
        "job_type": "shop.charge_order",
        "aliases": [],
        "version": 1,
        "reads_versions": [],
        "arguments": ["order_id: int"],
        "queue_name": "payments",
        "priority": 10,
        "owner": "billing",
        "resource": "",
        "recovery": "ledger",
        "key": "order:{order_id}",
        "key_scope": "shop.charge_order",
        "key_ttl_seconds": 604800,
        "on_duplicate": "return",
        "subject": "order:{order_id}",
        "useful_for_seconds": None,
        "budget_seconds": 30,
        "lease_seconds": 40,
        "max_runtime_seconds": 600,
        "soft_timeout": False,
    }


def test_contract_masks_defaults_as_payloads_are() -> None:
    """What is secret by its name or by what it looks like is not printed; that a secret has no default is."""

    def handler(
        n: int = 7,
        api_token: str = "canary-1",
        card: int = 4111111111111111,
        password: str | None = None,
        url: str = "https://ada:canary-2@host/",
        more: dict[str, str] = {"secret": "canary-3"},  # noqa: B006  it is only shown
    ) -> None:
        raise AssertionError("nothing runs it")

    job(type="tests.with_defaults")(handler)

    for options in ([], ["--json"]):
        text = jobs("contract", "tests.with_defaults", *options)[0]
        assert "canary" not in text
        assert "4111" not in text
    (found,) = json.loads(text)["jobs"]
    assert found["arguments"] == [
        "n: int = 7",
        "api_token: str = [redacted]",
        "card: int = [redacted]",
        "password: str | None = None",
        "url: str = 'https://[redacted]@host/'",
        "more: dict[str, str] = {'secret': [redacted]}",
    ]


def test_contract_of_operations() -> None:
    """Guarantees of the provider, and which operations lack a business key of their own."""
    shown = json.loads(jobs("contract", "payments.charge", "payments.charge_without_key", "--json")[0])
    first, second = shown["operations"]

    assert (first["dedupe"], first["requires_key"], first["can_reconcile"], first["recovery"]) == (
        "key",
        True,
        True,
        "ledger",
    )
    assert (second["dedupe"], second["key_lifetime_seconds"]) == ("none", None)
    assert shown["without_key"] == ["payments.charge_without_key"]
    assert set(shown["recovery_words"]) == {"transactional", "ledger", "manual"}


def test_contract_for_people_and_by_alias() -> None:
    """Every type has its part, and an older name finds it too."""
    text = jobs("contract")[0]

    assert [item.job_type for item in contract().jobs if f"JOB {item.job_type}\n" not in text] == []
    assert re.search(r"recovery +transactional", jobs("contract", "shop.note_order")[0])
    assert "JOB tests.new_name" in jobs("contract", _renamed())[0]


def _renamed() -> str:
    from tests.declared import renamed

    return renamed.definition.aliases[0]


def test_contract_refuses_what_nobody_declared() -> None:
    """A slip of the pen is told."""
    with pytest.raises(
        CommandError, match=r"neither a job type nor an operation, event type or schedule 'shop\.nothing'"
    ) as caught:
        jobs("contract", "shop.nothing")

    assert caught.value.returncode == 2


def test_metrics_are_printed_or_written(tmp_path: Path) -> None:
    """The file is replaced as a whole, and says the same."""
    JobFactory(queued=True, queue_name="mail")
    path = tmp_path / "jobs.prom"
    path.write_text("old")
    text, code = jobs("metrics")

    assert code == 0
    assert 'django_jobs_backlog_jobs{job_type="other",priority="normal",queue="mail",state="queued"} 1.0' in text
    assert jobs("metrics", "--textfile", path) == ("", 0)
    assert "django_jobs_exporter_up 1.0" in path.read_text()
    assert list(tmp_path.iterdir()) == [path]


def test_metrics_that_cannot_be_written(tmp_path: Path) -> None:
    """It says where and why."""
    with pytest.raises(CommandError, match="cannot be written: No such file"):
        jobs("metrics", "--textfile", tmp_path / "no" / "jobs.prom")


def test_metrics_of_a_database_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1, and the text says so too."""

    def broken(*, using: str) -> None:
        raise DatabaseError("away")

    monkeypatch.setattr(gauges, "overview", broken)
    text, code = jobs("metrics")

    assert code == 1
    assert "django_jobs_exporter_up 0.0" in text
