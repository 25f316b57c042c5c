"""The shipped mail operation: how far a failed delivery came, and what that proves."""

from __future__ import annotations

import smtplib
import time as process_time
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from typing import Any

import httpx
import pytest
from django.core import mail
from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend as SMTPBackend

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


class ServiceError(Exception):
    """What a mail service's client raises: an answer with a status and a time to wait."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.response = httpx.Response(status, headers={"Retry-After": "9"})


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


class QuietBackend(SMTPBackend):
    """What projects write that want no error from a mail: the errors of the server are swallowed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"fail_silently": True})


@pytest.mark.parametrize(("replies", "expected"), [({"end": CLOSE}, Unknown), ({"MAIL": CLOSE}, Rejected)])
def test_swallowed_error_after_the_content_is_unknown(settings: Any, replies: dict[str, str], expected: type) -> None:
    """A silent backend counts no mail, but its content may have left: sending it again could be a second one."""
    settings.DJANGO_JOBS = {"EMAIL_BACKEND": f"{QuietBackend.__module__}.QuietBackend"}
    with mail_server(**replies) as mailbox:
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", mailbox.port
        outcome = send_mail(a_call(), message=a_mail())

    assert isinstance(outcome, expected)
    assert len(mailbox.mails) == (1 if expected is Unknown else 0)


LOGIN = {"EHLO": "250-test\r\n250 AUTH PLAIN LOGIN"}
TLS = {"EHLO": "250-test\r\n250 STARTTLS"}


@pytest.mark.parametrize(
    ("replies", "permanent"),
    [
        # about the session: whoever is refused here may be let in later, and no mail is lost for it
        ({"greeting": "421 busy"}, False),
        ({"greeting": "554 go away"}, False),
        ({"EHLO": "550 who are you", "HELO": "550 who are you"}, False),
        ({"EHLO": "421 closing", "HELO": "421 closing"}, False),
        (TLS | {"STARTTLS": "454 4.7.0 TLS not available"}, False),
        (TLS | {"STARTTLS": "501 no"}, False),
        (TLS | {"STARTTLS": "220 go, but not really"}, False),
        ({"EHLO": "250 no STARTTLS here", "TLS": "wanted"}, False),
        (LOGIN | {"AUTH": "535 5.7.8 bad credentials"}, False),
        (LOGIN | {"AUTH": "454 4.7.0 later"}, False),
        ({"EHLO": "250 no AUTH here", "LOGIN": "wanted"}, False),
        ({"MAIL": "530 5.7.0 log in first"}, False),
        # about the mail
        ({"MAIL": "550 no such sender"}, True),
        ({"MAIL": "452 4.3.1 full"}, False),
        ({"MAIL": "421 closing"}, False),
        ({"RCPT": "550 no such user"}, True),
        ({"RCPT": "550 5.1.1 no such user"}, True),
        ({"RCPT": "450 greylisted"}, False),
        ({"RCPT": "550 4.7.1 greylisted"}, False),
        ({"DATA": "554 no"}, True),
        ({"DATA": "451 later"}, False),
        ({"DATA": "250 what"}, False),
        ({"end": "552 5.3.4 too large"}, True),
        ({"end": "550 5.7.1 spam"}, True),
        ({"end": "452 disk full"}, False),
        ({"end": "421 closing"}, False),
    ],
    ids=str,
)
def test_reply_with_a_code_is_an_answer(settings: Any, replies: dict[str, str], permanent: bool) -> None:
    """Whatever code comes at whatever stage, the mail was not taken; for good only if a 5xx is about the mail itself."""
    settings.EMAIL_USE_TLS = "STARTTLS" in replies or "TLS" in replies
    if "AUTH" in replies or "LOGIN" in replies:
        settings.EMAIL_HOST_USER, settings.EMAIL_HOST_PASSWORD = "shop", "secret"
    with mail_server(**replies) as mailbox:
        outcome = deliver(settings, mailbox)

    assert isinstance(outcome, Rejected)
    assert (outcome.permanent, outcome.status) == (permanent, None), outcome.reason
    assert bool(mailbox.mails) is ("end" in replies)


@pytest.mark.parametrize(
    ("second", "permanent"),
    [("550 5.1.1 no such user", True), ("450 4.2.0 later", False), ("550 4.7.1 greylist", False)],
)
def test_all_recipients_refused_with_mixed_codes(settings: Any, second: str, permanent: bool) -> None:
    """One that may be let in later keeps the whole mail alive; nobody got it."""
    message = a_mail(to=["ann@example.com", "bob@example.com"])
    script = {"rcpt to:<ann@example.com>": "550 5.1.1 no such user", "rcpt to:<bob@example.com>": second}
    with mail_server(**script) as mailbox:
        outcome = deliver(settings, mailbox, message=message)

    assert isinstance(outcome, Rejected)
    assert (outcome.permanent, mailbox.mails) == (permanent, [])


@pytest.mark.parametrize(
    "replies",
    [
        {"greeting": CLOSE},
        {"greeting": "no smtp"},
        {"EHLO": CLOSE},
        TLS | {"STARTTLS": CLOSE},
        LOGIN | {"AUTH": CLOSE},
        {"MAIL": CLOSE},
        {"RCPT": CLOSE},
        {"RCPT": HANG},
        {"DATA": CLOSE},
        {"DATA": HANG},
    ],
    ids=str,
)
def test_break_before_the_content_is_known_not_sent(settings: Any, replies: dict[str, str]) -> None:
    """The connection broke, or time was up, before the server said that the content may come."""
    settings.EMAIL_USE_TLS = "STARTTLS" in replies
    if "AUTH" in replies:
        settings.EMAIL_HOST_USER, settings.EMAIL_HOST_PASSWORD = "shop", "secret"
    with mail_server(**replies) as mailbox:
        outcome = deliver(settings, mailbox, seconds=1.0)

    assert isinstance(outcome, Rejected)
    assert (outcome.permanent, outcome.reason[:8], mailbox.mails) == (False, "not sent", [])


@pytest.mark.parametrize("replies", [{"end": CLOSE}, {"end": HANG}, {"end": "nonsense"}, {"end": "354 what"}], ids=str)
def test_break_after_the_content_is_unknown(settings: Any, replies: dict[str, str]) -> None:
    """Once the content has left, the mail may have been taken, whether or not an answer can be read."""
    with mail_server(**replies) as mailbox:
        outcome = deliver(settings, mailbox, seconds=1.0)

    assert isinstance(outcome, Unknown)


def test_deadline_that_passes_before_the_content_sends_nothing(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server says that the content may come, too late: nothing of it leaves."""
    with mail_server() as mailbox, monkeypatch.context() as late:
        real = EffectCall.check_deadline

        def check(call: EffectCall) -> None:
            if "DATA" in mailbox.commands:
                message = "too late"
                raise DeadlinePassedError(message)
            real(call)

        late.setattr(EffectCall, "check_deadline", check)
        with pytest.raises(DeadlinePassedError):
            deliver(settings, mailbox)

    assert mailbox.mails in ([], [b""])


def test_address_that_the_server_cannot_take_is_refused_for_good(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender beyond ASCII for a server without SMTPUTF8 would fail again and again."""

    def mail_(self: Any, sender: str, options: Any = ()) -> Any:
        message = "SMTPUTF8 not supported by server"
        raise smtplib.SMTPNotSupportedError(message)

    monkeypatch.setattr(smtplib.SMTP, "mail", mail_)
    with mail_server() as mailbox:
        outcome = deliver(settings, mailbox)

    assert isinstance(outcome, Rejected)
    assert (outcome.permanent, outcome.reason[:8]) == (True, "not sent")


def test_bad_farewell_changes_nothing(settings: Any) -> None:
    """The server took the mail and then broke off: it was taken."""
    with mail_server(QUIT=CLOSE) as mailbox:
        assert isinstance(deliver(settings, mailbox), Confirmed)


@pytest.mark.parametrize("step", ["greeting", "MAIL", "DATA", "end"])
def test_dribbling_server_ends_at_the_total_deadline(settings: Any, step: str) -> None:
    """A byte now and then does not prolong the delivery: its time-out is one for all."""
    started = process_time.monotonic()
    with mail_server(**{step: DRIBBLE}) as mailbox:
        outcome = deliver(settings, mailbox, seconds=2.0)

    assert isinstance(outcome, Unknown if step == "end" else Rejected)
    assert process_time.monotonic() - started < 15


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
    with mail_server(**{"rcpt to:<bob@example.com>": "450 4.2.1 later"}) as mailbox:
        outcome = deliver(settings, mailbox, message=message)

    assert isinstance(outcome, Confirmed)
    assert outcome.result == {"refused": {"bob@example.com": "450 4.2.1"}}


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
        (ServiceError(422), None, Rejected),
        (ServiceError(409), None, Unknown),
        (ServiceError(500), None, Unknown),
        (ServiceError(429), None, Rejected),
    ],
)
def test_other_backend_proves_only_what_it_answers(
    settings: Any, monkeypatch: pytest.MonkeyPatch, error: Exception | None, answer: int | None, kind: type
) -> None:
    """A backend that is not SMTP does not tell how far it came: an exception of it is unknown."""
    settings.DJANGO_JOBS = {"EMAIL_BACKEND": f"{__name__}.StubbornBackend"}
    monkeypatch.setattr(StubbornBackend, "error", error)
    monkeypatch.setattr(StubbornBackend, "answer", answer)

    outcome = send_mail(a_call(), message=a_mail())

    assert isinstance(outcome, kind)
    if isinstance(error, ServiceError) and error.response.status_code in {429, 500}:
        assert getattr(outcome, "retry_after", None) == timedelta(seconds=9)


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
