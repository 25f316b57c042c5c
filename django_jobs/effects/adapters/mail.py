"""Sending a mail through Django's mail backends as an operation.

Nothing repeats a mail safely: a provider keeps no keys and cannot be asked. So all depends on how far a failed delivery
came. Until the DATA command nothing was handed over; a reply with a code is an answer; whatever breaks after DATA is
unknown. Other backends than SMTP do not tell how far they came: there only an answer with a code proves anything.
"""

from __future__ import annotations

import smtplib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from email.utils import formatdate, parseaddr
from typing import Any

from django.conf import settings
from django.core import mail
from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend
from django.core.mail.backends.smtp import EmailBackend as SMTPBackend
from django.utils.module_loading import import_string

from django_jobs.conf import get_settings
from django_jobs.domain import downstream
from django_jobs.domain.effects import Confirmed, Outcome, Rejected, Unknown
from django_jobs.domain.states import ErrorClass
from django_jobs.effects.adapter import effect
from django_jobs.effects.adapters.mail_message import decode
from django_jobs.effects.call import DeadlinePassedError, EffectCall
from django_jobs.exceptions import DefinitionError

OWN_BACKEND = "django_jobs.backends.email.EmailBackend"


@effect(
    "mail.send",
    dedupe="none",
    timeout=timedelta(seconds=10),
    docs="https://www.rfc-editor.org/rfc/rfc5321#section-6.1",
)
def send_mail(call: EffectCall, *, message: dict[str, Any]) -> Outcome:
    """Deliver one mail, encoded by :func:`django_jobs.effects.adapters.mail_message.encode`.

    Message-ID and Date follow from the effect, not from the attempt: a repeated mail can be recognised as one.
    """
    watch = Watch(call)
    try:
        built = decode(message, headers=_headers(call, message))
        if not built.recipients():
            return Rejected("The mail has no recipient.")
        built.message()
    except Exception as error:  # noqa: BLE001  it was never given to a backend
        return Rejected(f"The mail cannot be built: {type(error).__name__}: {error}")
    try:
        backend = delivery_backend()
        with opened(backend, watch):
            return _deliver(backend, built, watch)
    except DeadlinePassedError:
        raise
    except Exception as error:  # noqa: BLE001  what it proves depends on how far it came
        return _failed(error, begun=watch.begun)


def _headers(call: EffectCall, message: dict[str, Any]) -> dict[str, str]:
    domain = parseaddr(message["from"])[1].rpartition("@")[2]
    return {
        "Message-ID": f"<{call.key}@{domain if domain.isascii() and domain else 'localhost'}>",
        "Date": formatdate(call.first_sent_at.timestamp(), localtime=settings.EMAIL_USE_LOCALTIME),
    }


def delivery_backend() -> BaseEmailBackend:
    """Return the backend that really delivers: ``DJANGO_JOBS["EMAIL_BACKEND"]``, a class or, in Django 6.1, a mailer.

    Raises:
        DefinitionError: It is the one that makes jobs, which would never deliver anything.
    """
    name = get_settings().email_backend
    if name == OWN_BACKEND:
        msg = "DJANGO_JOBS['EMAIL_BACKEND'] names the backend that makes jobs; name the one that delivers them."
        raise DefinitionError(msg)
    mailers = getattr(mail, "mailers", None)
    if "." not in name and mailers is not None:
        backend: BaseEmailBackend = mailers[name]
        return backend
    options = {} if mailers is None else {"alias": None}  # what tells Django 6.1 that the settings are meant
    delivering: BaseEmailBackend = import_string(name)(**options)
    return delivering


class Watch:
    """How far a delivery came, and what ends it at the deadline."""

    def __init__(self, call: EffectCall) -> None:
        self.call = call
        self.begun = False
        self.refused: dict[str, str] = {}
        self._sockets: list[socket.socket] = []
        self._smtp: smtplib.SMTP | None = None

    def watched(self, kind: type[smtplib.SMTP]) -> type[smtplib.SMTP]:
        """Return the SMTP class of a backend, telling this watch what it does."""
        watch = self

        class Watched(kind):  # type: ignore[misc,valid-type]
            def _get_socket(self, *args: Any) -> socket.socket:
                found: socket.socket = super()._get_socket(*args)
                watch._smtp = self
                watch._sockets.append(found)
                return found

            def data(self, msg: Any) -> Any:
                watch.call.check_deadline()
                watch.begun = True
                return super().data(msg)

            def sendmail(self, *args: Any, **options: Any) -> Any:
                refused = super().sendmail(*args, **options)
                watch.refused = {name: f"{reply[0]}" for name, reply in refused.items()}
                return refused

        return Watched

    def cut(self) -> None:
        """Shut the connection down: whatever waits for it then fails at once."""
        current = self._smtp.sock if self._smtp is not None else None
        for found in [*self._sockets, current]:
            if found is not None:
                with suppress(Exception):
                    found.shutdown(socket.SHUT_RDWR)


@contextmanager
def opened(backend: BaseEmailBackend, watch: Watch) -> Iterator[None]:
    """Open the backend's connection for one mail, under one deadline for all that happens on it."""
    remaining = watch.call.remaining
    watch.call.check_deadline()
    if isinstance(backend, SMTPBackend):
        own = backend.connection_class
        kind = type(backend)
        backend.__class__ = type(kind.__name__, (kind,), {"connection_class": watch.watched(own)})
        backend.timeout = min(backend.timeout or remaining, remaining)
    timer = threading.Timer(remaining, watch.cut)
    timer.daemon = True
    timer.start()
    try:
        backend.open()
        yield
    finally:
        timer.cancel()
        with suppress(Exception):  # the mail's fate is known by now; a bad farewell changes nothing
            backend.close()


def _deliver(backend: BaseEmailBackend, message: EmailMessage, watch: Watch) -> Outcome:
    watch.call.check_deadline()
    if not isinstance(backend, SMTPBackend):
        watch.begun = True
    sent = backend.send_messages([message])
    if sent == 0:
        return Rejected("The mail backend reports that it sent nothing.", permanent=False)
    result = {"refused": watch.refused} if watch.refused else {}
    return Confirmed(message.extra_headers.get("Message-ID", ""), result=result)


def _failed(error: Exception, *, begun: bool) -> Outcome:
    reason = f"{type(error).__name__}: {error}"
    codes = downstream.smtp_codes(error)
    if codes and all(400 <= code <= 599 for code in codes):
        return Rejected(reason, permanent=downstream.smtp_class(codes) is ErrorClass.PERMANENT)
    if not begun:
        return Rejected(f"not sent: {reason}", permanent=False)
    status = downstream.http_status(error)
    if status is not None and status != 409 and downstream.http_class(status) is ErrorClass.PERMANENT:
        return Rejected(reason)
    if status == 429:
        return Rejected(reason, permanent=False)
    return Unknown(reason)
