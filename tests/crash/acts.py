"""What is hit beside workers: a receiver of messages, an operator's command, a run of pruning.

Each act is done once under a fault and then once more, as a sender, a person or a timer would who got no answer.
"""

from __future__ import annotations

import io
import time
import uuid
from abc import ABC, abstractmethod

from django.core.management import call_command
from django.db import models, transaction

from django_jobs import inbox, receive
from django_jobs.models import (
    Delivery,
    InboxMessage,
    Job,
    OperatorAction,
)
from django_jobs.operate.action import Decision
from django_jobs.operate.discard_delivery import DiscardDelivery
from django_jobs.operate.redispatch import Redispatch
from django_jobs.operate.replay import Replay
from tests.acceptance.conftest import count_rows
from tests.acceptance.handlers import insert_row
from tests.crash.outbox_handlers import on_message
from tests.factories import JobFactory
from tests.factories_outbox import DeliveryFactory, OrderingKeyFactory, OutboxEventFactory

BUSY_FOR = 20.0  # seconds in which a row that a frozen process holds is let go
WHO = ["--as", "ada", "--owner", "billing", "--reason", "checked with the customer"]


def received(n: int) -> str:
    """Take a message as a job; returns the outcome."""
    return receive("outside", f"msg:{n}", {"n": n}, consumer=on_message).outcome


def taken_once(n: int) -> bool:
    """Take a message in a transaction of the caller, with a business row; says whether it was the first time."""
    with transaction.atomic(), inbox.once("crash.books", "outside", f"msg:{n}", data={"n": n}) as first:
        if first:
            insert_row(n)
    return first


def commanded(*arguments: str) -> tuple[int, str]:
    """Run ``manage.py jobs`` in this process; returns its exit code and what it printed."""
    said = io.StringIO()
    try:
        call_command("jobs", *arguments, stdout=said)
    except SystemExit as end:
        return int(str(end.code)), said.getvalue()
    return 0, said.getvalue()


class Act(ABC):
    """One act about rows of its own, which ``n`` numbers."""

    name: str

    def __init__(self, n: int) -> None:
        self.n = n

    @property
    @abstractmethod
    def arguments(self) -> list[str]:
        """What ``tests.crash.program`` is given."""

    @abstractmethod
    def do(self) -> None:
        """Do it in this process."""

    @abstractmethod
    def is_done(self) -> bool:
        """Say whether it was committed."""

    @abstractmethod
    def again(self, *, done: bool) -> None:
        """Do it once more, and check what is told whoever did it before or not."""

    @abstractmethod
    def judge(self) -> None:
        """Check that it was done once."""


class Receive(Act):
    """A message that a job works on."""

    name = "receive"

    @property
    def arguments(self) -> list[str]:
        """Return the message."""
        return ["receive", str(self.n)]

    def do(self) -> None:
        """Take it."""
        received(self.n)

    def is_done(self) -> bool:
        """Say whether it is taken, which is so exactly when its job is there."""
        taken = InboxMessage.objects.filter(message_id=f"msg:{self.n}").exists()
        assert Job.objects.filter(job_type="crash.on_message", payload__key__contains=f"msg:{self.n}").exists() == taken
        return taken

    def again(self, *, done: bool) -> None:
        """Take it as its sender sends it again."""
        assert received(self.n) == ("duplicate" if done else "created")

    def judge(self) -> None:
        """One job works on it."""
        (message,) = InboxMessage.objects.filter(message_id=f"msg:{self.n}")
        assert Job.objects.filter(pk=message.job_id, job_type="crash.on_message").count() == 1


class Once(Act):
    """A message that a consumer takes in its own transaction."""

    name = "once"

    @property
    def arguments(self) -> list[str]:
        """Return the message."""
        return ["once", str(self.n)]

    def do(self) -> None:
        """Take it."""
        taken_once(self.n)

    def is_done(self) -> bool:
        """Say whether it is taken, which is so exactly when its business row is there."""
        taken = InboxMessage.objects.filter(message_id=f"msg:{self.n}").exists()
        assert (count_rows()[self.n] == 1) == taken
        return taken

    def again(self, *, done: bool) -> None:
        """Take it as its sender sends it again."""
        assert taken_once(self.n) is not done

    def judge(self) -> None:
        """Its row is there once."""
        assert count_rows()[self.n] == InboxMessage.objects.filter(message_id=f"msg:{self.n}").count() == 1


class Decided(Act):
    """A decision of a person on the command line, with the digest of the plan as it was seen."""

    verb: str
    told: str  # to whoever decides it a second time

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.subject = self.prepare()
        self.digest = self.decision().plan().digest

    @abstractmethod
    def prepare(self) -> uuid.UUID:
        """Store what is decided about; returns its id."""

    @abstractmethod
    def decision(self) -> Decision:
        """Return the decision."""

    @property
    def verb_arguments(self) -> list[str]:
        """What ``manage.py jobs`` is given."""
        return [self.verb, str(self.subject), *WHO, "--ack", self.digest]

    @property
    def arguments(self) -> list[str]:
        """The whole command."""
        return ["jobs", *self.verb_arguments]

    def do(self) -> None:
        """Decide."""
        assert commanded(*self.verb_arguments)[0] == 0

    def is_done(self) -> bool:
        """Say whether it is decided, which is so exactly when the audit says who did it."""
        audited = self._audited() == 1
        assert self.is_carried_out() == audited
        return audited

    @abstractmethod
    def is_carried_out(self) -> bool:
        """Say whether the rows are those after the decision."""

    def again(self, *, done: bool) -> None:
        """Decide once more; a row that a frozen process holds is not waited for, the person tries again."""
        ends = time.monotonic() + BUSY_FOR
        while True:
            code, said = commanded(*self.verb_arguments)
            if "Try again in a moment" not in said or time.monotonic() > ends:
                break
        assert (code, self.told in said) == ((4, True) if done else (0, False)), said

    def judge(self) -> None:
        """It was carried out once, with one row in the audit."""
        assert self.is_carried_out()
        assert self._audited() == 1

    def _audited(self) -> int:
        rows = OperatorAction.objects.filter(action=self.decision().name)
        return rows.filter(models.Q(job_id=self.subject) | models.Q(delivery_id=self.subject)).count()


class Replayed(Decided):
    """The replay of a dead letter."""

    name = verb = "replay"
    told = "already replayed by ada"

    def prepare(self) -> uuid.UUID:
        """Store a dead letter."""
        pk: uuid.UUID = JobFactory(dead_lettered=True).pk
        return pk

    def decision(self) -> Decision:
        """Return the replay."""
        return Replay(self.subject, using="default")

    def is_carried_out(self) -> bool:
        """Say whether the second generation began; never a third."""
        job = Job.objects.get(pk=self.subject)
        assert (job.state, job.generation) in {("dead_lettered", 1), ("queued", 2)}
        return bool(job.generation == 2)


class Redispatched(Decided):
    """An event that is sent to one destination again."""

    name = verb = "redispatch"
    told = "on its way there already"

    def prepare(self) -> uuid.UUID:
        """Store a delivery that was published."""
        pk: uuid.UUID = DeliveryFactory(published=True).pk
        return pk

    def decision(self) -> Decision:
        """Return the redispatch."""
        return Redispatch(self.subject, using="default")

    def is_carried_out(self) -> bool:
        """Say whether the new delivery is there; never a second one."""
        event = Delivery.objects.get(pk=self.subject).event_id
        numbers = sorted(Delivery.objects.filter(event_id=event).values_list("redispatch", "state"))
        assert numbers in ([(0, "published")], [(0, "published"), (1, "pending")])
        return len(numbers) == 2


class Discarded(Decided):
    """A dead delivery that is given up, so that the next of its key goes."""

    name = "discard"
    verb = "discard-delivery"
    told = "It is discarded"

    def prepare(self) -> uuid.UUID:
        """Store a dead head and what waits behind it."""
        key = f"act:{self.n}"
        OrderingKeyFactory(ordering_key=key, last_seq=2)
        first, second = (OutboxEventFactory(ordering_key=key, key_seq=n, routed_count=1) for n in (1, 2))
        DeliveryFactory(event=second, waiting=True)
        pk: uuid.UUID = DeliveryFactory(event=first, dead_lettered=True).pk
        return pk

    def decision(self) -> Decision:
        """Return the end of the delivery."""
        return DiscardDelivery(self.subject, using="default")

    def is_carried_out(self) -> bool:
        """Say whether both have moved; one alone never does."""
        rows = Delivery.objects.filter(ordering_key=f"act:{self.n}").order_by("key_seq")
        states = list(rows.values_list("state", flat=True))
        assert states in (["dead_lettered", "waiting"], ["discarded", "pending"])
        return states[0] == "discarded"
