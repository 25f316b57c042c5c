"""The table of fault points. A name that is not here does not exist; a test compares the calls with it."""

from __future__ import annotations

from typing import NamedTuple

POINTS: dict[str, str] = {
    "enqueue.before_insert": "the statement that stores new jobs is about to be sent",
    "enqueue.after_insert": "new jobs are stored in a transaction that is still open",
    "enqueue.after_commit": "new jobs are stored for good; nobody was told",
    "claim.before": "a claim is about to be sent, whether or not it will find something",
    "claim.after_update": "jobs are leased in a transaction that is still open: a queue has a limit, or on SQLite",
    "claim.after_commit": "jobs are leased for good; no thread knows of them yet",
    "handler.before": "a handler is about to be called",
    "handler.progress": "a handler tells progress",
    "handler.after": "a handler has returned; inside its transaction if it is atomic",
    "effect.before_intent": "an effect is asked for; nothing is written about this send",
    "effect.after_intent": "the intent is committed; the request is not made",
    "effect.after_call": "the provider has answered; nothing is written about it",
    "effect.after_confirm": "the answer is committed",
    "reconcile.before": "a provider is about to be asked what became of a request",
    "reconcile.after_answer": "the provider has said what became of it; nothing is written about it",
    "reconcile.after_commit": "what the provider said is committed",
    "renew.before": "a renewal of a lease is about to be sent",
    "renew.after_update": "a lease is renewed in a transaction that is still open: on SQLite",
    "renew.after": "a lease is renewed",
    "finish.before": "a success is about to be recorded; inside the handler's transaction if it has one",
    "finish.after_update": "a success is recorded in a transaction that is still open",
    "finish.after_commit": "a success is recorded for good; nobody was told",
    "fail.before": "a failure (with another attempt, or as a dead letter) is about to be recorded",
    "fail.after_update": "a failure is recorded in a transaction that is still open: a cancel is known, or on SQLite",
    "fail.after_commit": "a failure is recorded for good; nobody was told",
    "release.before": "an attempt is about to be given back",
    "release.after_update": "an attempt is given back in a transaction that is still open: a cancel is known",
    "release.after_commit": "an attempt was given back for good",
    "reap.after_select": "a lost attempt was found; it is about to be taken back",
    "reap.after_update": "a lost attempt is taken back in a transaction that is still open",
    "reap.after_commit": "a lost attempt was taken back for good",
    "promote.before": "something is due; jobs are about to be made ready",
    "promote.after_commit": "jobs are ready",
    "cancel.before": "a job is about to be ended as cancelled; its row is locked",
    "cancel.after_update": "a job is ended as cancelled in a transaction that is still open",
    "cancel.after_commit": "a job is cancelled for good; nobody was told",
    "schedule.after_insert": "a tick and its job are stored in a transaction that is still open",
    "batch.before_close": "the last member of a batch has ended for good; the batch is about to be closed",
    "batch.after_update": "a batch is closed and what follows is enqueued in a transaction that is still open",
    "batch.after_commit": "a batch is closed for good; nobody was told",
    "chain.after_next": "the next job of a chain is stored in the transaction of the success, which is still open",
    "compensate.before": "the job that takes an effect back has found its decision",
    "compensate.after_call": "the effect was taken back; the compensation is still open",
    "compensate.after_update": "the compensation is closed in the transaction of the success, which is still open",
    "dispatch.after_claim": "deliveries are leased for good; nothing of them is sent",
    "dispatch.before_publish": "a publisher is about to be given what was claimed; local deliveries have none",
    "dispatch.after_publish": "a publisher has answered; nothing is written about it",
    "dispatch.after_mark": "deliveries are marked in a transaction that is still open: local ones, or on SQLite",
    "dispatch.after_commit": "deliveries are marked for good; nobody was told",
    "inbox.before_insert": "the row that says that a message is taken is about to be written",
    "inbox.after_insert": "a message is taken in a transaction that is still open; nothing came of it yet",
    "inbox.after_handler": "what taking a message means is written in the same transaction, which is still open",
    "inbox.after_commit": "a message is taken for good; its sender was not told",
    "replay.after_lock": "a dead letter is locked for its replay; nothing was looked at under the lock",
    "replay.after_write": "the decision is recorded and the job replayed in a transaction that is still open",
    "replay.after_commit": "a job is replayed for good; nobody was told",
    "redispatch.after_lock": "a delivery is locked for a decision; nothing was looked at under the lock",
    "redispatch.after_write": "the decision is recorded and carried out in a transaction that is still open",
    "redispatch.after_commit": "a decision about a delivery is carried out for good; nobody was told",
    "prune.between_batches": "a batch was taken for good with its record; the next one was not looked for",
}


class Around(NamedTuple):
    """The points around one statement of the store."""

    before: str  # empty: whoever runs it tells, or what was before is told already
    after_commit: str  # empty: whoever runs it tells, because it is always inside a transaction
    after_update: str = ""  # empty: it is never inside a transaction


_ENQUEUE = Around("enqueue.before_insert", "enqueue.after_commit", "enqueue.after_insert")
_FAIL = Around("fail.before", "fail.after_commit", "fail.after_update")
_CANCEL = Around("cancel.before", "cancel.after_commit", "cancel.after_update")

STATEMENTS: dict[str, Around] = {
    "enqueue": _ENQUEUE,
    "queries/enqueue_many": _ENQUEUE,
    "claim": Around("claim.before", "claim.after_commit", "claim.after_update"),
    "renew": Around("renew.before", "renew.after", "renew.after_update"),
    "succeed": Around("finish.before", "finish.after_commit", "finish.after_update"),
    "fail": _FAIL,
    "dead_letter": _FAIL,
    "release": Around("release.before", "release.after_commit", "release.after_update"),
    "rescue": Around("reap.after_select", "", "reap.after_update"),
    "promote": Around("promote.before", "promote.after_commit"),
    "cancel": _CANCEL,
    "cancel_running": _CANCEL,
    "outbox/claim": Around("", "dispatch.after_claim"),
    "outbox/mark": Around("", "dispatch.after_commit", "dispatch.after_mark"),
    "inbox/take": Around("inbox.before_insert", "", "inbox.after_insert"),
    "replay": Around("", "", "replay.after_write"),
}
