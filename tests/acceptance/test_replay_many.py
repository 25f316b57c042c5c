"""Replays of many by a real worker: what it counts, what it leaves alone, and what a cancel stops."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable

import pytest

from django_jobs.exceptions import ActionChangedError, RowBusyError
from django_jobs.models import Attempt, Job, OperatorAction, ReplayItem, ReplayRequest
from django_jobs.operate.action import Decision, Done
from django_jobs.operate.discard import Discard
from django_jobs.operate.replay import Replay
from django_jobs.operate.replay_many import CancelReplay, ReplayMany
from django_jobs.operate.selection import Selection
from django_jobs.operate.verify import verify
from tests.acceptance.conftest import MakeWorker, states, wait_until_done
from tests.acceptance.handlers import dead_on_first
from tests.acceptance.workers import WorkerProcess, wait_for
from tests.factories_decisions import decided

pytestmark = pytest.mark.django_db(transaction=True)

Rows = Callable[[], Counter[int]]
ALL = Selection(job_type="acceptance.dead_on_first")


def surely(decision: Decision) -> Done:
    """Decide, again while a worker holds the row or has just changed it."""

    def tried() -> Done | None:
        try:
            return decided(decision)
        except (RowBusyError, ActionChangedError):
            return None

    done = wait_for(tried, seconds=30, what=f"the decision {decision.name}")
    assert done is not None
    return done


def dead_letters(worker: WorkerProcess, many: int) -> list[uuid.UUID]:
    """Let a worker make dead letters, and return their ids in the order of their ``n``."""
    ids = [dead_on_first.enqueue(n=number).id for number in range(many)]
    worker.start()
    worker.wait_for(lambda: states() == {"dead_lettered": many}, seconds=120, what="the dead letters")
    return ids


def asked(selection: Selection, **options: int) -> ReplayRequest:
    """Ask for a replay of these."""
    decision = ReplayMany(selection, using="default", **options)  # type: ignore[arg-type]
    surely(decision)
    return ReplayRequest.objects.get(pk=decision.request_id)


def state_of(request: ReplayRequest) -> str:
    """Return where a request stands now."""
    return str(ReplayRequest.objects.values_list("state", flat=True).get(pk=request.pk))


def outcomes_of(request: ReplayRequest) -> dict[uuid.UUID, str]:
    """Return what became of each job of a request."""
    return dict(ReplayItem.objects.filter(request_id=request.pk).values_list("job_id", "outcome"))


def audited(request: ReplayRequest | None, action: str = "replay") -> set[uuid.UUID | None]:
    """Return the jobs about which somebody decided, as a part of a request or by hand."""
    rows = OperatorAction.objects.filter(action=action, request_id=request.pk if request else None)
    ids = list(rows.values_list("job_id", flat=True))
    assert len(ids) == len(set(ids)), "each once"
    return set(ids)


@pytest.mark.parametrize("named", ["by ids", "by a filter"])
def test_worker_replays_what_was_selected_and_leaves_alone_what_changed(
    make_worker: MakeWorker, rows: Rows, named: str
) -> None:
    """Of twenty jobs two were discarded and two replayed by hand since, and two more died: sixteen are replayed."""
    worker = make_worker(threads=2)
    ids = dead_letters(worker, 20)
    worker.kill_group()
    request = asked(Selection(ids=ids) if named == "by ids" else ALL, per_minute=6000)
    assert request.total == 20
    for job_id in ids[:2]:
        surely(Discard(job_id, using="default"))
    for job_id in ids[2:4]:
        surely(Replay(job_id, using="default"))
    late = [dead_on_first.enqueue(n=number).id for number in (20, 21)]

    again = make_worker(threads=2).start()
    again.wait_for(lambda: state_of(request) == "done", seconds=120, what="the request")
    wait_until_done(seconds=60)

    left = dict.fromkeys(ids[:4] if named == "by ids" else [], "unchanged")
    assert outcomes_of(request) == dict.fromkeys(ids[4:], "queued") | left
    assert states() == {"succeeded": 18, "dead_lettered": 4}
    assert set(Job.objects.filter(state="dead_lettered").values_list("pk", flat=True)) == {*ids[:2], *late}
    assert rows() == Counter(range(2, 20))
    assert audited(request) == set(ids[4:])
    assert audited(None) == set(ids[2:4])
    assert audited(None, "discard") == set(ids[:2])
    assert audited(request, "replay_many") == {None}
    assert Counter(Attempt.objects.values_list("outcome", flat=True)) == {"succeeded": 18, "failed": 22}
    assert verify(using="default").violated == ()


def test_request_that_is_cancelled_half_way_stops_there(make_worker: MakeWorker, rows: Rows) -> None:
    """What was replayed stays so, not one job more follows, and another request takes up the rest."""
    worker = make_worker(threads=2)
    ids = dead_letters(worker, 30)
    request = asked(ALL, per_minute=120)
    worker.wait_for(lambda: len(outcomes_of(request)) >= 5, seconds=60, what="the first jobs")

    surely(CancelReplay(request.pk, using="default"))
    replayed = outcomes_of(request)
    assert 5 <= len(replayed) < 30
    wait_until_done(seconds=60)
    assert states() == {"succeeded": len(replayed), "dead_lettered": 30 - len(replayed)}
    rest = asked(ALL, per_minute=6000)
    worker.wait_for(lambda: state_of(rest) == "done", seconds=60, what="the rest")
    wait_until_done(seconds=60)

    assert (state_of(request), rest.total) == ("cancelled", 30 - len(replayed))
    assert outcomes_of(request) == replayed == dict.fromkeys(replayed, "queued")
    assert outcomes_of(rest) == dict.fromkeys(set(ids) - set(replayed), "queued")
    assert audited(request) == set(replayed)
    assert audited(rest) == set(ids) - set(replayed)
    assert audited(request, "cancel_replay") == {None}
    assert states() == {"succeeded": 30}
    assert rows() == Counter(range(30))
    assert set(Job.objects.values_list("generation", flat=True)) == {2}
    assert verify(using="default").violated == ()
