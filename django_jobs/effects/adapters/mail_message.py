"""A mail as JSON and back: what is rebuilt is what was given, down to headers, alternatives and attachments."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from email.message import Message, MIMEPart
from email.mime.base import MIMEBase
from typing import Any

from django.core.mail import EmailMessage, EmailMultiAlternatives
from django.core.mail.message import EmailAlternative, EmailAttachment

from django_jobs.domain.identity import MAX_BYTES, canonical
from django_jobs.exceptions import PayloadError

_SUBTYPES = ("content_subtype", "mixed_subtype", "alternative_subtype")
_MEND = "Put large files where they can be fetched and send a link, or send this mail through another backend."


def encode(message: EmailMessage) -> dict[str, Any]:
    """Return the mail as JSON values; the connection, and with it every password, is left out.

    Raises:
        PayloadError: It cannot be stored: too large, or made by a class that builds its text itself.
        ValueError: Its headers are wrong; the same error that sending it at once would raise.
    """
    if type(message).message not in (EmailMessage.message, EmailMultiAlternatives.message):
        msg = (
            f"{type(message).__name__} builds its text itself, which cannot be stored and built again; use "
            "EmailMessage or EmailMultiAlternatives, or send it through another backend."
        )
        raise PayloadError(msg)
    encoded = {
        "subject": str(message.subject),
        "body": str(message.body),
        "from": str(message.from_email),
        **{name: [str(address) for address in getattr(message, name)] for name in ("to", "cc", "bcc", "reply_to")},
        "headers": {str(name): str(value) for name, value in message.extra_headers.items()},
        "alternatives": [
            {"content": _content(content), "mimetype": mimetype}
            for content, mimetype in getattr(message, "alternatives", None) or ()
        ],
        "attachments": [_attachment(attachment) for attachment in message.attachments],
        **{name: getattr(message, name) for name in _SUBTYPES if isinstance(getattr(message, name, None), str)},
    }
    if message.encoding is not None:
        encoded["encoding"] = _encoding(message.encoding)
    _check_size(encoded)
    message.message()  # wrong headers are told to whoever sends, not to the job
    return encoded


def _encoding(encoding: object) -> str:
    if not isinstance(encoding, str):
        msg = "The mail's encoding is an object, which cannot be stored; give its name, for example 'utf-8'."
        raise PayloadError(msg)
    return encoding


def _check_size(encoded: Mapping[str, Any]) -> None:
    try:
        canonical({"message": encoded}, max_bytes=MAX_BYTES)
    except PayloadError as error:
        msg = f"The mail cannot be stored as a job: {error} {_MEND}"
        raise PayloadError(msg) from error


def _content(content: Any) -> dict[str, str]:
    if isinstance(content, EmailMessage):
        content = content.message()
    if isinstance(content, Message):
        content = content.as_bytes()
    if isinstance(content, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(content).decode("ascii")}
    return {"text": str(content)}


def _attachment(attachment: Any) -> dict[str, Any]:
    if isinstance(attachment, Message):
        payload = attachment.get_payload()
        if not isinstance(payload, str):
            msg = "A mail's attachment has parts of its own; attach it as (name, content, 'message/rfc822')."
            raise PayloadError(msg)
        kind = "base" if isinstance(attachment, MIMEBase) else "part"
        return {kind: [[name, str(value)] for name, value in attachment.items()], "payload": payload}
    filename, content, mimetype = (*attachment, None)[:3]
    return {"filename": filename, "content": _content(content), "mimetype": mimetype}


def decode(stored: Mapping[str, Any], *, headers: Mapping[str, str]) -> EmailMessage:
    """Return the mail that :func:`encode` was given; ``headers`` are added where the mail names none of its own."""
    named = {name.lower() for name in stored["headers"]}
    added = {name: value for name, value in headers.items() if name.lower() not in named}
    message = (EmailMultiAlternatives if stored["alternatives"] else EmailMessage)(
        subject=stored["subject"],
        body=stored["body"],
        from_email=stored["from"],
        to=stored["to"],
        cc=stored["cc"],
        bcc=stored["bcc"],
        reply_to=stored["reply_to"],
        headers={**stored["headers"], **added},
    )
    if isinstance(message, EmailMultiAlternatives):
        message.alternatives = [
            EmailAlternative(_restored(item["content"]), item["mimetype"]) for item in stored["alternatives"]
        ]
    message.attachments = [_attached(item) for item in stored["attachments"]]
    for name in (*_SUBTYPES, "encoding"):
        if name in stored:
            setattr(message, name, stored[name])
    return message


def _restored(content: Mapping[str, str]) -> Any:
    return base64.b64decode(content["base64"]) if "base64" in content else content["text"]


def _attached(item: Mapping[str, Any]) -> Any:
    if "filename" in item:
        return EmailAttachment(item["filename"], _restored(item["content"]), item["mimetype"])
    part: Message = MIMEBase("application", "octet-stream") if "base" in item else MIMEPart()
    pairs: Sequence[Sequence[str]] = item["base"] if "base" in item else item["part"]
    for name in set(part.keys()):
        del part[name]
    for name, value in pairs:
        part[name] = value
    part.set_payload(item["payload"])
    return part
