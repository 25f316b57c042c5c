"""Somebody who waits for the result of a job while its worker is hit."""

from __future__ import annotations

import json
import threading
from typing import Any

from django.db import connections

from django_jobs.enqueue.waiting import wait
from django_jobs.exceptions import JobFailedError
from django_jobs.models import JobPayload


class Waiting:
    """A thread inside ``result.get()``, as a request or a script would be."""

    def __init__(self, job_id: Any, *, seconds: float) -> None:
        self._job_id, self._seconds = job_id, seconds
        self._end: object = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._end = wait(self._job_id, using="default", timeout=self._seconds)
        except BaseException as error:  # the test looks at it
            self._end = error
        finally:
            connections.close_all()

    def judge(self, state: str) -> None:
        """See that it got the result of a success, and is told of every other end; never a time-out."""
        self._thread.join(timeout=self._seconds)
        assert not self._thread.is_alive(), "result.get() still waits"
        if state == "succeeded":
            stored = JobPayload.objects.get(pk=self._job_id).result
            assert self._end == (stored and json.loads(stored)), f"result.get() of a success: {self._end!r}"
        else:
            assert isinstance(self._end, JobFailedError), f"result.get() of a job that is {state}: {self._end!r}"
