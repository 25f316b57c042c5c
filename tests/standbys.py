"""A second PostgreSQL that follows a first one by streaming, and takes its place when it is told to."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.acceptance.workers import wait_for
from tests.clusters import Cluster, ClusterError, _children


@dataclass(slots=True, kw_only=True)
class Standby(Cluster):
    """A copy of ``primary``, which has to run; it has the same roles and passwords."""

    primary: Cluster

    def follow(self, *, synchronous: bool) -> None:
        """Start, and wait until every commit of the primary arrives here: before it is told, or soon after."""
        self._password = self.primary._password
        self.start()
        with psycopg.connect(self.primary.url(), autocommit=True) as admin:
            if synchronous:
                admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                admin.execute("SELECT pg_reload_conf()")
            wanted = "sync" if synchronous else "async"
            query = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"
            wait_for(lambda: admin.execute(query).fetchall() == [(wanted,)], what=f"{wanted} replication")

    def promote(self) -> None:
        """Take the place of the primary; returns when this server takes writes."""
        if not self._pg_ctl("promote", "-w", "-t", "60"):
            raise ClusterError(f"The standby was not promoted. The end of its log:\n{self._log()}")

    def stop_hearing(self) -> None:
        """Have nothing of the primary's commits arrive here any more, while the primary tells its clients that all is well."""
        senders = [pid for pid in _children(self.primary.pid) if "walsender" in _title(pid)]
        assert senders, "nobody streams"
        for pid in senders:
            os.kill(pid, signal.SIGSTOP)

    def _fill(self, folder: Path, programs: Path) -> None:
        parts = urlsplit(self.primary.url())
        source = f"host=127.0.0.1 port={parts.port} user={parts.username} password={parts.password}"
        command: list[str | Path] = [
            programs / "pg_basebackup",
            "-D",
            folder / "data",
            "-d",
            source,
            "-R",
            "-c",
            "fast",
        ]
        made = self._run([*command, "-X", "stream", "--no-sync"])
        if made.returncode != 0:
            raise ClusterError(f"pg_basebackup failed: {made.stdout.strip()}")


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
