"""The shipped mail operation: how far a failed delivery came, and what that proves."""

from __future__ import annotations

import time as process_time
from datetime import UTC, datetime
from email import message_from_bytes
from typing import Any

import pytest
from django.core import mail
from django.core.mail import EmailMessage

from django_jobs import Confirmed, Rejected, Unknown, clock
from django_jobs.domain.effects import Outcome
from django_jobs.effects.adapters.mail import OWN_BACKEND, delivery_backend, send_mail
from django_jobs.effects.adapters.mail_message import encode
from django_jobs.effects.call import DeadlinePassedError, EffectCall
from django_jobs.exceptions import DefinitionError
from tests.integration.effects.smtp import CLOSE, DRIBBLE, HANG, Mailbox, mail_server

SENT_AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
SMTP = "django.core.mail.backends.smtp.EmailBackend"
LOCMEM = "django.core.mail.backends.locmem.EmailBackend"


class StubbornBackend:
    """A backend of somebody else, which raises what the test says."""

    error: BaseException | None = None
    answer: int | None = 1

    def __init__(self, **options: Any) -> None:
        """Take whatever Django gives."""

    def open(self) -> None:
        """Need no connection."""

    def close(self) -> None:
        """Have none to close."""

    def send_messages(self, messages: list[EmailMessage]) -> int | None:
        """Fail or answer as told."""
        if StubbornBackend.error is not None:
            raise StubbornBackend.error
        return StubbornBackend.answer


def a_call(seconds: float = 5.0) -> EffectCall:
    """A call with so many seconds left."""
    return EffectCall(
        key="dj1_key",
        operation_id="job-7",
        effect_name="send",
        business_key="job-7",
        send_number=1,
        first_sent_at=SENT_AT,
        deadline=SENT_AT,
        ends_at=clock.boot_seconds() + seconds,
    )


def a_mail(**changes: Any) -> dict[str, Any]:
    """An encoded mail."""
    fields = {"subject": "Hello", "body": "Text", "from_email": "shop@example.com", "to": ["ann@example.com"]}
    return encode(EmailMessage(**(fields | changes)))


def deliver(settings: Any, mailbox: Mailbox, *, seconds: float = 5.0, message: dict[str, Any] | None = None) -> Outcome:
    """Send a mail to the server."""
    settings.DJANGO_JOBS = {"EMAIL_BACKEND": SMTP}
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", mailbox.port
    return send_mail(a_call(seconds), message=message or a_mail())


def test_mail_is_delivered_under_the_id_of_its_effect(settings: Any) -> None:
    """Message-ID and Date follow from the effect: every repetition of this mail has the same."""
    with mail_server() as mailbox:
        outcomes = [deliver(settings, mailbox), deliver(settings, mailbox)]

    assert outcomes == [Confirmed("<dj1_key@example.com>")] * 2
    sent = message_from_bytes(mailbox.mails[0])
    assert (sent["Message-ID"], sent["Date"]) == ("<dj1_key@example.com>", "Sun, 29 Nov 2026 12:00:00 -0000")
    assert (sent["Subject"], sent["To"], sent.get_payload().strip()) == ("Hello", "ann@example.com", "Text")
    assert mailbox.mails[0] == mailbox.mails[1]


def test_own_message_id_and_date_are_kept(settings: Any) -> None:
    """A mail that names its own id and date keeps them."""
    message = a_mail(headers={"message-id": "<mine@example.com>", "DATE": "Mon, 01 Jan 2024 00:00:00 +0000"})
    with mail_server() as mailbox:
        deliver(settings, mailbox, message=message)

    sent = message_from_bytes(mailbox.mails[0])
    assert sent.get_all("Message-ID") == ["<mine@example.com>"]
    assert sent.get_all("Date") == ["Mon, 01 Jan 2024 00:00:00 +0000"]


@pytest.mark.parametrize(
    ("replies", "permanent"),
    [
        ({"MAIL": "550 no such sender"}, True),
        ({"RCPT": "550 no such user"}, True),
        ({"DATA": "554 no"}, True),
        ({"end": "552 too large"}, True),
        ({"MAIL": "451 later"}, False),
        ({"RCPT": "450 greylisted"}, False),
        ({"end": "452 disk full"}, False),
        ({"greeting": "421 busy"}, False),
        ({"greeting": "554 go away"}, True),
    ],
)
def test_reply_with_a_code_is_an_answer(settings: Any, replies: dict[str, str], permanent: bool) -> None:
    """5xx: refused for good. 4xx: refused for now. Both prove that the mail was not taken."""
    with mail_server(**replies) as mailbox:
        outcome = deliver(settings, mailbox)

    assert isinstance(outcome, Rejected)
    assert outcome.permanent is permanent
    assert outcome.status is None


@pytest.mark.parametrize("replies", [{"greeting": CLOSE}, {"MAIL": CLOSE}, {"RCPT": CLOSE}, {"RCPT": HANG}])
def test_break_before_data_is_known_not_sent(settings: Any, replies: dict[str, str]) -> None:
    """The connection broke, or time was up, before the mail was handed over."""
    with mail_server(**replies) as mailbox:
        outcome = deliver(settings, mailbox, seconds=1.0)

    assert isinstance(outcome, Rejected)
    assert (outcome.permanent, outcome.reason[:8]) == (False, "not sent")


@pytest.mark.parametrize("replies", [{"end": CLOSE}, {"end": HANG}, {"DATA": CLOSE}])
def test_break_after_data_is_unknown(settings: Any, replies: dict[str, str]) -> None:
    """Once DATA was said the mail may have been taken."""
    with mail_server(**replies) as mailbox:
        outcome = deliver(settings, mailbox, seconds=1.0)

    assert isinstance(outcome, Unknown)


def test_bad_farewell_changes_nothing(settings: Any) -> None:
    """The server took the mail and then broke off: it was taken."""
    with mail_server(QUIT=CLOSE) as mailbox:
        assert isinstance(deliver(settings, mailbox), Confirmed)


@pytest.mark.parametrize("step", ["greeting", "MAIL", "end"])
def test_dribbling_server_ends_at_the_total_deadline(settings: Any, step: str) -> None:
    """A byte now and then does not prolong the delivery: its time-out is one for all."""
    started = process_time.monotonic()
    with mail_server(**{step: DRIBBLE}) as mailbox:
        outcome = deliver(settings, mailbox, seconds=0.6)

    assert isinstance(outcome, Unknown if step == "end" else Rejected)
    assert process_time.monotonic() - started < 4


def test_nobody_listens_is_known_not_sent(settings: Any) -> None:
    """Connection refused: nothing was handed over."""
    with mail_server() as mailbox:
        port = mailbox.port

    outcome = deliver(settings, Mailbox(port=port))

    assert isinstance(outcome, Rejected)
    assert not outcome.permanent


def test_recipients_that_were_refused_are_named(settings: Any) -> None:
    """Some recipients were refused and some not: the mail was taken, and the receipt names the refused."""
    message = a_mail(to=["ann@example.com"], bcc=["bob@example.com"])
    with mail_server(**{"rcpt TO:<bob@example.com>": "550 no such user"}) as mailbox:
        outcome = deliver(settings, mailbox, message=message)

    assert isinstance(outcome, Confirmed)
    assert outcome.result == {"refused": {"bob@example.com": "550"}}


def test_no_time_left_sends_nothing(settings: Any) -> None:
    """The deadline has passed: refused before the connection."""
    with mail_server() as mailbox, pytest.raises(DeadlinePassedError):
        deliver(settings, mailbox, seconds=0.0)

    assert mailbox.commands == []


def test_mail_without_recipients_is_rejected(settings: Any) -> None:
    """Nobody to send to is a permanent rejection, not a success."""
    with mail_server() as mailbox:
        outcome = deliver(settings, mailbox, message=a_mail(to=[]))

    assert outcome == Rejected("The mail has no recipient.")


@pytest.mark.parametrize(
    ("error", "answer", "kind"),
    [
        (None, 1, Confirmed),
        (None, None, Confirmed),
        (None, 0, Rejected),
        (ConnectionError("reset"), None, Unknown),
        (ValueError("odd"), None, Unknown),
    ],
)
def test_other_backend_proves_only_what_it_answers(
    settings: Any, monkeypatch: pytest.MonkeyPatch, error: Exception | None, answer: int | None, kind: type
) -> None:
    """A backend that is not SMTP does not tell how far it came: an exception of it is unknown."""
    settings.DJANGO_JOBS = {"EMAIL_BACKEND": f"{__name__}.StubbornBackend"}
    monkeypatch.setattr(StubbornBackend, "error", error)
    monkeypatch.setattr(StubbornBackend, "answer", answer)

    assert isinstance(send_mail(a_call(), message=a_mail()), kind)


def test_backend_that_makes_jobs_cannot_deliver_them(settings: Any) -> None:
    """Delivering through the backend that makes jobs would never end."""
    settings.DJANGO_JOBS = {"EMAIL_BACKEND": OWN_BACKEND}

    with pytest.raises(DefinitionError, match="names the backend that makes jobs"):
        delivery_backend()
    assert isinstance(send_mail(a_call(), message=a_mail()), Rejected)


def test_mail_goes_through_the_backend_of_the_settings(settings: Any) -> None:
    """The backend that delivers is the one of DJANGO_JOBS."""
    settings.DJANGO_JOBS = {"EMAIL_BACKEND": LOCMEM}

    send_mail(a_call(), message=a_mail())

    assert [message.subject for message in mail.outbox] == ["Hello"]
