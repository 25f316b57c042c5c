-- purpose: keep a message that was not taken, for a human
-- guard: this content is not put aside yet (nothing is written otherwise)
-- index: django_jobs_quarantine_once
INSERT INTO django_jobs_quarantine (
    id, consumer, source, message_id, data, data_digest, first_digest, reason, created_at)
SELECT %(row)s, %(consumer)s, %(source)s, %(message_id)s, %(data)s,
    %(data_digest)s, %(first_digest)s, %(reason)s, %(now)s
WHERE 1
ON CONFLICT DO NOTHING
RETURNING id
