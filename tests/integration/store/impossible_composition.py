"""Batches and chains that no constraint lets in."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from django_jobs import clock
from django_jobs.models import ChainLink
from tests.factories_pages import BatchFactory, ChainFactory

Write = Callable[[], object]

CHECKS: list[tuple[str, str, Write]] = [
    ("batch_on_dead_known", "invented policy", lambda: BatchFactory(on_dead="hope")),
    ("batch_counted_when_closed", "closed without counts", lambda: BatchFactory(closed=True, dead=None)),
    ("batch_counted_when_closed", "closed with its call", lambda: BatchFactory(closed=True, callback="{}")),
    ("batch_counted_when_closed", "open with counts", lambda: BatchFactory(succeeded=1)),
    ("batch_counted_when_closed", "open with a callback's job", lambda: BatchFactory(callback_job_id=uuid.uuid4())),
    ("batch_counted_when_closed", "counts at no time", lambda: BatchFactory(closed=True, closed_at=None)),
    ("link_call_until_enqueued", "enqueued with its call", lambda: ChainFactory(link__job_id=uuid.uuid4())),
    ("link_call_until_enqueued", "neither call nor job", lambda: ChainFactory(link__call="")),
]


def _twice_a_batch() -> None:
    BatchFactory(key="import:7")
    BatchFactory(key="import:7")


def _twice_a_chain() -> None:
    ChainFactory(key="order:7", created_at=clock.now())
    ChainFactory(key="order:7")


def _twice_a_link() -> None:
    chain = ChainFactory()
    ChainLink.objects.create(chain=chain, position=1, job_type="shop.charge", call="{}")


UNIQUE: list[tuple[str, Write]] = [
    ("batch_once", _twice_a_batch),
    ("chain_once", _twice_a_chain),
    ("link_once", _twice_a_link),
]
