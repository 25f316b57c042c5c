"""Django signals of the package."""

from __future__ import annotations

from collections.abc import Mapping

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
    details = {name: value for name, value in fields.items() if name not in _NAMES}
    owner_alert.send_robust(sender=None, details=details, **{name: fields.get(name, "") for name in _NAMES})
