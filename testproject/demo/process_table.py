"""The processes of this machine as /proc shows them, or `ps` where there is no /proc."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
PS = ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,args="]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process; `state` is a letter (T: stopped, Z: dead and not yet reaped)."""

    pid: int
    parent: int
    group: int
    state: str
    command: str

    @property
    def is_stopped(self) -> bool:
        """Whether a signal such as SIGSTOP holds it."""
        return self.state in {"T", "t"}

    @property
    def is_dead(self) -> bool:
        """Whether only its entry is left."""
        return self.state in {"Z", "X"}


def processes() -> list[Process]:
    """Return every process that can be seen."""
    if (PROC / "self" / "stat").exists():
        return [found for path in PROC.glob("[0-9]*") if (found := _from_proc(path))]
    listed = subprocess.run(PS, capture_output=True, text=True, check=True).stdout
    return [_from_line(line) for line in listed.splitlines()]


def in_group(group: int) -> list[Process]:
    """Return the living processes of a group."""
    return [process for process in processes() if process.group == group and not process.is_dead]


def _from_proc(path: Path) -> Process | None:
    try:
        stat = (path / "stat").read_text(errors="replace")
        command = (path / "cmdline").read_bytes().decode(errors="replace")
    except OSError:  # it ended between the listing and the look
        return None
    # The second field is the program's name in parentheses and may hold blanks and parentheses itself.
    state, parent, group = stat.rpartition(")")[2].split()[:3]
    return Process(
        pid=int(path.name),
        parent=int(parent),
        group=int(group),
        state=state,
        command=command.replace("\0", " ").strip(),
    )


def _from_line(line: str) -> Process:
    pid, parent, group, state, *command = line.split(None, 4)
    return Process(
        pid=int(pid), parent=int(parent), group=int(group), state=state[0], command=command[0] if command else ""
    )
