"""The looks of a history: each yields a sentence per broken promise."""

from __future__ import annotations

import re
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from django_jobs.testing.history_rows import Row, Rows

if TYPE_CHECKING:
    from django_jobs.testing.history import History, Noted

Look = Callable[["History", Rows], Iterator[str]]
_ENDED = frozenset({"succeeded", "cancelled", "dead_lettered"})
_SAMPLE = re.compile(r"^(django_jobs_\w+)\{([^}]*)\} ([0-9.e+]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def no_loss(history: History, rows: Rows) -> Iterator[str]:
    """What was acknowledged is there and ended, or waits for its time, or is held; what failed is not there."""
    jobs = {row.id: row for row in rows.jobs}
    for call in history.enqueued:
        if call.job_id is None:
            continue
        job = jobs.get(call.job_id)
        if call.status == "fail" and job is not None:
            yield f"Job {call.job_id} exists, although its client was told that the enqueue failed."
        if call.status == "ok" and job is None and not rows.was_pruned(call.job_id):
            yield f"Job {call.job_id} was acknowledged and is gone; no record of pruning covers it."
        if call.status == "ok" and job is not None and _stuck(history, rows, job):
            yield f"Job {job.id} was acknowledged and is stuck: {job.state}, and due or held past its lease."


def _stuck(history: History, rows: Rows, job: Row) -> bool:
    if job.state in _ENDED:
        return False
    until = job.lease_expires_at if job.state == "running" else job.available_at
    return bool(until is None or until + history.patience < rows.now)


def attempts_are_bounded(history: History, rows: Rows) -> Iterator[str]:
    """A job that convicts itself ends at the last loss that it is granted."""
    for job in rows.jobs:
        last = next((row for row in rows.attempts_of(job.id) if row.number == job.fence), None)
        convicted = last is not None and last.outcome == "lost" and last.alone == "worker"
        convicted = convicted or (last is not None and last.loss_cause == "exit" and last.alone != "")
        if convicted and job.lost_count >= history.losses and job.state != "dead_lettered":
            yield f"Job {job.id} was lost {job.lost_count} times in a row, the last time without company, and goes on."


def applied_once(history: History, rows: Rows) -> Iterator[str]:
    """The provider applied each key at most once, and exactly once for an effect that is recorded as applied."""
    applied = Counter(entry.key for entry in history.book if entry.kind == "applied")
    keys = defaultdict(set)
    for send in rows.sends:
        keys[send.effect_id].add(send.provider_key)
    for key, times in applied.items():
        if times > 1:
            yield f"The provider applied the key {key} {times} times."
        if not any(key in each for each in keys.values()):
            yield f"The provider applied the key {key}, for which no intent is stored."
    for effect in rows.effects:
        times = sum(applied[key] for key in keys[effect.id])
        if effect.state == "succeeded" and times != 1 and history.book:
            yield f"Effect {_named(effect)} is recorded as applied; the provider applied it {times} times."
        if effect.state == "rejected" and times:
            yield f"Effect {_named(effect)} is recorded as not applied; the provider applied it {times} times."
    yield from _calls_are_justified(history, rows)


def _calls_are_justified(history: History, rows: Rows) -> Iterator[str]:
    for effect in rows.effects:
        sends = [send for send in rows.sends if send.effect_id == effect.id]
        mine = {send.provider_key: send for send in sends}
        entries = sorted((entry for entry in history.book if entry.key in mine), key=lambda entry: entry.at)
        for entry in entries:
            if entry.kind == "call" and effect.state == "succeeded" and entry.at > effect.resolved_at:
                yield f"Effect {_named(effect)} was called again after it was recorded as applied."
        yield from _other_keys(effect, entries, mine)


def _other_keys(effect: Row, entries: list[Noted], mine: dict[str, Row]) -> Iterator[str]:
    """After an intent: a question, or the same key."""
    before, asked = "", True
    for entry in entries:
        if entry.kind == "lookup":
            asked = True
        elif entry.kind == "call":
            if before and entry.key != before and not asked and mine[before].outcome != "rejected":
                yield f"Effect {_named(effect)} was called under another key, and nobody had asked about the first."
            before, asked = entry.key, False


def _named(effect: Row) -> str:
    return f"{effect.name} {effect.business_key!r} of job {effect.job_id}"


def rows_and_events(history: History, rows: Rows) -> Iterator[str]:
    """A business row that committed has one event, and no event speaks of a row that did not."""
    for event_type, subjects in history.announced.items():
        found = Counter(row.subject for row in rows.events if row.type == event_type)
        for subject in sorted(set(subjects) | set(found)):
            if subject not in subjects:
                yield f"Event {event_type} speaks of {subject!r}, which was never committed."
            elif found[subject] != 1:
                yield f"{subject!r} was committed and has {found[subject]} events {event_type} instead of one."


def handled_once(history: History, rows: Rows) -> Iterator[str]:
    """A consumer acts on a message once, and did so if the message's job succeeded."""
    times = Counter(history.handled)
    for (consumer, message_id), many in times.items():
        if many > 1:
            yield f"{consumer} acted {many} times on message {message_id!r}."
    for row in rows.messages:
        if history.handled and row.state == "succeeded" and not times[(row.consumer, row.message_id)]:
            yield f"{row.consumer} succeeded with message {row.message_id!r} and never acted on it."


def one_job_per_key(history: History, rows: Rows) -> Iterator[str]:
    """One key is one job while it lives, and another body under it was never taken for the same."""
    before = {row.id: row.previous_job_id for row in rows.jobs}
    told: dict[str, dict[uuid.UUID, str]] = defaultdict(dict)
    for call in history.enqueued:
        if call.status != "ok" or not call.key or call.job_id is None:
            continue
        others = told[call.key]
        if call.job_id in others and others[call.job_id] != call.body:
            yield f"Key {call.key!r} answered with job {call.job_id}, which was enqueued with another body."
        if others and call.job_id not in others and before.get(call.job_id) not in others:
            yield f"Key {call.key!r} made job {call.job_id} beside {', '.join(map(str, others))}."
        others.setdefault(call.job_id, call.body)


def limits_hold(history: History, rows: Rows) -> Iterator[str]:
    """At no instant more jobs of a queue held a lease than its limit allows."""
    for queue, limit in history.limits.items():
        moves = [(row.started_at, 1) for row in rows.attempts if row.queue_name == queue]
        moves += [(row.finished_at, -1) for row in rows.attempts if row.queue_name == queue and row.finished_at]
        running = 0
        for at, change in sorted(moves):  # an end comes before a start of the same instant
            running += change
            if running > limit:
                yield f"Queue {queue!r} ran {running} jobs at {at.isoformat()}; its limit is {limit}."
                break


def recovery_is_bounded(history: History, rows: Rows) -> Iterator[str]:
    """Whatever a kill interrupted goes on in time, or is dead."""
    jobs = {row.id: row for row in rows.jobs}
    following = {(row.job_id, row.number): row for row in rows.attempts}
    for at in history.kills:
        for lost in rows.attempts:
            over = lost.finished_at or rows.now
            if lost.outcome not in (None, "lost") or not lost.started_at <= at <= over:
                continue
            after = following.get((lost.job_id, lost.number + 1))
            if after is None and jobs[lost.job_id].state in _ENDED:
                continue
            took = (after.started_at if after else rows.now) - at
            if took > history.recovery:
                seconds = took.total_seconds()
                yield f"Job {lost.job_id} was interrupted by a kill and stood still for {seconds:.1f} s."


def metrics_are_rows(history: History, rows: Rows) -> Iterator[str]:
    """What was scraped says what the rows say; the counters begin where the history begins."""
    if not history.scrape:
        return
    outcomes = Counter(row.outcome for row in rows.attempts)
    causes = Counter(row.loss_cause for row in rows.attempts if row.outcome == "lost")
    ended = _sums(history.scrape, "django_jobs_attempts_total", "outcome")
    lost = _sums(history.scrape, "django_jobs_lost_attempts_total", "cause")
    pairs = [(f"attempts that {each}", ended[each], outcomes[each]) for each in ("succeeded", "snoozed", "released")]
    failed = ended["retry"] + ended["dead_lettered"] + ended["cancelled"]
    pairs.append(("attempts that failed or were cancelled", failed, outcomes["failed"] + outcomes["cancelled"]))
    pairs += [(f"losses by {cause}", lost[cause], causes[cause]) for cause in sorted(set(lost) | set(causes))]
    waiting = _sums(history.scrape, "django_jobs_backlog_jobs", "state")
    states = Counter(row.state for row in rows.jobs)
    if waiting:
        pairs += [(f"jobs that are {state}", waiting[state], states[state]) for state in ("queued", "running")]
        later = waiting["scheduled"] + waiting["retry"] + waiting["aside"]
        pairs.append(("jobs that wait for their time", later, states["scheduled"] + states["failed"]))
    for what, counted, stored in pairs:
        if counted != stored:
            yield f"The metrics tell of {counted} {what}, the rows of {stored}."


def _sums(scrape: str, name: str, label: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for metric, labels, value in _SAMPLE.findall(scrape):
        if metric == name:
            found[dict(_LABEL.findall(labels))[label]] += int(float(value))
    return found


CHECKS: tuple[tuple[str, Look], ...] = (
    ("I1", no_loss),
    ("I4", attempts_are_bounded),
    ("I5", applied_once),
    ("I6", rows_and_events),
    ("I7", handled_once),
    ("I8", one_job_per_key),
    ("I10", limits_hold),
    ("I12", recovery_is_bounded),
    ("I13", metrics_are_rows),
)
