"""A column for instants that compares the same on every database."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:
    _Base = models.DateTimeField[Any, Any]
else:
    _Base = models.DateTimeField

TEXT_FORMAT = "%Y-%m-%d %H:%M:%S.%f"


def to_text(value: datetime) -> str:
    """Write an instant as the fixed 26-character UTC text that SQLite compares correctly."""
    return value.astimezone(UTC).strftime(TEXT_FORMAT).zfill(26)


def from_text(value: str) -> datetime:
    """Read the text that :func:`to_text` wrote."""
    return datetime.strptime(value, TEXT_FORMAT).replace(tzinfo=UTC)


class InstantColumn(_Base):
    """An aware UTC datetime whatever ``USE_TZ`` says; on SQLite a fixed-width text: shorter ones sort wrongly."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        """Use ``timestamptz`` on PostgreSQL and a text-like column on SQLite."""
        return "timestamp with time zone" if connection.vendor == "postgresql" else "datetime"

    def get_prep_value(self, value: Any) -> Any:
        """Refuse a naive datetime: it names no instant."""
        if isinstance(value, datetime) and value.tzinfo is None:
            msg = f"{self.name} needs an aware datetime, not {value!r}."
            raise ValueError(msg)
        return models.Field.get_prep_value(self, value)

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        """Adapt for the database."""
        value = value if prepared else self.get_prep_value(value)
        if isinstance(value, datetime) and connection.vendor == "sqlite":
            return to_text(value)
        return value

    def get_db_converters(self, connection: BaseDatabaseWrapper) -> list[Any]:  # noqa: ARG002  Django's signature
        """Replace the backend's own conversion, which depends on ``USE_TZ``."""
        return [self._to_instant]

    def get_internal_type(self) -> str:
        """Take part in no backend conversion made for ``DateTimeField``."""
        return "InstantField"

    @staticmethod
    def _to_instant(value: Any, _: object, connection: BaseDatabaseWrapper) -> datetime | None:
        return as_instant(value, connection)


def as_instant(value: Any, connection: BaseDatabaseWrapper) -> datetime | None:
    """Turn what the driver returned for an instant into an aware UTC datetime."""
    if value is None:
        return None
    if isinstance(value, str):
        return from_text(value)
    if value.tzinfo is None:
        value = value.replace(tzinfo=_chopped_zone(connection))
    return value.astimezone(UTC)  # type: ignore[no-any-return]


def _chopped_zone(connection: BaseDatabaseWrapper) -> tzinfo:
    """Return the zone that the driver left off: UTC in stored text, else (USE_TZ is off) the session's."""
    return UTC if connection.vendor == "sqlite" else ZoneInfo(connection.timezone_name)


if TYPE_CHECKING:
    # Type checkers know the nullability of Django's own field only.
    InstantField = models.DateTimeField
else:
    InstantField = InstantColumn
