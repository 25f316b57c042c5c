"""A pre-forking web server in miniature: uses the database, forks children, and each of them enqueues.

Prints one line per child: its server process, how many jobs it stored, and how many duplicates it met.
"""

from __future__ import annotations

import os
import sys

import django


def main(children: int, jobs: int) -> None:
    """Fork the children, wait for all, and end with an error when one of them did."""
    django.setup()
    from django.db import connection

    from tests.declared import charge

    charge.enqueue(order_id="parent")
    connection.close()
    print("ready", flush=True)
    sys.stdin.readline()
    pids = [_fork(number, jobs) for number in range(children)]
    failed = [pid for pid in pids if os.waitpid(pid, 0)[1] != 0]
    raise SystemExit(len(failed))


def _fork(number: int, jobs: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _produce(number, jobs)
        code = 0
    finally:
        os._exit(code)


def _produce(number: int, jobs: int) -> None:
    from django.db import connection

    from tests.declared import charge

    outcomes = [charge.enqueue(order_id="parent").outcome]
    outcomes += [charge.enqueue(order_id=f"{number}-{place}").outcome for place in range(jobs // 2)]
    many = charge.enqueue_many({"order_id": f"{number}-{place}"} for place in range(jobs))
    outcomes += [result.outcome for result in many]
    server = os.getpid()
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            server = cursor.fetchone()[0]
    os.write(1, f"{server} {outcomes.count('created')} {outcomes.count('duplicate')}\n".encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
