"""One run from the empty database to the verdict."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from django.db import connection

from django_jobs.models import Job
from testproject.demo.database import file_of_database
from testproject.demo.errors import DemoError
from testproject.demo.evidence import Evidence, Seen, gather
from testproject.demo.faults import Frozen, freeze_worker, kill_child, wake_worker
from testproject.demo.figures import Figures, count
from testproject.demo.invariants import verify
from testproject.demo.operator import refund, replay
from testproject.demo.ordering import Placed, place, reuse_key, send_again
from testproject.demo.partner import DELIVERY_SECONDS, FAULTS, LATE_SECONDS, all_delivered, told
from testproject.demo.partner import environment as destinations
from testproject.demo.plan import SCRIPTS, Fault, OrderRow, Plan
from testproject.demo.progress import Progress, Screen
from testproject.demo.verdict import reasons
from testproject.demo.waiting import Patience
from testproject.demo.workers import Workers
from testproject.payments.process import ProviderProcess
from testproject.receiver.process import ReceiverProcess, new_secret
from testproject.shop.models import Order

RUN_SECONDS = 165.0
DRAIN_SECONDS = 120.0
PROGRESS_EVERY = 0.25  # seconds
UNFINISHED = ("scheduled", "queued", "running", "failed")
FIRST, SECOND = 100, 90  # priorities: the order of the worker that is frozen, then that of the process that is killed
TIMES = {
    "JOBS_HEARTBEAT": "2",
    "JOBS_REAPER_TICK": "1",
    "JOBS_EXPIRED_PATIENCE": "5",
    "JOBS_GRACE": "15",
    "JOBS_POLL": "1",
    "SHOP_CHARGE_BUDGET": "8",
    "SHOP_CHARGE_CLEANUP": "2",
    "SHOP_RETRY_BASE": "1",
    "JOBS_DELIVERY_TIMEOUT": str(DELIVERY_SECONDS),
    "JOBS_EMAIL_BACKEND": "django.core.mail.backends.filebased.EmailBackend",
}
# A beat can wait for SQLite's lock as long as the busy time-out of 5 s; silence is judged with three times as much.
SILENT_AFTER = {"sqlite": "15", "postgresql": "6"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run found out; without reasons it passed."""

    figures: Figures
    evidence: list[Evidence]
    reasons: list[str]


def environment(provider: ProviderProcess, partner: ReceiverProcess, mails: Path) -> Mapping[str, str]:
    """Return what the workers' environment has beside the demo's own: short times, and where the others are."""
    return {
        **TIMES,
        "JOBS_SILENT_AFTER": SILENT_AFTER[connection.vendor],
        "PAYMENTS_URL": provider.url,
        "JOBS_DESTINATIONS": destinations(partner.events_url, partner.secret),
        "EMAIL_FILE_PATH": str(mails),
    }


class Run:
    """The demo's script; everything it starts ends with the stack that it is given."""

    def __init__(
        self,
        plan: Plan,
        *,
        stream: Screen,
        stack: ExitStack,
        check: Callable[[], None],
        ledger: Path | None = None,
    ) -> None:
        self.plan = plan
        self._check = check  # raises when somebody wants the run to end
        self.seen = Seen()
        self.progress = Progress(stream, total=len(plan.rows), label="orders decided")
        self.patience = Patience(seconds=RUN_SECONDS, tick=self._tick)
        self.provider = stack.enter_context(ProviderProcess(ledger=ledger))
        faults = FAULTS if plan.meets(Fault.PARTNER) else ()
        self.partner = stack.enter_context(
            ReceiverProcess(secret=new_secret(), faults=faults, late_seconds=LATE_SECONDS)
        )
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="demo-")))
        self.mails = folder / "mails"
        self.mails.mkdir()
        environ = environment(self.provider, self.partner, self.mails)
        self.workers = stack.enter_context(Workers(environment=environ, logs=folder))
        self._ticked_at = 0.0

    def carry_out(self) -> Result:
        """Place, freeze, kill, repeat, wake, wait, decide, stop and judge."""
        try:
            frozen = self._freeze()
            self._kill()
            self._place_all(self.plan.halves()[1])
            self._repeat()
            self._wake(frozen)
            self.patience.until("every job and delivery to end", self._all_ended, seconds=DRAIN_SECONDS)
            self._decide()
            self.patience.until("what was decided to end", self._all_ended, seconds=DRAIN_SECONDS)
            self.progress.update(self._decided())
            exits = self.workers.stop(self.patience)
        except DemoError as error:
            raise DemoError(f"{error}\n{self.workers.tails()}") from error
        finally:
            self.progress.close()
        return self._judge(exits)

    def _freeze(self) -> Frozen | None:
        """Start one worker with one thread on one order, so that nothing else can be under way when it is frozen."""
        placed = self._place(self.plan.row(Fault.FREEZE), priority=FIRST)
        north = self.workers.start("north", processes=1, threads=1)
        if not self.plan.meets(Fault.FREEZE):
            return None
        frozen = freeze_worker(self.provider, north, placed, self.patience, sqlite_file=file_of_database())
        self.progress.say(f"Worker {north.name} stands still while it waits for the charge of {placed.order.number}.")
        return frozen

    def _kill(self) -> None:
        placed = self._place(self.plan.row(Fault.KILL), priority=SECOND)
        self._place_all(self.plan.halves()[0])
        self.workers.start("south", processes=2, threads=2)
        if self.plan.meets(Fault.KILL):
            self.seen.killed = killed = kill_child(self.provider, self.workers, placed, self.patience)
            self.progress.say(
                f"Process {killed.pid} was killed while it waited for the charge of {placed.order.number}."
            )

    def _wake(self, frozen: Frozen | None) -> None:
        if frozen is not None:
            self.seen.woken = wake_worker(self.provider, frozen, self.patience)
            self.progress.say(f"Worker {frozen.worker.name} goes on; its late write was refused.")

    def _repeat(self) -> None:
        twice = self.seen.placed[self.plan.numbers[Fault.DUPLICATE]]
        if self.plan.meets(Fault.DUPLICATE):
            self.seen.repeat = send_again(twice)
        if self.plan.meets(Fault.CONFLICT):
            self.seen.refusal = reuse_key(self.seen.placed[self.plan.numbers[Fault.CONFLICT]], other=twice.order)

    def _decide(self) -> None:
        """Do what is left to a person: replay the dead letter, and pay one order back."""
        if self.plan.meets(Fault.DEAD_LETTER):
            order = self.seen.placed[self.plan.numbers[Fault.DEAD_LETTER]].order
            dead = Job.objects.dead().get(subject=f"order:{order.pk}", job_type="shop.note_order")
            order.customer = self.plan.row(Fault.DEAD_LETTER).customer
            order.save(update_fields=["customer"])
            self.seen.replayed = replay(dead)
            self.progress.say(f"The dead letter about {order.number} was replayed on the admin's page.")
        if self.plan.meets(Fault.REFUND):
            placed = self.seen.placed[self.plan.numbers[Fault.REFUND]]
            self.seen.refunded = refund(placed.order.pk, placed.job.id)
            self.progress.say(f"The charge of {placed.order.number} is being taken back.")

    def _place_all(self, rows: list[OrderRow]) -> None:
        for row in rows:
            self._place(row)
            self._tick()

    def _place(self, row: OrderRow, *, priority: int | None = None) -> Placed:
        if row.number == self.plan.numbers[Fault.DEAD_LETTER] and self.plan.meets(Fault.DEAD_LETTER):
            row = replace(row, customer="")
        placed = place(row, priority=priority, before_commit=lambda order: self._script(order))
        self.seen.placed[row.number] = placed
        return placed

    def _script(self, order: Order) -> None:
        """Tell the provider what to do to this order's first charge, before a worker can see the order."""
        for fault, (name, seconds) in SCRIPTS.items():
            if self.plan.numbers[fault] == order.number and self.plan.meets(fault):
                self.provider.script(order.pk, name, seconds=seconds)

    def _tick(self) -> None:
        self._check()
        if time.monotonic() - self._ticked_at >= PROGRESS_EVERY:
            self._ticked_at = time.monotonic()
            self.progress.update(self._decided())
            self.workers.check_alive()

    def _decided(self) -> int:
        return Order.objects.decided().count()

    def _all_ended(self) -> bool:
        return all_delivered() and not Job.objects.in_state(*UNFINISHED).exists()

    def _judge(self, exits: Mapping[str, int]) -> Result:
        ledger = self.provider.ledger()
        refusal = self.seen.refusal
        heard = told(self.partner.report(), self.mails)
        figures = count(ledger, heard, conflicts=int(refusal is not None and not refusal.stored))
        evidence = gather(self.plan, self.seen, ledger, heard)
        wrong = reasons(figures=figures, evidence=evidence, ledger=ledger, heard=heard, exits=exits, verify=verify())
        return Result(figures=figures, evidence=evidence, reasons=wrong)
