"""A server of the test project as a process of its own: started, asked, steered and ended by whoever needs it."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self

PROJECT_ROOT = Path(__file__).resolve().parents[1]
CONTROL_SECONDS = 10.0
STOP_SECONDS = 5.0
READY = "listening on "


class ServerError(Exception):
    """A server did not start, or refused a control request; the message says why."""


class ServerProcess:
    """
    One server in a process and session of its own; use it as a context manager.

    Its module prints one line, `listening on http://127.0.0.1:PORT`, and takes `--port` and `--stop-with-stdin`: it
    also ends when the process that started it dies, however that happens.
    """

    def __init__(self, module: str, arguments: list[str], *, port: int = 0, start_timeout: float = 15.0) -> None:
        self._module = module
        self._arguments = arguments
        self._port = port
        self._start_timeout = start_timeout
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.tidy()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self.tidy()

    @property
    def url(self) -> str:
        """The base URL; it stays the same over restarts."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise ServerError("The server is not running: call start() first.")
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it listens; ServerError after `start_timeout` seconds."""
        if self._process is not None:
            raise ServerError("The server is running already.")
        paths = [str(PROJECT_ROOT), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module, "--port", str(self._port), "--stop-with-stdin", *self._arguments],
            cwd=PROJECT_ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the demo's terminal is for the demo, which then stops its servers
        )
        try:
            line = _first_line(self._process, seconds=self._start_timeout)
            self._port = int(line.removeprefix(READY).rpartition(":")[2])
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End the server with SIGTERM (SIGKILL if that takes more than 5 s); nothing happens if it is down."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap()

    def kill(self) -> None:
        """End the server with SIGKILL and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def restart(self) -> None:
        """Start again with the same port, after a stop if it runs."""
        self.stop()
        self.start()

    def tidy(self) -> None:
        """Remove what the server left behind; called at the end."""

    def call(self, method: str, path: str, *, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send one control request and return its answer; ServerError if it was refused."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=CONTROL_SECONDS)
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body))
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        finally:
            connection.close()
        if response.status != 200:
            error = answer["error"]
            raise ServerError(f"{method} {path} was refused: {error['message'] if isinstance(error, dict) else error}")
        return answer

    def _reap(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.wait(STOP_SECONDS)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _first_line(process: subprocess.Popen[bytes], *, seconds: float) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + seconds
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(deadline - time.monotonic(), 0.0)):
                raise ServerError(f"The server did not listen within {seconds:g} s.")
            chunk = os.read(process.stdout.fileno(), 1024)
            if not chunk:
                raise ServerError("The server ended before it listened; its error output says why.")
            line += chunk
    return line.decode().strip()
