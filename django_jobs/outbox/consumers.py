"""A job type as the consumer of messages: what its handler is given, and under which key its jobs are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django_jobs.define.definition import DurableJob, JobDefinition
from django_jobs.domain.identity import check_name, scope_text
from django_jobs.domain.messages import message_key
from django_jobs.domain.options import EnqueueOptions
from django_jobs.exceptions import DefinitionError

GIVEN = ("data", "message_id", "source")  # what a handler may take, by these names


def consumer_options(
    consumer: object, *, source: str, message_id: str, keep: timedelta, using: str | None
) -> EnqueueOptions:
    """Return how the job of a message is stored: the message is its key, and the key outlives the inbox row.

    The key is the consumer's own, also if its type shares a ``key_scope``: that is for keys which mean something to the
    business, and two consumers of one message are two jobs.

    Raises:
        DefinitionError: It is no job, or its handler cannot take a message.
    """
    if not isinstance(consumer, DurableJob):
        msg = f"The consumer of a message must be a @job, not {consumer!r}."
        raise DefinitionError(msg)
    _check_handler(consumer.definition)
    changes = {"key": message_key(source, message_id)} | ({"database": using} if using else {})
    options = consumer.using(**changes).options
    # If the key died first, a message that comes again in between would be a new job.
    scope = consumer.definition.oldest_name
    return replace(options, key_scope=scope, key_ttl=max(options.key_ttl, keep), on_duplicate="return")


def takes_messages(definition: JobDefinition) -> bool:
    """Say whether a handler can take a message: it takes ``data``, and needs nothing that a message does not have."""
    parameters = definition.signature.parameters
    needed = {
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    }
    return "data" in parameters and needed <= set(GIVEN)


def _check_handler(definition: JobDefinition) -> None:
    if not takes_messages(definition):
        msg = (
            f"{definition.job_type}{definition.signature} cannot take messages: its handler must take 'data', may take "
            "'message_id' and 'source', and needs a default for everything else."
        )
        raise DefinitionError(msg)


def consumer_name(consumer: DurableJob[..., Any]) -> str:
    """Return the name that stands in the inbox: the oldest one, so that what was taken stays taken after a rename."""
    definition = consumer.definition
    oldest = definition.oldest_name
    tenant = consumer.options.tenant
    return check_name(scope_text(tenant, oldest) if tenant else oldest, what="consumer with its tenant", limit=200)


def arguments_for(consumer: DurableJob[..., Any], message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the job: what the handler takes of the message, and its defaults."""
    wanted = [name for name in GIVEN if name in consumer.definition.signature.parameters]
    return consumer.definition.bind((), {name: message[name] for name in wanted})
