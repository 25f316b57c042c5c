-- purpose: write that a consumer takes a message of a source
-- guard: it has not taken it before (nothing is written otherwise)
-- index: django_jobs_inbox_once
INSERT INTO django_jobs_inboxmessage (
    id, consumer, source, message_id, data_digest, job_id, received_at, keep_until)
SELECT %(row)s, %(consumer)s, %(source)s, %(message_id)s, %(data_digest)s,
    %(job_id)s, %(now)s, django_jobs_add(%(now)s, %(keep)s)
WHERE 1
ON CONFLICT DO NOTHING
RETURNING id
