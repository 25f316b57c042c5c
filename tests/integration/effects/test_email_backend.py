"""Mails as jobs: recorded with the caller's rows, delivered once, rebuilt as they were."""

from __future__ import annotations

from email.mime.image import MIMEImage
from typing import Any

import pytest
from django.core import mail
from django.core.mail import EmailMessage, EmailMultiAlternatives
from django.db import transaction

from django_jobs import clock, job
from django_jobs.backends.email import EmailBackend
from django_jobs.define import registry
from django_jobs.domain.ids import uuid7
from django_jobs.effects.adapters.mail_message import decode, encode
from django_jobs.exceptions import DefinitionError, PayloadError
from django_jobs.models import Job, JobPayload, SideEffect
from django_jobs.store import ClaimRequest, KnownType, claim
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.execute import execute
from tests.integration.effects.factories import WORKER
from tests.integration.effects.smtp import CLOSE, mail_server

pytestmark = pytest.mark.django_db(transaction=True)

LOCMEM = "django.core.mail.backends.locmem.EmailBackend"


@pytest.fixture(autouse=True)
def durable_mail(settings: Any) -> None:
    """Make mails jobs, and deliver them to the outbox of the test."""
    settings.EMAIL_BACKEND = "django_jobs.backends.email.EmailBackend"
    settings.DJANGO_JOBS = {"EMAIL_BACKEND": LOCMEM}


@job(type="tests.effects.twice", atomic=True)
def mail_twice(fail: bool = False) -> None:
    """Send the same mail twice, in one transaction with the success."""
    for _ in range(2):
        mail.send_mail("Hello", "Text", "shop@example.com", ["ann@example.com"])
    if fail:
        raise ValueError("after the mails")


@job(type="tests.effects.loose", atomic=False)
def mail_loosely(fail: bool = False) -> None:
    """Send two equal mails and another one, outside of any transaction."""
    for subject in ("Hello", "Hello", "Bye"):
        mail.send_mail(subject, "Text", "shop@example.com", ["ann@example.com"])
    if fail:
        raise ValueError("after the mails")


def run_one(job_type: str) -> Job:
    """Claim and execute one due job of a type, as a worker's thread does."""
    definition = registry.get(job_type).definition
    known = KnownType(job_type=job_type, payload_version=1, lease=definition.terms.lease, code_version="tests")
    request = ClaimRequest(
        queues=["default"],
        types=[known],
        attempt_ids=[uuid7()],
        worker_id=WORKER,
        worker_child=1,
        worker_name="tests",
    )
    asked_at = clock.boot_seconds()
    found = claim(request, using="default")[0]
    execute(RunningAttempt(found, definition, asked_at=asked_at))
    return Job.objects.get(pk=found.job_id)


def mails() -> int:
    """How many mails are recorded."""
    return Job.objects.filter(job_type="django_jobs.send_email").count()


def a_full_mail() -> EmailMultiAlternatives:
    """A mail with everything in it."""
    message = EmailMultiAlternatives(
        subject="Grüße",
        body="Text ✓",
        from_email="Shop <shop@example.com>",
        to=["ann@example.com", "Bob <bob@example.com>"],
        cc=["cc@example.com"],
        bcc=["bcc@example.com"],
        reply_to=["help@example.com"],
        headers={"X-Order": "7", "Message-ID": "<m@example.com>", "Date": "Mon, 01 Jan 2024 00:00:00 +0000"},
    )
    message.attach_alternative("<p>Text ✓</p>", "text/html")
    message.attach("note.txt", "a note", "text/plain")
    message.attach("data.bin", bytes(range(256)), "application/octet-stream")
    message.attach(
        "old.eml",
        EmailMessage(
            "Old",
            "Body",
            "a@example.com",
            ["b@example.com"],
            headers={"Date": "Mon, 01 Jan 2024 00:00:00 +0000", "Message-ID": "<o@x>"},
        ),
        "message/rfc822",
    )
    image = MIMEImage(b"\x89PNG....", "png")
    image.add_header("Content-ID", "<logo>")
    message.attach(image)
    return message


def parts(message: EmailMessage) -> list[tuple[list[tuple[str, str]], object]]:
    """What a mail consists of, without the boundaries that are drawn anew each time."""
    return [
        (
            [(name, value) for name, value in part.items() if "boundary" not in value],
            None if part.is_multipart() else part.get_payload(),
        )
        for part in message.message().walk()
    ]


def test_mail_is_recorded_and_delivered_by_a_worker() -> None:
    """send_mail() records a job; the worker delivers it, and its result names the Message-ID."""
    count = mail.send_mail("Hello", "Text", None, ["ann@example.com"])

    assert (count, mail.outbox) == (1, [])
    done = run_one("django_jobs.send_email")
    assert done.state == "succeeded"
    assert [message.subject for message in mail.outbox] == ["Hello"]
    assert mail.outbox[0].extra_headers["Message-ID"] in str(JobPayload.objects.get().result)


def test_rebuilt_mail_is_the_one_that_was_given() -> None:
    """Headers, recipients, alternatives and attachments survive, whatever their kind."""
    given = a_full_mail()

    rebuilt = decode(encode(given), headers={"Message-ID": "<other>", "Date": "now"})

    assert parts(rebuilt) == parts(given)
    assert rebuilt.recipients() == given.recipients()
    assert len(parts(given)) > 8
    assert encode(rebuilt) == encode(given)


def test_rollback_takes_the_mail_back() -> None:
    """In the caller's transaction: no commit, no mail."""
    with transaction.atomic():
        mail.send_mail("Hello", "Text", None, ["ann@example.com"])
        recorded = mails()
        transaction.set_rollback(True)

    assert (recorded, mails()) == (1, 0)


def test_attachment_beyond_the_limit_is_refused_with_the_mend() -> None:
    """64 KiB is the limit; the error says so and what to do, and nothing is recorded."""
    message = EmailMessage("Hello", "Text", None, ["ann@example.com"])
    message.attach("big.bin", b"x" * 60_000, "application/octet-stream")

    with pytest.raises(PayloadError, match="send a link"):
        message.send()

    assert mails() == 0


def test_one_mail_that_cannot_be_stored_stops_them_all() -> None:
    """Several mails at once are all checked before the first is recorded."""
    good = EmailMessage("Hello", "Text", None, ["ann@example.com"])
    bad = EmailMessage("Hello", "x" * 70_000, None, ["ann@example.com"])

    with pytest.raises(PayloadError):
        EmailBackend().send_messages([good, bad])

    assert mails() == 0


def test_silent_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """fail_silently: the mail that cannot be stored is logged and not counted."""
    bad = EmailMessage("Hello", "x" * 70_000, None, ["ann@example.com"])

    assert EmailBackend(fail_silently=True).send_messages([bad]) == 0
    assert "not recorded" in caplog.text


def test_wrong_header_is_told_at_once() -> None:
    """A header with a line break is refused where the mail is sent, as without jobs."""
    with pytest.raises(ValueError, match=r"(?i)header|newline|linefeed"):
        mail.send_mail("Hello\nBcc: eve@example.com", "Text", None, ["ann@example.com"])

    assert mails() == 0


class OwnText(EmailMessage):
    """A mail that builds its text itself."""

    def message(self, *args: Any, **options: Any) -> Any:
        """Build it."""
        return super().message(*args, **options)


@pytest.mark.parametrize(
    "message",
    [
        OwnText("Hello", "Text", None, ["ann@example.com"]),
    ],
)
def test_mail_of_an_own_kind_is_refused(message: EmailMessage) -> None:
    """What cannot be built again as it was is refused, not changed."""
    with pytest.raises(PayloadError, match="builds its text itself"):
        message.send()


def test_password_is_refused() -> None:
    """Credentials would be stored with the mail."""
    with pytest.raises(DefinitionError, match="password"):
        EmailBackend(username="me", password="secret")


def test_mail_without_recipients_is_no_job() -> None:
    """As with Django's own backends nobody is no recipient."""
    assert EmailBackend().send_messages([EmailMessage("Hello", "Text", None, [])]) == 0
    assert mails() == 0


def test_mails_of_an_atomic_job_commit_with_it() -> None:
    """The handler failed after its mails: none is recorded; it succeeds: both are, although they are equal."""
    mail_twice.enqueue(fail=True)
    failed = run_one("tests.effects.twice")
    assert failed.error_type == "ValueError"
    assert mails() == 0
    Job.objects.filter(pk=failed.pk).update(queue_name="aside")

    mail_twice.enqueue()
    assert run_one("tests.effects.twice").state == "succeeded"
    assert mails() == 2


def test_repeated_handler_does_not_repeat_its_mails() -> None:
    """A handler without a transaction runs again: job, mail and count make the key, so its mails are the same."""
    mail_loosely.enqueue(fail=True)
    run_one("tests.effects.loose")
    assert mails() == 3
    Job.objects.filter(job_type="tests.effects.loose").update(state="queued", available_at=clock.now())

    run_one("tests.effects.loose")

    assert mails() == 3


def test_equal_mails_outside_of_jobs_are_different_mails() -> None:
    """Without a job there is no key: two calls are two mails."""
    for _ in range(2):
        mail.send_mail("Hello", "Text", None, ["ann@example.com"])

    assert mails() == 2


def test_refused_recipient_dead_letters_the_mail(settings: Any) -> None:
    """SMTP 5xx: refused for good, so the job is left to a human."""
    settings.DJANGO_JOBS = {"EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend"}
    mail.send_mail("Hello", "Text", None, ["ann@example.com"])
    with mail_server(RCPT="550 no such user") as mailbox:
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", mailbox.port
        done = run_one("django_jobs.send_email")

    assert (done.state, done.dead_reason) == ("dead_lettered", "permanent")


def test_mail_that_may_have_been_taken_goes_to_review(settings: Any) -> None:
    """The connection broke after DATA: a human decides, the mail is not sent again."""
    settings.DJANGO_JOBS = {"EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend"}
    mail.send_mail("Hello", "Text", None, ["ann@example.com"])
    with mail_server(end=CLOSE) as mailbox:
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", mailbox.port
        done = run_one("django_jobs.send_email")

    assert (done.state, done.dead_reason) == ("dead_lettered", "effect_review")
    assert SideEffect.objects.get().needs_review
