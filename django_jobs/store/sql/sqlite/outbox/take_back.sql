-- purpose: take deliveries back from holders that are gone, and close their attempts as lost: due again, or dead
-- guard: state 'claimed' under the attempt that is named; rows that others hold are skipped
-- index: primary keys
UPDATE django_jobs_deliveryattempt
SET finished_at = %(now)s, outcome = 'lost', detail = (
        SELECT json_extract(g.value, '$[6]') FROM json_each(%(rows)s) g
        WHERE json_extract(g.value, '$[1]') = django_jobs_deliveryattempt.id)
WHERE id IN (SELECT json_extract(value, '$[1]') FROM json_each(%(rows)s)) AND outcome IS NULL
-- then
UPDATE django_jobs_delivery
SET (state, lost_count, last_error, available_at, dead_at, dead_reason) = (
        SELECT json_extract(g.value, '$[2]'), json_extract(g.value, '$[3]'),
            CASE WHEN json_extract(g.value, '$[5]') = '' THEN django_jobs_delivery.last_error
                ELSE json_extract(g.value, '$[6]') END,
            CASE WHEN json_extract(g.value, '$[2]') = 'pending'
                THEN django_jobs_add(%(now)s, json_extract(g.value, '$[4]')) END,
            CASE WHEN json_extract(g.value, '$[2]') = 'dead_lettered' THEN %(now)s END, json_extract(g.value, '$[5]')
        FROM json_each(%(rows)s) g WHERE json_extract(g.value, '$[0]') = django_jobs_delivery.id),
    revision = revision + 1, attempt_id = NULL, lease_owner = NULL, lease_child = NULL, lease_expires_at = NULL
WHERE state = 'claimed' AND attempt_id = (
    SELECT json_extract(g.value, '$[1]') FROM json_each(%(rows)s) g
    WHERE json_extract(g.value, '$[0]') = django_jobs_delivery.id)
    AND id IN (SELECT json_extract(value, '$[0]') FROM json_each(%(rows)s))
RETURNING id
