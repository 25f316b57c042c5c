"""A stored context is content: shown masked, unmasked on record only, gone with the payload, and no leak elsewhere."""

from __future__ import annotations

import html
import io
import json
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.test import Client

from django_jobs.exceptions import PermanentError
from django_jobs.models import Job, JobPayload
from django_jobs.operate.canary import sweep
from django_jobs.operate.history import as_dict, history_of
from django_jobs.operate.prune import prune
from django_jobs.operate.show_payload import ShowPayload
from django_jobs.operate.verify import verify
from django_jobs.testing import JobsKit
from tests.carriers import Tenant, inside
from tests.databases import Server
from tests.factories_decisions import decided
from tests.integration.admin.conftest import address, root
from tests.integration.hooks.conftest import Declare, Use, note

__all__ = ["root"]

SECRET = "hunter2-hunter2"
VALUE = {"id": 7, "token": SECRET}
MASKED = {"tenant": {"id": 7, "token": "[redacted]"}}


@pytest.fixture
def job(use: Use, declare: Declare, kit: JobsKit) -> Job:
    """A dead letter whose job carries a secret, although it should not."""

    def dies() -> None:
        note()
        raise PermanentError("no")

    use(context=(Tenant,))
    with inside(VALUE):
        declare(dies).enqueue()
    kit.run_until_idle()
    return Job.objects.get()


def test_show_masks_it(job: Job) -> None:
    """``jobs show`` prints it as JSON with its secrets masked, as it does the arguments."""
    said = io.StringIO()
    call_command("jobs", "show", str(job.pk), stdout=said)

    assert as_dict(history_of(job, using="default"))["payload"]["context"] == MASKED
    assert json.dumps(MASKED) in said.getvalue()
    assert SECRET not in said.getvalue()


def test_the_page_of_the_job_masks_it(job: Job, root: Client) -> None:
    """An operator sees under which tenant a job runs, and no secret."""
    page = html.unescape(root.get(address("job", "change", job.pk)).content.decode())

    shown = page.partition("<dt>context</dt>")[2].partition("</dd>")[0]
    assert '"id": 7' in shown
    assert "[redacted]" in shown
    assert SECRET not in page


def test_it_is_shown_unmasked_with_a_reason(job: Job) -> None:
    """The decision that shows arguments and result shows it too, and says so."""
    done = decided(ShowPayload(job.pk, using="default"))

    assert done.details == {"arguments": {}, "context": {"tenant": VALUE}}
    assert "Arguments and context of job" in done.message
    assert SECRET not in done.message


def test_it_gets_nowhere_else(job: Job) -> None:
    """Neither the error of an attempt nor the audit has it; the rows agree with each other."""
    assert sweep([SECRET], using="default") == ()
    assert verify(using="default").clean
    assert SECRET in (JobPayload.objects.get().context or "")


def test_pruning_removes_it_with_the_content(database: Server, use: Use, declare: Declare, kit: JobsKit) -> None:
    """Of a job without content nothing readable is left."""
    use(context=(Tenant,))
    with inside(VALUE):
        declare(note).enqueue()
    kit.run_until_idle()
    kit.clock.tick(timedelta(days=31))
    prune(using="default")

    assert Job.objects.get().content_removed_at is not None
    assert not JobPayload.objects.exists()
