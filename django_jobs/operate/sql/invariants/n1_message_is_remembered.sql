-- invariant: N1
-- meaning: a message is remembered for an hour or longer, and the key of its job lives no shorter than its row
-- about: row
SELECT i.id FROM django_jobs_inboxmessage i WHERE SECONDS_BETWEEN(i.received_at, i.keep_until) < 3600
UNION ALL
SELECT i.id
FROM django_jobs_inboxmessage i
JOIN django_jobs_idempotencykey k ON k.job_id = i.job_id
JOIN django_jobs_jobpayload p ON p.job_id = i.job_id
WHERE k.created_at >= i.received_at AND k.ttl_seconds < SECONDS_BETWEEN(i.received_at, i.keep_until)
