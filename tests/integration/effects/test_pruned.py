"""Effects whose content or rows were pruned: a later job with the same business key never sends twice by mistake."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from django_jobs import Confirmed, Rejected, Unknown, telemetry
from django_jobs.domain.errors import ErrorRecord
from django_jobs.domain.retry import Counters
from django_jobs.domain.states import DeadReason, ErrorClass
from django_jobs.exceptions import EffectKeyReusedError
from django_jobs.models import Job, SideEffect
from django_jobs.operate.action import Operator
from django_jobs.operate.discard import Discard
from django_jobs.operate.explain_effects import effect_lines
from django_jobs.operate.history import history_of
from django_jobs.operate.prune import prune
from django_jobs.operate.verify import verify
from django_jobs.store import Failure, dead_letter, succeed
from django_jobs.store import prune as store_prune
from django_jobs.worker.attempt import RunningAttempt
from tests.crowd import meanwhile, together
from tests.integration.effects.factories import MovableClock, act, blind, effect_row, epochs, keyed, running

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def present(time: MovableClock) -> MovableClock:
    """The movable clock, starting now: the ids of jobs carry the real time."""
    time.now = datetime.now(UTC)
    return time


def end(attempt: RunningAttempt) -> None:
    """Leave the job to a human, who discards it."""
    error = ErrorRecord(type="ValueError", message="no", traceback="", fingerprint="v1:0")
    failure = Failure(error=error, error_class=ErrorClass.UNKNOWN, counters=Counters(unknown=1))
    dead_letter(attempt, failure=failure, reason=DeadReason.UNKNOWN_BUDGET, budget=timedelta(seconds=60))
    decision = Discard(attempt.job_id, using="default")
    operator = Operator(actor="ada", owner="billing", reason="The customer has paid in cash.")
    decision.submit(operator, digest=decision.plan().digest)


NOT_COMPARED = "could not be compared"


def explained(attempt: RunningAttempt) -> str:
    """What an operator reads about the effects of the attempt's job."""
    return "\n".join(effect_lines(history_of(Job.objects.get(pk=attempt.job_id), using="default")))


def clean() -> bool:
    """Whether the rows add up."""
    return not verify(using="default").violated


def test_receipt_outlives_its_content(present: MovableClock) -> None:
    """Applied, content removed: the next job takes the provider's reference and sends nothing, whatever it asks for."""
    provider = keyed(Confirmed("ch_1", result={"card": "4111"}))
    first = running()
    act(first, provider)
    succeed(first, result=None, budget=timedelta(seconds=60))
    present.advance(days=31)
    assert prune(using="default").content == 1

    second = running()
    told: list[dict[str, object]] = []
    unsubscribe = telemetry.subscribe(lambda event, fields: told.append(fields) if event == "effect.adopted" else None)
    receipt = act(second, provider, order_id=7, amount=13)
    unsubscribe()

    assert (receipt.provider_ref, receipt.result, len(provider.calls)) == ("ch_1", {}, 1)
    assert [fields["compared"] for fields in told] == [False]
    assert [NOT_COMPARED in explained(attempt) for attempt in (first, second)] == [True, True]
    assert clean()


def test_request_that_was_compared_is_no_doubt_later(present: MovableClock) -> None:
    """Adopted while the content was there, removed afterwards: the operator reads of no doubt."""
    provider = keyed(Confirmed("ch_1"))
    first, second = running(), running()
    act(first, provider)
    succeed(first, result=None, budget=timedelta(seconds=60))
    act(second, provider)
    succeed(second, result=None, budget=timedelta(seconds=60))
    present.advance(days=31)
    assert prune(using="default").content >= 1

    assert effect_row().request_digest == ""
    assert [NOT_COMPARED in explained(attempt) for attempt in (first, second)] == [False, False]


def test_rejected_effect_without_content_gets_a_new_key(present: MovableClock) -> None:
    """What was sent is not known any more, so the next request counts as another one."""
    provider = keyed(Rejected("busy", permanent=False), Confirmed("ch_2"))
    first = running()
    with pytest.raises(Exception, match="busy"):
        act(first, provider)
    end(first)
    present.advance(days=91)
    assert prune(using="default").content == 1

    second = running()
    # The code promises a longer life of keys by now: that alone would take the old key for a live one.
    longer = replace(provider.guarantees, key_lifetime=timedelta(days=365))
    renewed = replace(provider, guarantees=longer)
    receipt = act(second, renewed)

    assert (receipt.provider_ref, epochs()) == ("ch_2", [0, 1])
    assert provider.keys[0] != provider.keys[1]
    assert effect_row().job_id == second.job_id
    assert clean()
    succeed(second, result=None, budget=timedelta(seconds=60))
    present.advance(days=800)
    # The first sender goes, then the owner, which had to wait for it.
    assert (prune(using="default").jobs, prune(using="default").jobs, SideEffect.objects.count()) == (1, 1, 0)
    assert clean()


def test_abandoned_effect_without_content_is_for_a_human(present: MovableClock) -> None:
    """It may have been applied: another job does not send it, with or without its content."""
    provider = blind(Unknown("lost"))
    first = running()
    act(first, provider, on_ambiguous="accept")
    succeed(first, result=None, budget=timedelta(seconds=60))
    assert effect_row().state == "abandoned"
    present.advance(days=91)
    assert prune(using="default").content == 1

    with pytest.raises(EffectKeyReusedError):
        act(running(), provider)

    assert len(provider.calls) == 1


@pytest.mark.parametrize("deleted", [False, True])
def test_job_that_meets_the_deletion_of_its_effect_begins_anew(
    present: MovableClock, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    """It waits for the batch, finds the row gone, and sends as if nothing had been recorded; no error, no lost row."""
    provider = keyed(Confirmed("ch_1"), Confirmed("ch_2"))
    first = running()
    act(first, provider)
    succeed(first, result=None, budget=timedelta(seconds=60))
    present.advance(days=401)
    second = running()
    real = store_prune.run

    def prune_slowly(pause: Any) -> None:
        def run(name: str, params: Any, *, using: str) -> Any:
            if name == "prune/jobs" and not deleted:
                pause()  # the effect is locked
            rows = real(name, params, using=using)
            if name == "prune/jobs" and deleted:
                pause()  # it is gone, but not for others yet
            return rows

        monkeypatch.setattr(store_prune, "run", run)
        assert prune(using="default").jobs == 1

    with meanwhile(prune_slowly) as finish:
        receipt, _ = together(lambda: act(second, provider), finish)

    assert isinstance(receipt, Confirmed), receipt
    assert receipt.provider_ref == "ch_2"
    assert effect_row().job_id == second.job_id
    assert clean()


def test_effect_that_is_deleted_before_it_is_locked_is_recorded_anew(present: MovableClock) -> None:
    """Found by its key, gone when its lock was asked for: the second insert is the first."""
    provider = keyed(Confirmed("ch_1"), Confirmed("ch_2"))
    act(running(), provider)
    before = effect_row().pk
    deleted: list[int] = []

    def delete_after_insert(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        done = execute(sql, params, many, context)
        if not deleted and sql.startswith("INSERT") and "django_jobs_sideeffect" in sql:
            deleted.append(1)
            SideEffect.objects.filter(pk=before).delete()
        return done

    second = running()
    with connection.execute_wrapper(delete_after_insert):
        receipt = act(second, provider)

    assert receipt.provider_ref == "ch_2"
    assert effect_row().pk != before
    assert effect_row().job_id == second.job_id
