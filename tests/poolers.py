"""A PgBouncer in transaction mode before a PostgreSQL of the tests: what many sites have between Django and the server."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import psycopg

from tests.clusters import _free_port, _reachable_folder, _server_user

NO_PGBOUNCER = "These tests need PgBouncer: apt-get install pgbouncer, or run without '-m pgbouncer'."
START_TIMEOUT = 20  # seconds
PR_SET_PDEATHSIG = 1

CONFIG = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
admin_users = {user}
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 300
logfile = {folder}/log
pidfile = {folder}/pid
ignore_startup_parameters = extra_float_digits,options
"""

# What a session would keep for whoever comes next. The server's own defaults are the measure.
LEFT_BEHIND = """
SELECT 'prepared statement: ' || left(statement, 60) FROM pg_prepared_statements
UNION ALL SELECT 'listens on: ' || channel FROM pg_listening_channels() AS channel
UNION ALL SELECT 'advisory lock' FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
UNION ALL SELECT 'temporary table' WHERE pg_my_temp_schema() <> 0
UNION ALL SELECT 'setting: ' || name || '=' || setting FROM pg_settings
WHERE source = 'session' AND name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout',
    'plan_cache_mode', 'search_path', 'role', 'default_transaction_isolation')
"""


def find_pgbouncer() -> str | None:
    """Return the program, if this machine has it."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


class Pooler:
    """One PgBouncer; usable as a context manager, and gone with its files after it."""

    def __init__(self, url: str, *, pool_size: int = 6) -> None:
        self._parts = urlsplit(url)
        self._pool_size = pool_size
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()

    def __enter__(self) -> Pooler:
        program = find_pgbouncer()
        assert program is not None, NO_PGBOUNCER
        owner = _server_user()  # it refuses to run as root
        self._folder = Path(tempfile.mkdtemp(prefix="django-jobs-pooler-", dir=_reachable_folder(owner)))
        self._write_files()
        rights: dict[str, Any] = {}
        if owner is not None:
            for path in (self._folder, *self._folder.iterdir()):
                os.chown(path, owner.pw_uid, owner.pw_gid)
            rights = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        self._process = subprocess.Popen(
            [program, "-q", str(self._folder / "config")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            preexec_fn=_die_with_parent,
            **rights,
        )
        self._wait_until_it_answers()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=10)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """The URL of the database behind it, with the setting that Django asks for behind such a pooler."""
        user = self._parts.netloc.rpartition("@")[0] or "postgres"
        netloc = f"{user}@127.0.0.1:{self._port}"
        return urlunsplit(self._parts._replace(netloc=netloc, query="DISABLE_SERVER_SIDE_CURSORS=True"))

    @property
    def dsn(self) -> str:
        """The same without Django's settings."""
        return self.url.partition("?")[0]

    def left_behind(self) -> list[str]:
        """Return what was left in the server's sessions, all of which are taken at once to look into them."""
        found: list[str] = []
        with contextlib.ExitStack() as stack:
            for _ in range(self._pool_size):
                connection = stack.enter_context(psycopg.connect(self.dsn, prepare_threshold=None))
                found += [row[0] for row in connection.execute(LEFT_BEHIND)]  # its transaction keeps the session
        return found

    def order(self, text: str) -> None:
        """Give the pooler an order of its console: PAUSE, RESUME, RECONNECT, KILL and the like."""
        user = unquote(self._parts.username or "postgres")
        with psycopg.connect(
            host="127.0.0.1", port=self._port, user=user, dbname="pgbouncer", autocommit=True, prepare_threshold=None
        ) as console:
            console.execute(text, prepare=False)

    def session(self) -> dict[str, str]:
        """Return every setting of one of the server's sessions, and which session it is."""
        with psycopg.connect(self.dsn, prepare_threshold=None) as connection:
            found = connection.execute("SELECT name, setting FROM pg_settings").fetchall()
            pid = connection.execute("SELECT pg_backend_pid()").fetchone()
            return {**dict(found), "(session)": str(pid)}

    def _write_files(self) -> None:
        query = parse_qs(self._parts.query)
        host = self._parts.hostname or (query.get("host") or ["127.0.0.1"])[0]
        user, password = unquote(self._parts.username or "postgres"), unquote(self._parts.password or "")
        (self._folder / "users").write_text(f'"{user}" "{password}"\n')
        (self._folder / "config").write_text(
            CONFIG.format(
                host=host,
                port=self._parts.port or 5432,
                own_port=self._port,
                folder=self._folder,
                user=user,
                pool_size=self._pool_size,
            )
        )

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                with psycopg.connect(self.dsn, connect_timeout=5, prepare_threshold=None) as probe:
                    probe.execute("SELECT 1")
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline or (self._process and self._process.poll() is not None):
                    log = self._folder / "log"
                    told = log.read_text()[-2000:] if log.exists() else "(no log)"
                    raise RuntimeError(f"PgBouncer did not start: {error}\n{told}") from error
                threading.Event().wait(0.05)
            else:
                return


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
