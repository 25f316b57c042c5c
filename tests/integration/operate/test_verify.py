"""The invariants: silent on a healthy database, and each of them loud on the corruption that it is there for."""

from __future__ import annotations

import ast
import copy
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections

from django_jobs.models import Attempt, Delivery, Job, JobPayload, Send, SideEffect
from django_jobs.operate import verify as verify_module
from django_jobs.operate.verify import Report, invariants, verify
from tests.integration.operate import (
    corrupt_compensations,
    corrupt_composition,
    corrupt_decisions,
    corrupt_effects,
    corrupt_events,
    corrupt_inbox,
    corrupt_jobs,
    corrupt_keys,
    corrupt_paths,
    corrupt_pruning,
    corrupt_schedules,
)
from tests.integration.operate.breaks_too import BREAKS_TOO
from tests.integration.operate.corruptions import CORRUPTIONS, Corruption
from tests.integration.operate.healthy import healthy
from tests.integration.operate.stories import Story
from tests.integration.operate.taken_back import healthy_compensations

REGISTERED = (
    corrupt_compensations,
    corrupt_jobs,
    corrupt_keys,
    corrupt_paths,
    corrupt_effects,
    corrupt_events,
    corrupt_inbox,
    corrupt_pruning,
    corrupt_decisions,
    corrupt_schedules,
    corrupt_composition,
)  # importing them fills CORRUPTIONS


def found(report: Report) -> dict[str, set[str]]:
    """Return what is violated, and by which ids."""
    return {item.invariant.name: set(item.ids) for item in report.violated}


CASES = [(name, corruption) for name, listed in CORRUPTIONS.items() for corruption in listed]


@pytest.mark.django_db
def test_healthy_database_violates_nothing() -> None:
    """Jobs in every state, with every kind of past, satisfy every invariant."""
    healthy()
    corrupt_events.healthy_events()
    healthy_compensations()
    corrupt_schedules.healthy_schedules()
    corrupt_composition.healthy_composition()

    assert found(verify(using="default")) == {}
    assert set(Delivery.objects.values_list("state", flat=True)) == {
        "waiting", "pending", "claimed", "published", "dead_lettered", "discarded",
    }  # fmt: skip
    assert set(Job.objects.values_list("state", flat=True)) == {
        "scheduled", "queued", "running", "failed", "succeeded", "dead_lettered", "cancelled",
    }  # fmt: skip
    assert set(SideEffect.objects.values_list("state", flat=True)) == {
        "planned", "in_flight", "ambiguous", "rejected", "succeeded", "abandoned",
    }  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize(("name", "corruption"), CASES, ids=[f"{name}-{item.__name__}" for name, item in CASES])
def test_corruption_is_named(name: str, corruption: Corruption) -> None:
    """Each invariant names exactly the rows that violate it, nothing healthy beside them, and no other one fails."""
    expected = {str(identifier) for identifier in corruption()}
    Story().claim().effect("order:99").send().answer("confirmed")

    violated = found(verify(using="default"))

    assert violated.get(name) == expected
    assert set(violated) - {name} == BREAKS_TOO.get(f"{name}-{corruption.__name__}", set())


def test_every_invariant_has_a_corruption() -> None:
    """No invariant is believed that was never seen to fail."""
    assert sorted(CORRUPTIONS) == sorted(item.name for item in invariants())


@pytest.mark.django_db(transaction=True)
def test_verify_reads_one_snapshot_and_blocks_nobody() -> None:
    """What is committed while the look goes on is not seen by half, and whoever commits does not wait."""
    story = Story().claim()
    other = connections.create_connection("default")
    other.inc_thread_sharing()

    def commit_in_between(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if "COALESCE(a.highest, 0)" in sql:  # J2 was read; J3 and the rest come later
            with other.cursor() as cursor:
                cursor.execute("UPDATE django_jobs_job SET unknown_count = 5")
        return result

    try:
        with connection.execute_wrapper(commit_in_between):
            during = verify(using="default")
    finally:
        other.close()

    assert found(during) == {}
    assert found(verify(using="default")) == {"J3": {str(story.job.pk)}}
    assert not connection.in_atomic_block
    assert Job.objects.get().unknown_count == 5


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_verify_cannot_write() -> None:
    """The transaction of the look is read only."""
    seen: list[str] = []

    def ask(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if "django_jobs_jobstep s" in sql:
            raw = context["connection"].connection
            seen.extend(
                raw.execute(f"SHOW {name}").fetchone()[0] for name in ("transaction_read_only", "transaction_isolation")
            )
        return result

    with connection.execute_wrapper(ask):
        verify(using="default")

    assert seen == ["on", "repeatable read"]


@pytest.mark.django_db
def test_thousand_jobs_are_verified_in_seconds() -> None:
    """A thousand finished jobs, each with a charge, take seconds and no minutes, also where coverage is measured."""
    _thousand_jobs()

    reports = [verify(using="default") for _ in range(3)]

    assert min(report.seconds for report in reports) < 5  # the best of three: others use this machine too
    assert found(reports[0]) == {}
    assert Job.objects.count() == 1001


@pytest.mark.parametrize("module", ["verify", "verify_sql", "canary"])
def test_verify_imports_nothing_of_what_it_judges(module: str) -> None:
    """The verifier stands on Django, the standard library and its own three modules alone."""
    tree = ast.parse(Path(verify_module.__file__).with_name(f"{module}.py").read_text())
    names = [
        alias.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]

    own = {"django_jobs.operate.canary", "django_jobs.operate.verify_sql"}
    assert names
    assert {name for name in names if name.startswith("django_jobs")} <= own


def test_invariants_are_told_apart() -> None:
    """Names are unique, each has a meaning, and each says of what it names the ids."""
    listed = invariants()

    assert len({item.name for item in listed}) == len(listed) > 30
    assert all(item.meaning and not item.meaning.endswith(".") for item in listed)
    assert {item.about for item in listed} <= {"job", "attempt", "effect", "send", "step", "event", "delivery", "row"}


def _thousand_jobs() -> None:
    """Copy one finished job with a charge a thousand times, under ids and keys of their own."""
    story = Story().claim()
    story.effect().send().answer("confirmed")
    story.succeed()
    models_here = (Job, JobPayload, Attempt, SideEffect, Send)
    originals = [model.objects.get() for model in models_here]
    copies: list[list[Any]] = [[] for _ in models_here]
    for number in range(1000):
        job, payload, attempt, effect, send = rows = [copy.copy(row) for row in originals]
        job.pk, attempt.pk, effect.pk, send.pk = (uuid.uuid4() for _ in range(4))
        payload.pk = attempt.job_id = effect.job_id = send.job_id = job.pk
        send.effect_id, send.attempt_id = effect.pk, attempt.pk
        effect.business_key, send.provider_key = f"bulk:{number}", f"dj1_{number}"
        for row, listed in zip(rows, copies, strict=True):
            listed.append(row)
    for model, listed in zip(models_here, copies, strict=True):
        model.objects.bulk_create(listed)
