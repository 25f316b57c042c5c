"""Who may do what: three groups that most sites need, each with all that the one before it has."""

from __future__ import annotations

from django.apps import apps
from django.db.models import Model

VIEWER, OPERATOR, LEAD = "Jobs: viewer", "Jobs: operator", "Jobs: lead"

_OPERATOR = frozenset(
    {
        *("replay_job", "discard_job", "cancel_job", "reschedule_job", "redispatch_outboxevent", "control_queue"),
        *("run_schedule", "bound_resource", "drain_worker"),
    }
)
_LEAD = frozenset(
    {
        "replay_job_bulk",
        "cancel_replayrequest",
        "expire_job_lease",
        "view_job_payload",
        "resolve_sideeffect",
        "compensate_sideeffect",
    }
)


def roles() -> dict[str, frozenset[str]]:
    """Return the codenames of each group: viewers see all but secrets, operators decide about jobs and deliveries.

    Leads also decide what cannot be taken back or concerns many: side effects, compensations, leases, bulk replays.
    """
    looking = frozenset(f"view_{model._meta.model_name}" for model in _models())  # noqa: SLF001  Django's public door
    return {VIEWER: looking, OPERATOR: looking | _OPERATOR, LEAD: looking | _OPERATOR | _LEAD}


def _models() -> list[type[Model]]:
    return list(apps.get_app_config("django_jobs").get_models())
