"""Calls: jobs with their arguments that are not enqueued yet, in the code of a producer and as rows keep them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.domain.canonical import canonical
from django_jobs.domain.identity import fingerprint, scope_text
from django_jobs.domain.ids import uuid7
from django_jobs.domain.options import EnqueueOptions
from django_jobs.enqueue.prepared import Prepared, encode
from django_jobs.exceptions import DefinitionError
from django_jobs.store import NewJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What ``prepare()`` returns: a job type with arguments, to be given to ``batch`` or ``chain``.

    Nothing is stored yet. ``free`` are the names of parameters that were not given.
    """

    options: EnqueueOptions
    bind: Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]]
    free: frozenset[str]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    pass_result: str = ""

    def __repr__(self) -> str:
        return f"<call of {self.options.job_type}>"  # its arguments may be secret

    def using(self, *, pass_result: str | None = None, **changes: Any) -> Call:
        """Return a copy with other options, as ``using()`` of the job takes them.

        Args:
            pass_result: In a chain: the parameter that gets the result of the job before.
            **changes: Such as ``queue_name``, ``priority`` or ``run_after``.

        Raises:
            DefinitionError: The handler has no such parameter, or it is given already; or an option cannot be.
        """
        options = self.options.changed(**changes) if changes else self.options
        if pass_result is None:
            return replace(self, options=options)
        if not isinstance(pass_result, str) or pass_result not in self.free:
            msg = f"pass_result={pass_result!r} names no parameter of {options.job_type} that is still to be given."
            raise DefinitionError(msg)
        return replace(self, options=options, pass_result=pass_result)

    def arguments(self, /, **more: Any) -> dict[str, Any]:
        """Fit the arguments to the handler.

        Raises:
            PayloadError: They do not fit.
        """
        return self.bind(self.args, {**self.kwargs, **more})


def check_follows(call: object, *, what: str) -> Call:
    """Return a call that is enqueued later, under a key that is made for it.

    Raises:
        DefinitionError: It is no call, or has a key of its own.
    """
    if not isinstance(call, Call):
        msg = f"{what} is made of calls such as charge.prepare(order_id=7), not of {call!r}."
        raise DefinitionError(msg)
    if call.options.key is not None and "key" in call.options.literal:
        msg = f"{what} gives {call.options.job_type} a key of its own; leave using(key=…) away."
        raise DefinitionError(msg)
    return call


def for_later(call: Call, using: str, /, **more: Any) -> Prepared:
    """Check and encode a call that is enqueued later; the key that its type declares is not used.

    Raises:
        PayloadError: The arguments cannot be stored.
    """
    return encode(replace(call.options, key=None), call.arguments(**more), using)


def kept(prepared: Prepared, *, fills: Sequence[str] = ()) -> str:
    """Write a call as a row keeps it: whoever enqueues it later needs no code of its type.

    ``fills`` names the arguments that are known only then.
    """
    options = prepared.options
    after, useful = options.run_after, options.useful_for
    carried = {} if prepared.context is None else {"context": prepared.context}
    return json.dumps(
        {
            "job_type": options.job_type,
            "version": options.version,
            "queue_name": options.queue_name,
            "priority": options.priority,
            "tenant": options.tenant,
            "owner": options.owner,
            "resource": options.resource,
            "serial_key": prepared.serial_key,
            "serial_skips": options.serial_on_dead == "skip",
            "subject": prepared.subject,
            "key_scope": scope_text(options.tenant, options.key_scope),
            "key_ttl": options.key_ttl.total_seconds(),
            "run_after": after.isoformat() if isinstance(after, datetime) else None,
            "delay": after.total_seconds() if isinstance(after, timedelta) else None,
            "useful_for": useful.total_seconds() if useful else None,
            "arguments": prepared.arguments,
            "fills": list(fills),
            **carried,
        }
    )


def job_of(
    text: str,
    *,
    key: str,
    known: Mapping[str, Any],
    correlation_id: str = "",
    traceparent: str = "",
    batch_id: uuid.UUID | None = None,
    chain: tuple[uuid.UUID, int] | None = None,
) -> NewJob:
    """Make a job of a call that a row has kept; of what is ``known`` now it gets the arguments that it asked for."""
    call: dict[str, Any] = json.loads(text)
    arguments = _with(call["arguments"], {name: known[name] for name in call["fills"]})
    return NewJob(
        job_id=uuid7(),
        job_type=call["job_type"],
        queue_name=call["queue_name"],
        priority=call["priority"],
        tenant=call["tenant"],
        payload_version=call["version"],
        payload_fingerprint=fingerprint(arguments),
        arguments=arguments,
        key_scope=call["key_scope"],
        key=key,
        ttl_seconds=call["key_ttl"],
        replaces=None,
        run_after=datetime.fromisoformat(call["run_after"]) if call["run_after"] else None,
        delay=_span(call["delay"]),
        useful_for=_span(call["useful_for"]),
        owner=call["owner"],
        resource=call["resource"],
        serial_key=call["serial_key"],
        serial_skips=call["serial_skips"],
        correlation_id=correlation_id,
        subject=call["subject"],
        traceparent=traceparent,
        batch_id=batch_id,
        chain_id=chain[0] if chain else None,
        chain_position=chain[1] if chain else None,
        context=call.get("context"),
    )


def _with(arguments: str, more: Mapping[str, Any]) -> str:
    """Add arguments that were not known before; each was small enough to be stored, so the whole is not refused now."""
    if not more:
        return arguments
    rules = get_settings()
    most = rules.payload_max_bytes + rules.result_max_bytes + len(arguments)
    return canonical({**json.loads(arguments), **more}, max_bytes=most, max_depth=2 * rules.payload_max_depth)


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
