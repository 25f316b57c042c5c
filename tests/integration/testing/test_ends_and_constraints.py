"""What the kit leaves to the test run, and what a job finds of its constraints: both as under a worker."""

from __future__ import annotations

import _thread
import asyncio
import signal
import threading
from collections.abc import Iterator

import pytest
from django.db import IntegrityError, connection, transaction

from django_jobs.models import Job
from django_jobs.testing import JobsKit
from tests.integration.testing.conftest import Declare


@pytest.mark.parametrize("is_coroutine", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.fail.Exception])
def test_r68_who_ends_the_test_run_is_heard(
    jobs: JobsKit, declare: Declare, error: type[BaseException], is_coroutine: bool
) -> None:
    """R68: Ctrl-C, and a time-out of pytest, end the test and not only the attempt, which would be tried again."""
    calls: list[int] = []

    def hangs() -> None:
        calls.append(1)
        raise error("enough")

    async def hangs_too() -> None:
        hangs()

    declare(hangs_too if is_coroutine else hangs).enqueue()

    with pytest.raises(error):
        jobs.run_until_idle()

    assert calls == [1]
    assert Job.objects.get().attempts.get().outcome == "failed"
    assert len(jobs.drain()) == 0, "the kit goes on"


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C as Python hears it, also where whoever started the tests has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_r68_ctrl_c_cancels_the_coroutine_that_is_waited_for(jobs: JobsKit, declare: Declare) -> None:
    """R68: Ctrl-C reaches the test's thread while the loop waits; the coroutine is cancelled, and its thread ends."""
    seen: list[object] = []

    async def hangs() -> None:
        seen.append(threading.current_thread())
        _thread.interrupt_main()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    declare(hangs).enqueue()

    with pytest.raises(KeyboardInterrupt):
        jobs.run_until_idle()

    assert seen[1:] == ["cancelled"]
    assert isinstance(seen[0], threading.Thread)
    seen[0].join(timeout=10)
    assert not seen[0].is_alive()


@pytest.mark.postgres
@pytest.mark.parametrize("opened", ["rolled_back"], indirect=True)
def test_r68_constraints_stay_as_immediate_as_they_are(jobs: JobsKit, declare: Declare) -> None:
    """R68: a unique constraint that is checked at once is so in the second job too, as under a worker."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE seats (n int UNIQUE DEFERRABLE INITIALLY IMMEDIATE)")
    caught: list[int] = []

    def sits() -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("INSERT INTO seats VALUES (1)")
        except IntegrityError:
            caught.append(1)

    handler = declare(sits)
    for _ in range(3):
        handler.enqueue()

    assert jobs.run_until_idle().outcomes == ["succeeded"] * 3
    assert caught == [1, 1]
