"""Running a schedule by hand, listing and pausing: the command line and the admin."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.urls import reverse
from prometheus_client import CollectorRegistry

from django_jobs import Every, telemetry
from django_jobs.define import schedules as declared
from django_jobs.exceptions import ActionRefusedError
from django_jobs.models import Job, OperatorAction, Schedule, ScheduleTick
from django_jobs.observe.metrics import Metrics
from django_jobs.operate.action import Operator
from django_jobs.operate.doctor import diagnose
from django_jobs.operate.run_schedule import RunSchedule, ScheduleNotFoundError
from tests.integration.schedules.conftest import Hands, turn

pytestmark = pytest.mark.django_db

MINUTELY = Every(timedelta(minutes=1))
ANN = Operator(actor="ann", owner="shop", reason="the report is needed now")


def jobs(*args: str) -> str:
    """Run a verb and return what it wrote."""
    out = StringIO()
    call_command("jobs", *args, stdout=out)
    return out.getvalue()


def test_run_by_hand_is_one_more_job_with_its_audit(scheduled: Callable[..., Any], hands: Hands) -> None:
    """The decision, the job and the tick are one; the schedule goes on as before."""
    one = scheduled(MINUTELY)
    decision = RunSchedule(one.name, using="default")

    done = decision.submit(ANN, digest=decision.plan().digest)

    tick = ScheduleTick.objects.get()
    assert (tick.job_id, tick.action_id, tick.outcome) == (Job.objects.get().pk, done.action.pk, "enqueued")
    assert OperatorAction.objects.get().action == "run_schedule"
    hands.move(seconds=30)
    turn()
    assert Job.objects.count() == 2


def test_run_of_what_this_code_does_not_know_is_refused(scheduled: Callable[..., Any]) -> None:
    """Nobody here knows its arguments; and a name that never was is not found."""
    one = scheduled(MINUTELY)
    declared.forget_schedule(one.name)
    decision = RunSchedule(one.name, using="default")

    with pytest.raises(ActionRefusedError, match="does not declare it"):
        decision.submit(ANN, digest=decision.plan().digest)
    with pytest.raises(ScheduleNotFoundError, match="There is no schedule 'nothing'"):
        RunSchedule("nothing", using="default").plan()


def test_user_without_the_permission_is_refused(scheduled: Callable[..., Any]) -> None:
    """Asked again under the lock."""
    decision = RunSchedule(scheduled(MINUTELY).name, using="default")
    somebody = Operator(actor="eve", owner="shop", reason="just because I can", user=User.objects.create_user("eve"))
    with pytest.raises(PermissionDenied):
        decision.submit(somebody, digest=decision.plan().digest)
    assert not Job.objects.exists()


def test_verbs_list_pause_and_run(scheduled: Callable[..., Any], hands: Hands) -> None:
    """A person at a shell sees each schedule, holds one back, and runs one."""
    assert "There is no schedule" in jobs("schedules")
    one = scheduled(MINUTELY)
    assert one.name in jobs("schedules")
    jobs("pause", "schedule", one.name, "--as", "ann", "--reason", "month's end")
    assert "paused by ann" in jobs("schedules")
    assert json.loads(jobs("schedules", "--json"))["paused_by"] == "ann"
    who = ("--as", "ann", "--owner", "shop", "--reason", "the report is needed now")
    planned = json.loads(jobs("run-schedule", one.name, *who, "--json"))
    assert any("is paused by ann" in line for line in planned["lines"])
    assert "is queued" in jobs("run-schedule", one.name, *who, "--ack", planned["digest"])
    with pytest.raises(CommandError, match="There is no schedule"):
        jobs("run-schedule", "nothing")


def test_verb_announces_what_this_code_declares(scheduled: Callable[..., Any]) -> None:
    """Without a worker, before a deploy."""
    scheduled(MINUTELY)
    Schedule.objects.all().delete()
    assert "tests.scheduled" in jobs("schedules", "--announce")


def test_admin_shows_schedules_and_runs_one(scheduled: Callable[..., Any], hands: Hands, client: Client) -> None:
    """The list, the page with its ticks, and the page of the decision; a reader may only look."""
    one = scheduled(MINUTELY)
    hands.move(minutes=1)
    turn()
    user = User.objects.create_user("ann", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_schedule"))
    client.force_login(user)
    row = Schedule.objects.get()

    listed = client.get(reverse("admin:django_jobs_schedule_changelist")).content.decode()
    page = client.get(reverse("admin:django_jobs_schedule_change", args=[row.pk])).content.decode()
    assert one.name in listed
    assert "every 60 s" in listed
    assert "enqueued" in page
    run = reverse("admin:django_jobs_schedule_run", args=[row.pk])
    assert client.get(run).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="run_schedule"))
    assert "One more job runs" in client.get(run).content.decode()


def test_contract_lists_schedules(scheduled: Callable[..., Any]) -> None:
    """By the schedule's name or its job type; with what makes the arguments."""
    scheduled(MINUTELY, name="every minute", missed="skip", arguments=lambda tick: {})
    for name in ("every minute", "tests.scheduled"):
        told = jobs("contract", name)
        assert "SCHEDULE every minute" in told
        assert "skip, at most" in told
    assert json.loads(jobs("contract", "every minute", "--json"))["schedules"][0]["rule"] == "every 60 s"


def test_doctor_names_a_schedule_that_nobody_serves(scheduled: Callable[..., Any], hands: Hands) -> None:
    """From half a minute after its tick on, unless somebody holds it back on purpose."""
    one = scheduled(MINUTELY)

    def found() -> list[str]:
        return [item.text for item in diagnose(using="default").findings if item.id == "schedule-not-served"]

    hands.move(seconds=60)
    assert found() == []
    hands.move(seconds=1)
    assert len(found()) == 1
    assert one.name in found()[0]
    jobs("pause", "schedule", one.name, "--as", "ann", "--reason", "month's end")
    assert found() == []


def test_metrics_count_ticks_and_how_late_they_are(
    scheduled: Callable[..., Any], hands: Hands, django_capture_on_commit_callbacks: Any
) -> None:
    """By what came of them, once they are committed."""
    scheduled(MINUTELY)
    registry = CollectorRegistry()
    hands.move(seconds=32)
    stop = telemetry.subscribe(Metrics(registry))
    with django_capture_on_commit_callbacks(execute=True):
        turn()
    stop()
    labels = {"queue": "default", "job_type": "tests.scheduled", "priority": "normal"}
    ticks = registry.get_sample_value("django_jobs_schedule_ticks_total", {**labels, "outcome": "enqueued"})
    assert (ticks, registry.get_sample_value("django_jobs_schedule_lateness_seconds_sum", labels)) == (1, 2)
