"""Sending a mail through Django's mail backends as an operation.

Nothing repeats a mail safely: a provider keeps no keys and cannot be asked. So all depends on how far a failed delivery
came. Until the server says "go on" to the DATA command nothing of the mail has left; a reply with a code is an answer;
whatever breaks from then on is unknown. A refusal before MAIL is about the session (busy, no TLS, wrong password), not
about the mail, and is tried again. Other backends than SMTP do not tell how far they came: there only an answer with a
code proves anything.
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

from django_jobs import clock
from django_jobs.conf import get_settings
from django_jobs.domain import downstream
from django_jobs.domain.downstream import Proof
from django_jobs.domain.effects import Confirmed, Outcome, Rejected, Unknown
from django_jobs.domain.states import ErrorClass
from django_jobs.effects.adapter import effect
from django_jobs.effects.adapters.mail_message import decode
from django_jobs.effects.call import DeadlinePassedError, EffectCall
from django_jobs.exceptions import DefinitionError

GO_ON = 354
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
        return _failed(error, watch)


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
        self.addressed = False  # the mail itself is being talked about
        self.begun = False  # its content may have left
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

            def mail(self, *args: Any, **options: Any) -> Any:
                watch.addressed = True
                return super().mail(*args, **options)

            def data(self, msg: Any) -> Any:
                watch.call.check_deadline()
                return super().data(msg)

            def getreply(self) -> Any:
                reply = super().getreply()
                if reply[0] == GO_ON:  # the content is sent next, in one piece
                    watch.go_on()
                return reply

            def sendmail(self, *args: Any, **options: Any) -> Any:
                refused = super().sendmail(*args, **options)
                watch.refused = {name: str(downstream.smtp_reply(*reply)) for name, reply in refused.items()}
                return refused

        return Watched

    def go_on(self) -> None:
        """Let the content leave, if there is time; else not even a farewell, which would be taken for content."""
        try:
            self.call.check_deadline()
        except DeadlinePassedError:
            self.cut()
            raise
        self.begun = True

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
    if sent == 0 and watch.begun and isinstance(backend, SMTPBackend):
        return Unknown("The mail backend reports that it sent nothing, but swallowed what came after the content.")
    if sent == 0:
        return Rejected("The mail backend reports that it sent nothing.", permanent=False)
    result = {"refused": watch.refused} if watch.refused else {}
    return Confirmed(message.extra_headers.get("Message-ID", ""), result=result)


def _failed(error: Exception, watch: Watch) -> Outcome:
    """Say what an error proves, by the server's reply if there is one, else by how far the delivery had come."""
    reason = f"{type(error).__name__}: {error}"
    replies = downstream.smtp_replies(error)
    if replies and all(400 <= reply.code <= 599 for reply in replies):
        about_mail = (watch.addressed or watch.begun) and not any(reply.about_session for reply in replies)
        return Rejected(reason, permanent=about_mail and downstream.smtp_class(replies) is ErrorClass.PERMANENT)
    if not watch.begun:
        return Rejected(f"not sent: {reason}", permanent=watch.addressed and _is_about_mail(error))
    status = downstream.http_status(error)
    proof = Proof.NOTHING if status is None else downstream.http_proof(status)
    if proof is Proof.REFUSED:
        return Rejected(reason)
    wish = downstream.retry_after(error, now=clock.now())
    if proof is Proof.REFUSED_FOR_NOW:
        return Rejected(reason, permanent=False, retry_after=wish)
    return Unknown(reason, retry_after=wish)


def _is_about_mail(error: Exception) -> bool:
    """Whether an error without a reply would come again: an address that cannot be written to this server."""
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return True
    return isinstance(error, ValueError) and not isinstance(error, OSError)
