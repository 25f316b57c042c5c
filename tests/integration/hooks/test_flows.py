"""Which jobs carry what: those that application code enqueues, wherever it does; and those that the package makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.core import mail
from django.test import override_settings

from django_jobs import batch, chain, receive
from django_jobs.exceptions import HookError, PermanentError
from django_jobs.models import Batch, Chain, Job, JobPayload, SideEffect
from django_jobs.operate.compensate import Compensate
from django_jobs.operate.replay import Replay
from django_jobs.operate.schedule_runner import serve
from django_jobs.testing import JobsKit
from tests.carriers import LANGUAGE, Noting, Raising, Tenant, Unable, inside, tenant
from tests.declared_consumers import on_payment
from tests.factories_decisions import decided
from tests.integration.compensation import trips
from tests.integration.hooks.conftest import Declare, Use, names, note, noted
from tests.integration.outbox.conftest import Subscribe, delivered, paid, published, subscriber
from tests.integration.schedules.conftest import Hands, hands, scheduled
from tests.integration.worker.conftest import run_one

__all__ = ["hands", "paid", "scheduled", "subscriber"]

ACME = '{"tenant":"acme"}'


def carried() -> dict[str, str | None]:
    """Return what jobs carry, by their type."""
    return dict(JobPayload.objects.values_list("job__job_type", "context"))


@pytest.fixture(autouse=True)
def _tenants(use: Use, transactional_db: None) -> None:
    """Jobs carry the tenant, and an enqueue is seen by a middleware."""
    use(context=(Tenant,), middleware=(Noting,))


def test_a_chain_carries_what_was_active_when_it_was_enqueued(kit: JobsKit, declare: Declare) -> None:
    """Its later links are enqueued by a worker, and carry the same; each link is seen by the middleware at once."""
    step = declare(note)
    with inside("acme"):
        chain(step.prepare(), step.prepare(), step.prepare()).enqueue()
    told = noted("outer")

    kit.run_until_idle()

    assert [one.job_type for one in told] == ["tests.handler"] * 3
    assert [tenant_ for tenant_, _ in noted("handler")] == ["acme"] * 3
    assert noted("capture") == ["acme"]


def test_a_callback_carries_what_was_active_where_its_batch_began(kit: JobsKit, declare: Declare) -> None:
    """Members carry what is active where they are enqueued, also those that a member adds."""
    step = declare(note)
    with inside("acme"), batch(callback=step.prepare()), inside("member"):
        step.enqueue()

    kit.run_until_idle()

    assert [tenant_ for tenant_, _ in noted("handler")] == ["member", "acme"]
    assert Batch.objects.get().closed_at


def test_a_batch_is_not_begun_when_its_callback_is_refused(declare: Declare, use: Use) -> None:
    """A propagator that fails, or a middleware that refuses, leaves no row of a batch or of a chain."""
    step = declare(note)
    use(context=(Unable,), middleware=(Raising,))
    Unable.at_capture = LookupError("nobody")
    makers = [lambda: batch(callback=step.prepare()).__enter__(), lambda: chain(step.prepare()).enqueue()]

    for make in makers:
        with pytest.raises(HookError, match="unable"):
            make()
    Raising.before = PermissionError("refused")
    for make in makers:
        with pytest.raises(PermissionError):
            make()

    assert (Batch.objects.count(), Chain.objects.count(), Job.objects.count()) == (0, 0, 0)


def test_a_replay_runs_under_what_was_stored(kit: JobsKit, declare: Declare) -> None:
    """Whoever replays, the job keeps the context of its enqueue."""

    def dies() -> None:
        note()
        if len(noted("handler")) == 1:
            raise PermanentError("no")

    with inside("acme"):
        job = declare(dies).enqueue()
    kit.run_until_idle()

    with inside("operator"):
        decided(Replay(job.id, using="default"))
    kit.run_until_idle()

    assert [tenant_ for tenant_, _ in noted("handler")] == ["acme", "acme"]


def test_a_compensation_carries_what_its_original_did(kit: JobsKit) -> None:
    """What is taken back is taken back where it was done, whoever decides so."""
    with inside("acme"):
        trips.book.enqueue(city="Rome", steps=["hotel"], dies=True)
    kit.run_until_idle()

    with inside("operator"):
        decided(Compensate(SideEffect.objects.get().pk, using="default"))

    assert set(carried().values()) == {ACME}
    assert len(carried()) == 2


def test_a_message_from_outside_carries_what_its_receiver_has(declare: Declare) -> None:
    """The view that receives a webhook is a producer like any other."""
    with inside("acme"):
        receive("bank", "m-1", {"cents": 1}, consumer=on_payment)
        receive("bank", "m-1", {"cents": 1}, consumer=on_payment)

    assert carried() == {"tests.on_payment": ACME}
    assert [one.job_type for one in noted("outer")] == ["tests.on_payment"] * 2
    assert noted("outer")[0].rows == [{"data": {"cents": 1}}]


def test_a_refused_message_is_not_taken(use: Use) -> None:
    """A middleware that refuses a job refuses the message: the sender tries again."""
    use(middleware=(Raising,))
    Raising.before = PermissionError("closed")

    with pytest.raises(PermissionError):
        receive("bank", "m-1", {}, consumer=on_payment)
    Raising.before = None

    assert receive("bank", "m-1", {}, consumer=on_payment).outcome == "created"


def test_a_subscriber_s_job_carries_nothing(subscriber: Subscribe) -> None:
    """An event says all that it says in its data: a subscriber does not depend on where it was published."""
    subscriber(lambda event: note())
    with inside("acme"):
        published(7)
        delivered()

    assert carried() == {"tests.receipt": None}
    assert run_one().outcome == "succeeded"
    assert [tenant_ for tenant_, _ in noted("handler")] == [None]
    assert [type(one).__name__ for one in noted("outer")] == ["Attempting"]


def test_a_tick_carries_nothing(scheduled: Callable[..., Any], hands: Hands) -> None:
    """A schedule has nobody's tenant, whichever worker serves it; no middleware can refuse what was promised."""
    with inside("acme"):
        scheduled("*/5 * * * *", lambda: note())
        hands.move(minutes=6)
        serve(using="default")

    assert carried() == {"tests.scheduled": None}
    assert names() == []


@override_settings(EMAIL_BACKEND="django_jobs.backends.email.EmailBackend")
def test_a_mail_carries_what_is_active_where_it_is_sent() -> None:
    """A mail that becomes a job is an enqueue like any other."""
    with inside("acme"):
        mail.send_mail("Hello", "…", "a@example.com", ["b@example.com"])

    assert set(carried().values()) == {ACME}
    assert noted("outer")[0].count == 1


def test_the_kit_s_ways_to_run_use_the_hooks(kit: JobsKit, declare: Declare, use: Use) -> None:
    """A job that the kit enqueues, runs by itself, or runs inline goes through propagators and middleware."""
    use(context=(Tenant, LANGUAGE), middleware=(Noting,))
    step = declare(note)
    with inside("acme"):
        kit.enqueue(step)
    kit.run_one()
    with kit.inline(), inside("inline"):
        step.enqueue()

    assert noted("handler") == [("acme", "en-us"), ("inline", "en-us")]
    assert Counter(names())["outer"] == 4
    assert tenant.get() is None
