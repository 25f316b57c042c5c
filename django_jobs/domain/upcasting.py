"""Payloads of older versions: turned into the present one when they are read, never where they are stored."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from django_jobs.domain.canonical import DEEPEST, Encoder
from django_jobs.domain.errors import classify
from django_jobs.domain.retry import RetryPolicy
from django_jobs.domain.states import ErrorClass
from django_jobs.exceptions import DefinitionError, JobsError, PayloadError

Upcaster = Callable[[dict[str, Any]], Mapping[str, Any]]


def checked_upcasters(job_type: str, version: int, given: object) -> dict[int, Upcaster]:
    """Return the upcasters of a job type by the version that they read; each makes arguments of the next version.

    Raises:
        DefinitionError: One is missing between an old version and the present one, or is none.
    """
    if not isinstance(given, Mapping):
        msg = f"{job_type}: upcasters must be a dict from the old version to a function, not {given!r}."
        raise DefinitionError(msg)
    for old, function in given.items():
        if isinstance(old, bool) or not isinstance(old, int) or not 1 <= old < version:
            msg = f"{job_type}: an upcaster reads a version from 1 to {version - 1}, not {old!r}."
            raise DefinitionError(msg)
        if not callable(function):
            msg = f"{job_type}: the upcaster of version {old} must be a function of arguments, not {function!r}."
            raise DefinitionError(msg)
    missing = [old for old in range(min(given, default=version), version) if old not in given]
    if missing:
        msg = f"{job_type}: version {missing[0]} has no upcaster, so older arguments cannot become those of {version}."
        raise DefinitionError(msg)
    return dict(sorted(given.items()))


def upcast(
    job_type: str,
    upcasters: Mapping[int, Upcaster],
    arguments: Mapping[str, Any],
    *,
    since: int,
    version: int,
    retry: RetryPolicy | None = None,
) -> dict[str, Any]:
    """Turn stored arguments of version ``since`` into those of ``version``, one version after the other.

    What an upcaster returns is written as a payload would hold it, so that a ``Decimal`` it made is restored like any
    other, and the next upcaster gets what it would get of a stored job. No limit of payloads holds: nothing is stored.
    An error that is worth another try by ``retry`` (default: the package's own table) is raised as it is, and so are
    the package's own errors: an outage says nothing about the arguments.

    Raises:
        PayloadError: An upcaster is missing, failed, or returned what is no dict of arguments; the message names it.
    """
    found = dict(arguments)
    for old in range(since, version):
        if old not in upcasters:
            msg = f"The payload has version {since} of {job_type}, and this code has no upcaster for version {old}."
            raise PayloadError(msg)
        try:
            made = upcasters[old](found)
        except Exception as error:
            if _passes(error, retry or RetryPolicy()):
                raise
            msg = f"The upcaster of {job_type} for version {old} failed: {type(error).__name__}: {error}"
            raise PayloadError(msg) from error
        if not isinstance(made, Mapping) or not all(isinstance(name, str) for name in made):
            msg = (
                f"The upcaster of {job_type} for version {old} returned no dict of arguments but {type(made).__name__}."
            )
            raise PayloadError(msg)
        try:
            found = Encoder(max_nodes=sys.maxsize, max_depth=DEEPEST).plain(made, (), 0)
        except PayloadError as error:
            msg = f"The upcaster of {job_type} for version {old} returned what no payload can hold: {error}"
            raise PayloadError(msg) from error
    return found


def _passes(error: Exception, retry: RetryPolicy) -> bool:
    own = isinstance(error, JobsError) and not isinstance(error, PayloadError)  # a cancelled job, the end of a budget
    return own or classify(error, retry).error_class is ErrorClass.TRANSIENT
