-- purpose: keep a message that was not taken, for a human
-- guard: this content is not put aside yet (nothing is written otherwise)
-- index: django_jobs_quarantine_once
INSERT INTO django_jobs_quarantine (
    id, consumer, source, message_id, data, data_digest, first_digest, reason, created_at)
SELECT %(row)s::uuid, %(consumer)s::text, %(source)s::text, %(message_id)s::text, %(data)s::text,
    %(data_digest)s::text, %(first_digest)s::text, %(reason)s::text, COALESCE(%(now)s::timestamptz, clock_timestamp())
ON CONFLICT DO NOTHING
RETURNING id
