"""What must be true of a job after a fault: the table's word for it, and what holds whatever the word is."""

from __future__ import annotations

from typing import Any

from django_jobs.models import Attempt, Job
from django_jobs.operate.cancel_requests import Fate, fates
from django_jobs.operate.history import history_of
from django_jobs.operate.verify import verify
from tests.acceptance.conftest import count_rows
from tests.acceptance.workers import Witness, wait_for
from tests.crash.cells import Cell
from tests.crash.table import BUSY, CANCELLED, KEPT, LATE, OVER, REVIEW, TOO_LATE, Scenario


def judge(cell: Cell, job_id: Any, n: int, *, witness: Witness) -> None:
    """Compare what became of the job with the table."""
    story = story_of(job_id)
    scenario = cell.scenario
    assert Job.objects.get(pk=job_id).state == scenario.state, story
    attempts = Attempt.objects.filter(job_id=job_id).order_by("number")
    found = tuple(attempts.values_list("outcome", flat=True))
    assert found == scenario.attempts(cell.code), f"expected {scenario.attempts(cell.code)}: {story}"
    assert count_rows()[n] == scenario.row, f"{count_rows()[n]} business rows"
    _judge_following(scenario, n)
    assert len(witness.lines("applied", n=n)) == scenario.effects, "effects of the provider"
    assert len(witness.lines("applied", n=-n)) == scenario.returns, "effects that were taken back"
    if cell.code == LATE:
        wait_for(lambda: _was_refused(job_id), seconds=10, what="the refusal")
    else:
        assert not _was_refused(job_id), f"nothing was too late here: {story}"


def _judge_following(scenario: Scenario, n: int) -> None:
    """See that what follows the job came once."""
    if scenario.follows:
        jobs = Job.objects.filter(job_type="crash.following", payload__arguments=f'{{"n":{n}}}')
        assert (count_rows()[-n], jobs.count()) == (1, 1), "what follows the job"


def judge_cancel(cell: Cell, job_id: Any, n: int, *, witness: Witness, told: str) -> None:
    """See that a request to cancel was heeded, or that the operator learns why not; and that nothing else happened."""
    job = Job.objects.get(pk=job_id)
    story = f"told {told!r}: {story_of(job_id)}"
    requests = [each.fate for each in fates(history_of(job, using="default"))]
    taking_back = cell.scenario.returns > 0
    applied = len(witness.lines("applied", n=-n if taking_back else n))
    found = {
        ("cancelled", ""): CANCELLED,
        ("dead_lettered", "cancelled"): REVIEW,
        ("succeeded", ""): told if told in (BUSY, OVER, KEPT) else TOO_LATE,
    }.get((job.state, job.dead_reason), "nothing that may follow")
    assert found == cell.code, f"{found}, and not {cell.code}: {story}"
    assert (Fate.TOO_LATE in requests) == (found == TOO_LATE), f"{requests}: {story}"
    assert not (found == CANCELLED and applied), f"an applied effect needs a human: {story}"
    assert applied <= cell.scenario.effects, story
    _judge_following(cell.scenario, n)
    assert count_rows()[n] == (cell.scenario.row if taking_back or job.state == "succeeded" else 0), story


def judge_all() -> None:
    """See that all invariants hold."""
    violated = [(item.invariant.name, item.ids) for item in verify(using="default").violated]
    assert violated == []


def _was_refused(job_id: Any) -> bool:
    return Attempt.objects.filter(job_id=job_id, refused_count__gt=0).exists()


def was_too_slow() -> bool:
    """Say whether an attempt of the newest job got no time to make its call, which says nothing about a fault."""
    attempts = Attempt.objects.filter(job_id=Job.objects.latest("created_at", "id").pk)
    return any(
        attempt.error_type.endswith("NoTimeLeftError") or attempt.message.startswith("Not sent: the deadline")
        for attempt in attempts
    )


def newest() -> str:
    """Tell the newest job."""
    return story_of(Job.objects.latest("created_at", "id").pk)


def story_of(job_id: Any) -> str:
    """Tell the job and its attempts as they stand."""
    job = Job.objects.get(pk=job_id)
    told = Attempt.objects.filter(job_id=job_id).order_by("number")
    attempts = [(a.number, a.outcome, a.error_type, a.message[:100], a.loss_cause, a.refused_count) for a in told]
    return f"{job.state} {job.dead_reason} {attempts}"
