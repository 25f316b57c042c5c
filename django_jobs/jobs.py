"""Job types of the package itself, found like those of any other app."""

from __future__ import annotations

import uuid
from typing import Any

from django_jobs.define.decorators import job
from django_jobs.domain.compensation import COMPENSATION_TYPE, Agreed
from django_jobs.effects.adapters.mail import send_mail
from django_jobs.worker.compensating import take_back
from django_jobs.worker.context import JobContext


@job(type="django_jobs.send_email", takes_context=True)
def send_email(context: JobContext, message: dict[str, Any]) -> None:
    """Deliver one mail that the mail backend has stored; its result names the Message-ID."""
    receipt = context.effect("send", send_mail, message=message)
    with context.complete() as done:
        done.result = {"message_id": receipt.provider_ref, **receipt.result}


@job(type=COMPENSATION_TYPE, takes_context=True)
def compensate(
    context: JobContext,
    effect_id: uuid.UUID,
    by_hand: bool = False,
    operation: str = "",
    dedupe: str = "",
    request_digest: str = "",
) -> None:
    """Take an applied effect of another job back, as somebody decided; see ``django_jobs.operate.compensate``."""
    agreed = Agreed(operation=operation, dedupe=dedupe, request_digest=request_digest)
    take_back(context, effect_id, agreed=None if by_hand else agreed)
