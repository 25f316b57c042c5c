"""``manage.py runworker``: serve jobs until stopped."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections, router

from django_jobs.conf import get_settings
from django_jobs.define import registry
from django_jobs.domain.identity import check_name
from django_jobs.domain.ids import uuid7
from django_jobs.exceptions import DefinitionError, HeartbeatFileError, KeyFormatError
from django_jobs.faults.arming import arm_from_environment
from django_jobs.hooks import hooks
from django_jobs.management import reload
from django_jobs.management.numbers import age, at_least_one, at_least_zero, port_number, seconds
from django_jobs.models import Job
from django_jobs.operate.batch_runner import BATCHES
from django_jobs.operate.replay_runner import REPLAYS
from django_jobs.operate.schedule_runner import SCHEDULES
from django_jobs.operate.turn_runner import TURNS
from django_jobs.worker import chores
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.heartbeat_file import check as check_heartbeat_file
from django_jobs.worker.outlet import Outlet, port
from django_jobs.worker.supervisor import Supervisor

logger = logging.getLogger("django_jobs.worker")


def worker_name(text: str) -> str:
    """Read what a worker is called, in the signs that logs and rows keep as they are; empty: host and process."""
    try:
        return check_name(text, what="name", limit=128) if text else text
    except KeyFormatError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_worker_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a worker; ``jobs work`` has the same."""
    rules = get_settings()
    parser.add_argument(
        "--queue", action="append", default=[], dest="queues", metavar="NAME", help="Serve this queue only; repeatable."
    )
    parser.add_argument(
        "--exclude-queue",
        action="append",
        default=[],
        dest="excluded",
        metavar="NAME",
        help="Serve every queue but this one; repeatable. Not together with --queue.",
    )
    parser.add_argument(
        "--threads",
        type=at_least_one,
        default=rules.threads,
        help="Handlers at once per process (default: %(default)s).",
    )
    parser.add_argument(
        "--coroutines",
        type=at_least_zero,
        default=rules.coroutines,
        help="Coroutines at once on the event loop of each process, beside its threads; 0: each takes a thread "
        "(default: %(default)s).",
    )
    parser.add_argument(
        "--processes", type=at_least_one, default=rules.processes, help="Child processes (default: %(default)s)."
    )
    parser.add_argument(
        "--grace",
        type=seconds,
        default=rules.grace.total_seconds(),
        help="Seconds that a stop waits for running handlers (default: %(default)s).",
    )
    parser.add_argument(
        "--name", type=worker_name, default="", help="Shown in the admin and on each attempt (default: host and pid)."
    )
    parser.add_argument(
        "--heartbeat-file",
        default=rules.heartbeat_file,
        metavar="PATH",
        help="Keep a file there that tells how this worker is, for 'jobs alive' (default: the setting HEARTBEAT_FILE).",
    )
    parser.add_argument(
        "--metrics-port",
        type=port_number,
        default=0,
        metavar="PORT",
        help="Answer /metrics, /livez and /readyz there; 0: do not (default: %(default)s).",
    )
    parser.add_argument(
        "--metrics-address",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="The address to answer on; 0.0.0.0 for every one of this machine (default: %(default)s).",
    )
    parser.add_argument("--drain", action="store_true", help="Stop when nothing waits any more.")
    _add_recycling(parser)
    parser.add_argument(
        "--reload",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="Start anew when code changes. Only with DEBUG, where it is the default; never together with --drain.",
    )
    parser.add_argument("--database", default="", help="Database alias (default: where the router writes jobs).")


def _add_recycling(parser: argparse.ArgumentParser) -> None:
    """Offer when a child process is replaced by a fresh one, after its jobs have ended."""
    parser.add_argument(
        "--recycle-jobs",
        type=at_least_one,
        default=0,
        metavar="N",
        help="Replace a child process that has started so many jobs, up to a tenth earlier (default: never).",
    )
    parser.add_argument(
        "--recycle-age",
        type=age,
        default=0.0,
        metavar="SECONDS",
        help="Replace a child process that has served for so long, up to a tenth earlier (default: never).",
    )
    parser.add_argument(
        "--recycle-memory",
        type=at_least_one,
        default=0,
        metavar="MIB",
        help="Replace a child process that uses more memory; Linux only (default: never).",
    )


def work(options: dict[str, Any]) -> int:
    """Run a worker, or a reloader that runs one; returns its exit code."""
    if reload.is_wanted(options):
        return reload.Reloader().run()
    reload.end_with_reloader()
    alias = options["database"] or router.db_for_write(Job)
    if alias not in connections:
        msg = f"There is no database {alias!r} in DATABASES."
        raise CommandError(msg, returncode=2)
    if options["queues"] and options["excluded"]:
        msg = "--exclude-queue leaves queues out of all others; together with --queue it means nothing."
        raise CommandError(msg, returncode=2)
    _warn_root()
    path = options["heartbeat_file"]
    try:
        if path:
            check_heartbeat_file(Path(path))
    except HeartbeatFileError as error:
        raise CommandError(str(error), returncode=2) from None
    try:
        hooks()  # also with --skip-checks: one that cannot be loaded would fail every job
        arm_from_environment(supervisor=os.getpid())
    except (DefinitionError, ValueError) as error:
        raise CommandError(str(error), returncode=2) from None
    host = socket.gethostname()
    config = WorkerConfig(
        worker_id=str(uuid7()),
        name=options["name"] or f"{host}:{os.getpid()}",
        database=alias,
        queues=tuple(options["queues"]),
        excluded=tuple(options["excluded"]),
        threads=options["threads"],
        coroutines=options["coroutines"] if registry.has_coroutines() else 0,
        processes=options["processes"],
        grace=options["grace"],
        poll=get_settings().poll.total_seconds(),
        drain=options["drain"],
        recycle_jobs=options["recycle_jobs"],
        recycle_age=options["recycle_age"],
        recycle_memory=options["recycle_memory"],
        heartbeat_file=str(Path(path).absolute()) if path else "",
    )
    chores.register(REPLAYS)
    chores.register(SCHEDULES)
    chores.register(TURNS)
    chores.register(BATCHES)
    return Supervisor(config, host=host, outlet=_outlet(config, options)).run()


def _warn_root() -> None:
    """Say it when handlers would have every right on this machine: what takes over a handler takes over all."""
    if getattr(os, "geteuid", lambda: 1)() == 0 and not settings.DEBUG:  # a container for development is nobody's host
        logger.warning("The worker runs as root. Run it as a user of its own, which may do what its handlers need")


def _outlet(config: WorkerConfig, options: dict[str, Any]) -> Outlet | None:
    number = options["metrics_port"]
    if not number or port.make is None:
        return None
    try:
        return port.make(config, options["metrics_address"], number)
    except OSError as error:
        place = f"{options['metrics_address']}:{number}"
        msg = f"Metrics cannot be served on {place}: {error.strerror or error}. Is another worker there?"
        raise CommandError(msg, returncode=2) from None


class Command(BaseCommand):
    """Serve jobs until stopped. TERM or INT drains, a second one stops at once; HUP drains; QUIT shows all stacks.

    Exit codes: 0 stopped or drained, 1 failure, 2 usage, 3 the grace was over before every handler had ended.
    """

    help = "Run a worker: a supervisor and its child processes."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        add_worker_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until stopped."""
        code = work(options)
        if code:
            sys.exit(code)
