"""Looks at workers: silent ones, queues that nobody serves, code that differs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django_jobs.domain.served import Served
from django_jobs.models import Job, Worker
from django_jobs.operate.finding import Finding, Look, Surroundings, info, some, warning
from django_jobs.operate.wording import duration, relative
from django_jobs.store.waiting import known_queues

_REMEMBERED = timedelta(days=1)  # a worker that fell silent longer ago is history, unless it holds jobs


def worker_looks() -> tuple[Look, ...]:
    """Return the looks at workers."""
    return (_silent, _late, _queues_served, _code_versions)


def alive(around: Surroundings) -> list[Worker]:
    """Return the workers that say that they live and still take jobs."""
    return list(
        Worker.objects.using(around.using).filter(
            stopped_at__isnull=True,
            stopping_at__isnull=True,
            heartbeat_at__gt=around.now - around.rules.silent_after,
        )
    )


def _silent(around: Surroundings) -> Iterator[Finding]:
    silent = Worker.objects.using(around.using).filter(
        stopped_at__isnull=True, heartbeat_at__lte=around.now - around.rules.silent_after
    )
    holders = set(
        Job.objects.using(around.using).filter(state="running").values_list("lease_owner", flat=True).distinct()
    )
    told = [
        f"{worker.name} (last heard of {relative(worker.heartbeat_at, around.now)}"
        f"{', holds running jobs' if worker.pk in holders else ''})"
        for worker in silent.order_by("heartbeat_at")
        if worker.pk in holders or worker.heartbeat_at > around.now - _REMEMBERED
    ]
    if told:
        yield warning(
            "silent-worker",
            f"Workers fell silent without stopping: {some(told)}.",
            "Look at their hosts. Another live worker takes their jobs back; start one if there is none.",
        )


def _late(around: Surroundings) -> Iterator[Finding]:
    """Tell of workers that are not silent yet: they see this database badly, or stand still."""
    rules = around.rules
    late = Worker.objects.using(around.using).filter(
        stopped_at__isnull=True,
        heartbeat_at__lte=around.now - rules.blind_limit,
        heartbeat_at__gt=around.now - rules.silent_after,
    )
    told = [
        f"{worker.name} (last heard of {relative(worker.heartbeat_at, around.now)})"
        for worker in late.order_by("heartbeat_at")
    ]
    if told:
        yield warning(
            "blind-worker",
            f"Workers have not written a heartbeat for {duration(rules.blind_limit)}: {some(told)}. They are blind, or "
            "stand still.",
            "Ask 'manage.py jobs alive' on their hosts, and look at the network between them and the database.",
        )


def _queues_served(around: Surroundings) -> Iterator[Finding]:
    waiting = known_queues(using=around.using)
    workers = alive(around)
    if not workers:
        if waiting:
            yield warning(
                "no-worker",
                f"No worker is alive, and jobs wait in {some(waiting)}.",
                "Start 'manage.py runworker'.",
            )
        return
    served = [Served.from_text(worker.queues) for worker in workers]
    left = [queue for queue in waiting if not any(queue in one for one in served)]
    if left:
        yield warning(
            "queue-not-served",
            f"No live worker serves {some(left)}, and jobs wait there.",
            "Start a worker with --queue for each, or one without --queue.",
        )


def _code_versions(around: Surroundings) -> Iterator[Finding]:
    versions = sorted({worker.code_version for worker in alive(around) if worker.code_version})
    here = around.rules.code_version
    if len(versions) > 1:
        yield warning(
            "code-versions-differ",
            f"Live workers run different code: {some(versions)}.",
            "Wanted during a deployment; otherwise restart the older workers.",
        )
    elif here and versions and versions != [here]:
        yield info("code-version-here", f"Workers run code {versions[0]}, this process runs {here}.")
