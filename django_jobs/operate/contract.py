"""What job types, operations, events and consumers promise, as the code that runs declares it; no database is asked."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from django_jobs.define import registry
from django_jobs.define.definition import JobDefinition
from django_jobs.define.schedules import ScheduleDefinition, declared_schedules
from django_jobs.domain.effects import Dedupe
from django_jobs.domain.redaction import MASK
from django_jobs.domain.retry import RetryPolicy
from django_jobs.effects.adapter import EffectOperation, declared_effects
from django_jobs.masking import redactor
from django_jobs.operate.contract_events import (
    ConsumerContract,
    EventContract,
    consumer_contracts,
    event_contracts,
)
from django_jobs.outbox.local import key_life

TRANSACTIONAL = "transactional"
LEDGER = "ledger"
MANUAL = "manual"

RECOVERY: dict[str, str] = {
    TRANSACTIONAL: "its rows and its success commit together, so a crash leaves neither and it simply runs again",
    LEDGER: "its side effects are recorded before they are sent, and a crash is reconciled before anything is repeated",
    MANUAL: "nothing proves what a crash left behind, so a human decides what stays open",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContract:
    """One job type. Empty ``key``: nothing is deduplicated. Times are as declared, or as the settings have them."""

    job_type: str
    aliases: tuple[str, ...]
    version: int
    reads_versions: tuple[int, ...]
    arguments: tuple[str, ...]
    queue_name: str
    priority: int
    owner: str
    resource: str
    recovery: str
    key: str
    key_scope: str
    key_ttl: timedelta
    on_duplicate: str
    subject: str
    useful_for: timedelta | None
    budget: timedelta
    lease: timedelta
    max_runtime: timedelta
    soft_timeout: bool
    retry: dict[str, Any]
    code_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationContract:
    """One operation on the world, and what its provider promises."""

    name: str
    provider: str
    owner: str
    recovery: str
    dedupe: str
    key_lifetime: timedelta | None
    requires_key: bool
    can_reconcile: bool
    timeout: timedelta
    settle: timedelta
    visible_after: timedelta
    docs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleContract:
    """One schedule: when its job type is enqueued by itself, and what becomes of missed ticks."""

    name: str
    job_type: str
    rule: str
    missed: str
    grace: timedelta
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """Everything that is declared, by name."""

    jobs: tuple[JobContract, ...]
    operations: tuple[OperationContract, ...]
    events: tuple[EventContract, ...] = ()
    consumers: tuple[ConsumerContract, ...] = ()
    schedules: tuple[ScheduleContract, ...] = ()

    @property
    def without_key(self) -> tuple[str, ...]:
        """Operations that may be asked for without ``key=``: a new job with the same arguments acts a second time."""
        return tuple(item.name for item in self.operations if not item.requires_key)


def contract() -> Contract:
    """Return what the code that runs declares."""
    jobs = [_job(definition) for name, definition in registry.definitions() if name == definition.job_type]
    return Contract(
        jobs=tuple(jobs),
        operations=tuple(_operations()),
        events=tuple(event_contracts()),
        consumers=tuple(consumer_contracts()),
        schedules=tuple(_schedule(declared) for declared in declared_schedules()),
    )


def _schedule(declared: ScheduleDefinition) -> ScheduleContract:
    made = declared.arguments
    return ScheduleContract(
        name=declared.name,
        job_type=declared.job.definition.job_type,
        rule=declared.text,
        missed=declared.missed.value,
        grace=declared.grace,
        arguments="" if made is None else f"{made.__module__}.{getattr(made, '__qualname__', type(made).__name__)}",
    )


def _job(definition: JobDefinition) -> JobContract:
    options, terms = definition.options, definition.terms
    return JobContract(
        job_type=definition.job_type,
        aliases=definition.aliases,
        version=options.version,
        reads_versions=definition.versions[:-1],
        arguments=tuple(_arguments(definition)),
        queue_name=options.queue_name,
        priority=options.priority,
        owner=options.owner,
        resource=options.resource,
        recovery=recovery_of(definition),
        key=options.key or ("{event.id}" if definition.source else ""),
        key_scope=options.key_scope,
        key_ttl=key_life(definition) if definition.source else options.key_ttl,
        on_duplicate=options.on_duplicate,
        subject=options.subject,
        useful_for=options.useful_for,
        budget=terms.budget,
        lease=terms.lease,
        max_runtime=terms.max_runtime,
        soft_timeout=definition.soft_timeout,
        retry=_retry(definition.retry),
        code_version=definition.code_version(),
    )


def recovery_of(definition: JobDefinition) -> str:
    """Return the word for how a crash in the middle of this handler is recovered."""
    if definition.takes_context:
        return LEDGER
    return TRANSACTIONAL if definition.atomic else MANUAL


def _arguments(definition: JobDefinition) -> Iterator[str]:
    for place, parameter in enumerate(definition.signature.parameters.values()):
        if not (place == 0 and definition.takes_context and parameter.name == "context"):
            yield _argument(parameter)


def _argument(parameter: inspect.Parameter) -> str:
    hint, default = parameter.annotation, parameter.default
    text = parameter.name
    if hint is not inspect.Parameter.empty:
        text += f": {hint if isinstance(hint, str) else inspect.formatannotation(hint)}"
    return text if default is inspect.Parameter.empty else f"{text} = {_shown(parameter.name, default)}"


def _shown(name: str, default: object) -> str:
    """Return a default as a payload would be shown: what is secret by its name or its text is masked."""
    mask = redactor()
    return MASK if default is not None and mask.hides(name) else mask.text(repr(default))


def _retry(policy: RetryPolicy) -> dict[str, Any]:
    values = {item.name: getattr(policy, item.name) for item in fields(policy)}
    return {name: _names(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _names(values: tuple[Any, ...]) -> list[str]:
    return [f"{item.__module__}.{item.__qualname__}" if inspect.isclass(item) else str(item) for item in values]


def _operations() -> Iterator[OperationContract]:
    for name, operation in declared_effects().items():
        yield _operation(name, operation)


def _operation(name: str, operation: EffectOperation) -> OperationContract:
    declared = operation.declared
    promised = declared.guarantees
    known = promised.dedupe is not Dedupe.NONE or promised.can_reconcile
    return OperationContract(
        name=name,
        provider=declared.provider,
        owner=declared.owner,
        recovery=LEDGER if known else MANUAL,
        dedupe=str(promised.dedupe),
        key_lifetime=promised.key_lifetime,
        requires_key=declared.requires_key,
        can_reconcile=promised.can_reconcile,
        timeout=declared.timeout,
        settle=promised.settle,
        visible_after=promised.visible_after,
        docs=promised.docs,
    )
