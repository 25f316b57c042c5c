"""The verbs that decide about one job: replay, discard, run-now and expire-lease."""

from __future__ import annotations

from django.core.management.base import CommandError, CommandParser

from django_jobs.management.deciding import add_job, add_operator, decide, job_of, start_of, usage
from django_jobs.management.deciding_many import add_cancel, add_selection, cancel, check_alone, many_of
from django_jobs.management.verb import USAGE, Options, Verb, Write
from django_jobs.operate.discard import Discard
from django_jobs.operate.drain_worker import DrainWorker, WorkerNotFoundError, find_worker
from django_jobs.operate.expire_lease import ExpireLease
from django_jobs.operate.listing import parse_span
from django_jobs.operate.replay import Replay
from django_jobs.operate.run_now import RunNow


def _add_replay(parser: CommandParser) -> None:
    parser.add_argument(
        "job",
        metavar="JOB",
        nargs="?",
        help="The job's id, or its first 8 digits or more if no other begins so. Without it: the jobs of a selection.",
    )
    add_operator(parser)
    add_start(parser)
    add_selection(parser)


def add_start(parser: CommandParser) -> None:
    """Offer what a replay may add: attempts, a later start, a new time of usefulness."""
    parser.add_argument(
        "--extra-attempts", type=int, default=0, metavar="N", help="So many unknown errors more than the policy allows."
    )
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--run-after", metavar="TIME", help="Not before: 2026-11-29T18:00 (UTC unless it says so).")
    start.add_argument("--in", dest="span", metavar="SPAN", help="After how long: 30m, 2h, 7d.")
    parser.add_argument(
        "--useful-for", metavar="SPAN", help="From its start, how long the result is useful: 30m, 2h, 7d."
    )


def _replay(options: Options, write: Write) -> int:
    if options["job"] is None:
        return decide(usage(lambda: many_of(options)), options, write)
    check_alone(options)
    job = job_of(options)
    decision = usage(
        lambda: Replay(
            job.pk,
            using=options["database"],
            extra_attempts=options["extra_attempts"],
            run_after=start_of(options),
            useful_for=parse_span(options["useful_for"]) if options["useful_for"] else None,
        )
    )
    return decide(decision, options, write)


def _discard(options: Options, write: Write) -> int:
    return decide(Discard(job_of(options).pk, using=options["database"]), options, write)


def _run_now(options: Options, write: Write) -> int:
    return decide(RunNow(job_of(options).pk, using=options["database"]), options, write)


def _expire_lease(options: Options, write: Write) -> int:
    return decide(ExpireLease(job_of(options).pk, using=options["database"]), options, write)


def _add_worker(parser: CommandParser) -> None:
    parser.add_argument("worker", metavar="WORKER", help="Its id, or its name if no other worker has it.")
    add_operator(parser)


def _drain_worker(options: Options, write: Write) -> int:
    try:
        worker = find_worker(options["worker"], using=options["database"])
    except WorkerNotFoundError as error:
        raise CommandError(str(error), returncode=USAGE) from None
    return decide(DrainWorker(worker.pk, using=options["database"]), options, write)


DECISION_VERBS: tuple[Verb, ...] = (
    Verb(
        name="drain-worker",
        help="Ask a worker to take no more jobs and stop; prints the plan, acts with --ack.",
        add_arguments=_add_worker,
        run=_drain_worker,
    ),
    Verb(
        name="replay",
        help="Run a dead letter again as the same job, or many; prints the plan, acts with --ack.",
        add_arguments=_add_replay,
        run=_replay,
    ),
    Verb(
        name="discard",
        help="Settle a dead letter for good: nothing of it runs again; prints the plan, acts with --ack.",
        add_arguments=add_job,
        run=_discard,
    ),
    Verb(
        name="run-now",
        help="Run a job now that waits for its time; prints the plan, acts with --ack.",
        add_arguments=add_job,
        run=_run_now,
    ),
    Verb(
        name="expire-lease",
        help="End the wrong lease of a running job, so that it is taken back; prints the plan, acts with --ack.",
        add_arguments=add_job,
        run=_expire_lease,
    ),
    Verb(
        name="cancel-replay",
        help="End a replay of many; prints the plan, acts with --ack.",
        add_arguments=add_cancel,
        run=cancel,
    ),
)
