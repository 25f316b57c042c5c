"""What publishers give back and what they raise, before it is believed, stored or logged: it is foreign code."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django_jobs.domain.events import Confirmed, Error, Nacked, Report, Returned, Timeout
from django_jobs.masking import described

REPORTS = (Confirmed, Returned, Nacked, Timeout, Error)
STATUSES = range(1000)


def well_formed(reports: Sequence[object]) -> list[Report]:
    """Replace what is no report: one that cannot be stored would keep every other answer from being recorded."""
    return [_checked(report) for report in reports]


def _checked(report: object) -> Report:
    if type(report) not in REPORTS:
        return Error(f"The publisher gave a {type(report).__name__}, which is no report.")
    text = report.receipt if isinstance(report, Confirmed) else getattr(report, "reason", None)
    status = getattr(report, "status", None)
    if not isinstance(text, str):
        return Error(f"The publisher gave a {type(report).__name__} with a {type(text).__name__} as its text.")
    if status is not None and (isinstance(status, bool) or not isinstance(status, int) or status not in STATUSES):
        return Error(f"The publisher gave a {type(report).__name__} with a status that is none.")
    wish = getattr(report, "retry_after", None)
    if wish is not None and not isinstance(wish, timedelta):
        return Error(f"The publisher gave a {type(report).__name__} with a {type(wish).__name__} as its retry_after.")
    return report  # type: ignore[return-value]


def told(error: BaseException) -> str:
    """Return an error's type, message and traceback with secrets masked: it may quote rows, headers and addresses."""
    record = described(error)
    return f"{record.type}: {record.message}\n{record.traceback}"
