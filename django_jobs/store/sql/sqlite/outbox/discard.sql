-- purpose: settle a delivery that is dead or was tried in vain as not to be delivered, and let the next of its ordering key go
-- guard: state 'dead_lettered', or 'pending' and tried, in the revision that was seen
-- index: primary key; django_jobs_delivery_head
UPDATE django_jobs_delivery
SET state = 'discarded', revision = revision + 1, available_at = NULL, dead_at = NULL, dead_reason = ''
WHERE id = %(delivery_id)s AND (state = 'dead_lettered' OR (state = 'pending' AND fence > 0))
    AND revision = %(revision)s
RETURNING id
-- then
UPDATE django_jobs_delivery
SET state = 'pending', available_at = %(now)s, revision = revision + 1
WHERE state = 'waiting' AND id IN (
    SELECT (
        SELECT w.id FROM django_jobs_delivery w
        WHERE w.destination = m.destination AND w.ordering_key = m.ordering_key AND NOT (w.ordering_key = '')
            AND w.redispatch = 0 AND w.state IN ('waiting', 'pending', 'claimed', 'dead_lettered') AND w.key_seq > m.key_seq
        ORDER BY w.key_seq LIMIT 1)
    FROM django_jobs_delivery m
    WHERE m.id = %(row_id)s AND m.redispatch = 0 AND NOT (m.ordering_key = ''))
