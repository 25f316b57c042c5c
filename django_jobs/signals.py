"""Django signals of the package."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import connections, transaction
from django.dispatch import Signal

#: Somebody who answers for a job should look. Receivers get ``reason``, ``owner`` (empty: nobody was named),
#: ``job_id``, ``job_type``, ``message`` (masked) and ``details`` (a dict: for a dead letter ``dead_reason``,
#: ``attempts``, ``first_error_type`` and ``first_error``). Sent in the process that noticed it, after the commit of
#: what it tells of; what a receiver raises is logged and changes nothing.
owner_alert = Signal()

_NAMES = ("reason", "owner", "job_id", "job_type", "message")


def relay(event: str, fields: Mapping[str, object]) -> None:
    """Send the signal for an alert that telemetry tells."""
    if event != "owner.alert":
        return
    told = {name: fields.get(name, "") for name in _NAMES}
    told["details"] = {name: value for name, value in fields.items() if name not in {*_NAMES, "using"}}
    using = fields.get("using")
    if using is None or not _tells_of_commits(str(using)):
        owner_alert.send_robust(sender=None, **told)
    else:  # inside a transaction of the caller: it may be rolled back, and a receiver's query must not end it
        transaction.on_commit(lambda: owner_alert.send_robust(sender=None, **told), using=str(using), robust=True)


def _tells_of_commits(using: str) -> bool:
    """Say whether Django knows when the transaction commits; with autocommit switched off only the caller does."""
    connection = connections[using]
    return connection.in_atomic_block or connection.get_autocommit()
