"""What notifications cost many producers at once: the same enqueues without them, and with a sleeper to notify."""

from __future__ import annotations

import multiprocessing
import time
from datetime import timedelta

PRODUCERS = 32


def measure(jobs: int) -> None:
    """Print both rates; the second with a listener, and with the queue's sleep announced all the time."""
    rates = {}
    for notify in (False, True, True, False):  # in both orders: the table grows meanwhile
        rates.setdefault(notify, []).append(_rate(jobs, notify=notify))
    without, with_notify = (max(rates[notify]) for notify in (False, True))
    print(
        f"{PRODUCERS} producers, one job per commit      {without:8.0f}/s without NOTIFY, {with_notify:8.0f}/s with a "
        f"sleeper to notify   ratio {with_notify / without:5.2f}",
        flush=True,
    )


def _rate(jobs: int, *, notify: bool) -> float:
    from django.db import connections

    from django_jobs import clock
    from django_jobs.models import QueueControl
    from tests.ears import Ear

    until = clock.now() + timedelta(hours=1)
    QueueControl.objects.update_or_create(queue_name="default", defaults={"idle_until": until if notify else None})
    entry = connections.settings["default"]
    url = f"postgres://{entry['USER']}:{entry['PASSWORD']}@{entry['HOST']}:{entry['PORT']}/{entry['NAME']}"
    connections.close_all()
    context = multiprocessing.get_context("fork")
    start = context.Barrier(PRODUCERS + 1)
    each = max(1, jobs // PRODUCERS)
    producers = [context.Process(target=_produce, args=(each, start)) for _ in range(PRODUCERS)]
    for producer in producers:
        producer.start()
    with Ear(url):
        start.wait()
        began = time.perf_counter()
        for producer in producers:
            producer.join()
        took = time.perf_counter() - began
    QueueControl.objects.update(idle_until=None)
    return each * PRODUCERS / took


def _produce(count: int, start: object) -> None:
    from tests.benchmarks.handlers import noop

    noop.enqueue(number=-1)
    start.wait()  # type: ignore[attr-defined]
    for number in range(count):
        noop.enqueue(number=number)
