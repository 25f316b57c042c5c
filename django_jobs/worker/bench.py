"""Calls that a coroutine sends to the thread of its attempt, which has the connection and perhaps a transaction."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

_Call = tuple[Future[Any], Callable[[], Any]]


class Bench(Executor):
    """Runs calls in the thread that serves it."""

    LOOK_EVERY = 0.25  # seconds

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._pid = os.getpid()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have the serving thread call a function.

        Raises:
            RuntimeError: Nobody serves it any more.
        """
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                msg = "The attempt has ended; what its coroutine left running can call nothing in its thread any more."
                raise RuntimeError(msg)
            self._calls.put((future, lambda: fn(*args, **kwargs)))
        return future

    def serve(self, look: Callable[[bool], object] = lambda _: None, *, until: float | None = None) -> bool:
        """Make the calls until :meth:`end` is called.

        Args:
            look: Called every now and then, and told whether no call came since.
            until: When to give up, of the monotonic clock.

        Returns:
            Whether it was ended, also by a call that made a copy of this process and came back there.
        """
        looked_at = time.monotonic()
        while until is None or time.monotonic() < until:
            if time.monotonic() - looked_at >= self.LOOK_EVERY:  # calls that come one after the other stop no look
                looked_at = time.monotonic()
                look(False)
            try:
                call = self._calls.get(timeout=self.LOOK_EVERY)
            except queue.Empty:
                looked_at = time.monotonic()
                look(True)
                continue
            if call is None:
                return True
            self._make(*call)
            del call
            if self._pid != os.getpid():
                return True
        return False

    def end(self) -> None:
        """Let the serving thread go when it has made the calls that wait."""
        self._calls.put(None)

    def close(self) -> None:
        """Refuse further calls, and cancel those that wait."""
        with self._lock:
            self._closed = True
        while not self._calls.empty():
            call = self._calls.get()
            if call is not None:
                call[0].cancel()

    def _make(self, future: Future[Any], call: Callable[[], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        value: Any = None
        failure: BaseException | None = None
        try:
            value = call()
        except BaseException as error:  # noqa: BLE001  it belongs to whoever awaits the call
            failure = error
        if self._pid != os.getpid():
            return  # nobody waits for it in a copy
        if failure is None:
            future.set_result(value)
        else:
            future.set_exception(failure)
            del future, failure  # the error's traceback holds this frame
