"""What options are for, in words; a maker fails when the code has one that is missing here, or the other way round."""

from __future__ import annotations

PUBLIC = {
    "Confirmed": "What an effect returns when the provider says: applied.",
    "EnqueueResult": "What `enqueue()` returns: `id`, `outcome`, `state`, `created`, `version_differs`.",
    "BatchResult": "A batch as it stood when read: `state`, counts, `callback_job_id`; `refresh()`.",
    "ChainResult": "A chain as it stood when read: `state`, `links`; `refresh()`.",
    "batch": "Jobs whose common end is waited for, and a callback: see [compose jobs](../how-to/compose-jobs.md).",
    "batch_result": "Reads a batch by its id.",
    "chain": "Jobs of which each is enqueued by the success of the one before; `chain(…).enqueue()`.",
    "chain_result": "Reads a chain by its id.",
    "Event": "What a subscriber gets: `id`, `type`, `version`, `data`, `subject`, `ordering_key`, `created_at`.",
    "Cron": 'Ticks of a schedule by a cron expression: `Cron("0 6 * * *", timezone="Europe/Berlin")`.',
    "Every": "Ticks of a schedule in equal spans: `Every(timedelta(minutes=5))`.",
    "schedule": "Declares that a job type is enqueued again and again.",
    "JobResult": "A job as it stood when read: state, progress, last error, result; `refresh()`, `get(timeout)`.",
    "job_result": "Reads a job by its id, for example one that an earlier request enqueued.",
    "JobContext": "The type of a handler's `context`.",
    "Received": "What `receive()` returns: `outcome`, `job_id`, `reason`.",
    "Rejected": "What an effect returns when the answer proves that nothing was applied.",
    "RetryPolicy": "How failures of a job type are answered.",
    "Unknown": "What an effect returns for anything else: a time-out, a reset, an answer that cannot be read.",
    "effect": "Decorator: a function becomes an operation at a provider.",
    "event_type": "Declares an event type in an app's `events` module: name, version, fields.",
    "inbox": "`inbox.once()`: a consumer that is no job takes a message once, in its own transaction.",
    "job": "Decorator: a function becomes the handler of a job type.",
    "publish": "Records an event in the transaction in which it happens; returns its id.",
    "receive": "Take a message from outside, such as a webhook, once: see [webhooks](../how-to/receive-webhooks.md).",
    "subscribe": "Decorator: a function becomes a job type whose jobs come from events.",
    "verify_webhook": "Check who signed a webhook and when; returns its id.",
}

JOB_DEFAULTS = {
    "type": "app label and function name",
    "key_scope": "the type",
    "key_ttl": "setting `KEY_TTL`",
    "budget": "setting `BUDGET`",
    "cleanup": "setting `CLEANUP`",
    "max_runtime": "20 × `budget`",
    "soft_timeout": "setting `SOFT_TIMEOUT`",
    "retry": "`RetryPolicy()`",
    "atomic": "`True`, with a context `False`",
}
JOB = {
    "type": "The stored name. Give one before you move or rename the function.",
    "version": "Of the payload; raise it when arguments change their meaning. Workers claim only versions they know.",
    "aliases": "Older stored names that this handler also answers to.",
    "queue_name": "The queue; workers can be told which queues to serve.",
    "priority": "From −100 to 100; bigger is first.",
    "key": "Template of the idempotency key, for example `order:{order_id}`. Without one nothing is deduplicated.",
    "key_scope": "Where the key is unique. Job types that name one scope share its keys.",
    "key_ttl": "How long the key lives after its job finished.",
    "on_duplicate": "`return` answers a duplicate with the holder of the key; `reject` raises `DuplicateJobError`.",
    "subject": "Template of what the job is about, for example `order:{order_id}`; to find jobs by.",
    "owner": "Who is told when the job needs somebody; see the setting `OWNERS`.",
    "budget": "How long the handler may run without telling progress.",
    "cleanup": "Added to the budget for the lease: time to end in good order.",
    "max_runtime": "How long one attempt may run in all, renewals included.",
    "retry": "How failures are answered.",
    "useful_for": "After this time the job is worth nothing: it is dead-lettered instead of started or tried again.",
    "takes_context": "The first parameter is `context`: effects, `complete()`, `step()`, `progress()`.",
    "atomic": "The handler runs in one transaction with its success. `False`: for handlers that run long.",
    "soft_timeout": (
        "Raise `SoftTimeoutError` inside the handler when its budget is over, so that it can "
        "[end in good order](../how-to/run-workers.md#end-a-handler-in-good-order). Needs a `cleanup` of 3 s."
    ),
    "replay_permission": "A permission, with its app, that a user needs besides to replay such a job.",
    "schedule": "When it is enqueued by itself: a `Cron`, an `Every`, or a cron expression in the zone of the project.",
    "serial_key": "Template: jobs of one key run one at a time, in the order in which they became due.",
    "serial_on_dead": "`block`: a dead letter holds the others of its serial key; `skip`: they go on.",
    "upcasters": "By older payload version: what makes of its arguments those of the next version.",
    "resource": 'What its jobs share with those of other types, bounded by `DJANGO_JOBS["RESOURCES"]`.',
}
USING = {
    "serial_key": "The serial key itself, not a template.",
    "database": "Alias of the database that stores the job.",
    "detached": "Record the job although it does not commit together with what belongs to it.",
    "key": "The idempotency key itself, not a template.",
    "priority": "From −100 to 100; bigger is first.",
    "queue_name": "The queue.",
    "run_after": "An aware datetime, or a timedelta from now.",
    "subject": "What the job is about, not a template.",
    "tenant": "Part of the key's scope and of every provider key.",
}
RETRY = {
    "base": "Bound of the first delay. Delays are random between zero and their bound.",
    "factor": "By which each further bound is longer.",
    "cap": "The longest bound.",
    "transient_max_age": "How old a job may be when a transient error is tried again.",
    "unknown_attempts": "How many errors of class unknown a job may have.",
    "unchanged": "How often the same unknown error may come in a row.",
    "losses": "From how many lost attempts on a loss without company dead-letters the job as `poison`.",
    "free_moves": "How many snoozes, releases and leases that ran out a job may have.",
    "reconcile_max_age": "How long a job may wait for evidence about an effect.",
    "permanent": "Exception types that trying again cannot mend, whatever the default table says.",
    "transient": "Exception types that are worth another try, whatever the default table says.",
}
EFFECT = {
    "dedupe": (
        "What the provider does with a repeated request: `key` (applied once per idempotency key), "
        "`natural` (repeating changes nothing) or `none` (a second request is a second effect)."
    ),
    "key_lifetime": 'How long the provider remembers a key. Needed for, and only for, `dedupe="key"`.',
    "requires_key": "Refuse `context.effect` without `key=`.",
    "timeout": "The longest one request may take; never more than the setting `MAX_CALL`.",
    "owner": "Who is told when a human must look. Default: the owner of the job.",
    "provider": "Who acts; part of the effect's identity. Default: the name up to its first dot.",
    "settle": "How long after its deadline a request may still be applied.",
    "visible_after": "How much later a question is sure to see it.",
    "caches_failures": "The provider answers a rejected key with the same rejection again.",
    "key_max_length": "The longest key that the provider takes.",
    "key_alphabet": "`ascii`, or `uuid` where the provider wants UUIDs.",
    "retry": "Delays between questions and requests. Default: those of the job.",
    "docs": "Where the provider documents all this.",
}
