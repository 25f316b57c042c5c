"""The mail backend that makes each mail a durable job: it is recorded now and delivered by a worker.

Set ``EMAIL_BACKEND`` to ``"django_jobs.backends.email.EmailBackend"``, and ``DJANGO_JOBS["EMAIL_BACKEND"]`` to the
backend that delivers.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend

from django_jobs.domain.identity import canonical, fingerprint
from django_jobs.effects.adapters.mail_message import encode
from django_jobs.enqueue.inside import InsideJob, current
from django_jobs.exceptions import DefinitionError, JobsError
from django_jobs.jobs import send_email

logger = logging.getLogger("django_jobs.mail")

# How often this attempt has sent each mail: the same mail twice is two mails, the next attempt's are the same two.
_sent: ContextVar[tuple[InsideJob, Counter[str]] | None] = ContextVar("django_jobs_mails", default=None)


class EmailBackend(BaseEmailBackend):
    """Records mails instead of sending them: in the caller's transaction when one is open, else at once.

    A rollback takes the mail back. Inside a job each mail has a key made of the job and the mail, so that a handler
    that runs again does not repeat it.

    Raises:
        DefinitionError: A user name or password was given: it would have to be stored with the mail.
    """

    def __init__(
        self,
        fail_silently: bool = False,  # Django's signature
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.fail_silently = fail_silently
        if username is not None or password is not None:
            msg = (
                "A mail that becomes a job cannot carry a user name or password: they would be stored with it. "
                "Configure them for the backend that DJANGO_JOBS['EMAIL_BACKEND'] names."
            )
            raise DefinitionError(msg)

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        """Record one job per mail, and return how many.

        Raises:
            PayloadError: A mail cannot be stored, so none was recorded; with ``fail_silently`` this is logged only.
        """
        recorded = 0
        try:
            for encoded in [encode(message) for message in email_messages or () if message.recipients()]:
                _record(encoded)
                recorded += 1
        except JobsError:
            if not self.fail_silently:
                raise
            logger.exception("A mail was not recorded, and fail_silently was asked for")
        return recorded


def _record(message: dict[str, Any]) -> None:
    options: dict[str, Any] = {"detached": True}
    inside = current.get()
    if inside is not None:
        options["key"] = _key(inside, message)
    send_email.using(**options).enqueue(message=message)


def _key(inside: InsideJob, message: dict[str, Any]) -> str:
    digest = fingerprint(canonical(message))
    counted = _sent.get()
    if counted is None or counted[0] is not inside:
        counted = (inside, Counter())
        _sent.set(counted)
    counted[1][digest] += 1
    return f"mail:{inside.job_id}:{digest}:{counted[1][digest]}"
