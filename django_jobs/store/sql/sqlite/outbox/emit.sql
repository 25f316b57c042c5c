-- purpose: store an event, and one delivery for each destination that is subscribed to it
-- guard: none; an earlier statement of this transaction holds the counter of the ordering key
-- index: django_jobs_subscription_once, django_jobs_delivery_head
INSERT INTO django_jobs_outboxevent (id, type, version, source, subject, tenant, data, data_digest, dataref, ordering_key, key_seq, job_id, attempt_id,
    fence, correlation_id, causation_id, traceparent, routed_count, created_at)
SELECT %(event_id)s, %(type)s, %(version)s, %(source)s, %(subject)s, %(tenant)s, %(data)s, %(data_digest)s, %(dataref)s,
    %(ordering_key)s, %(key_seq)s, %(job_id)s, %(attempt_id)s, %(fence)s, %(correlation_id)s, %(causation_id)s,
    %(traceparent)s, (
        SELECT COUNT(*) FROM django_jobs_subscription s
        WHERE s.event_type = %(type)s AND s.version = %(version)s
            AND s.active_from <= %(now)s AND (s.ended_at IS NULL OR s.ended_at > %(now)s)), %(now)s
-- then
INSERT INTO django_jobs_delivery (
    id, event_id, destination, redispatch, ordering_key, key_seq, state, revision, fence, failed_count, lost_count,
    available_at, receipt, dead_reason, last_error, created_at)
SELECT substr(%(event_id)s, 1, 12) || '7' || substr(lower(hex(randomblob(2))), 1, 3) || 'a' || substr(lower(hex(randomblob(8))), 1, 15),
    %(event_id)s, r.destination, 0, %(ordering_key)s, %(key_seq)s, CASE WHEN r.waits THEN 'waiting' ELSE 'pending' END,
    1, 0, 0, 0, CASE WHEN r.waits THEN NULL ELSE %(now)s END, '', '', '', %(now)s
FROM (
    SELECT s.destination, EXISTS (
            SELECT 1 FROM django_jobs_delivery d
            WHERE d.destination = s.destination AND d.ordering_key = %(ordering_key)s
                AND NOT (d.ordering_key = '') AND d.redispatch = 0
                AND d.state IN ('waiting', 'pending', 'claimed', 'dead_lettered') AND d.key_seq < %(key_seq)s) AS waits
    FROM django_jobs_subscription s
    WHERE s.event_type = %(type)s AND s.version = %(version)s
        AND s.active_from <= %(now)s AND (s.ended_at IS NULL OR s.ended_at > %(now)s)
) AS r
-- then
SELECT COUNT(*) AS routed, COUNT(CASE WHEN state = 'waiting' THEN 1 END) AS waiting
FROM django_jobs_delivery WHERE event_id = %(event_id)s
