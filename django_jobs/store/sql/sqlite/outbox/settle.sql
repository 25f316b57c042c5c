-- purpose: record how attempts ended that delivered nothing: due again later, dead, or given back
-- guard: state 'claimed' under the attempt that is named
-- index: primary keys
UPDATE django_jobs_deliveryattempt
SET (outcome, status, detail) = (
        SELECT json_extract(g.value, '$[2]'), json_extract(g.value, '$[6]'), json_extract(g.value, '$[7]')
        FROM json_each(%(rows)s) g WHERE json_extract(g.value, '$[1]') = django_jobs_deliveryattempt.id),
    finished_at = %(now)s
WHERE id IN (SELECT json_extract(value, '$[1]') FROM json_each(%(rows)s)) AND outcome IS NULL
-- then
UPDATE django_jobs_delivery
SET (state, failed_count, lost_count, last_error, available_at, dead_at, dead_reason) = (
        SELECT json_extract(g.value, '$[3]'), json_extract(g.value, '$[4]'), json_extract(g.value, '$[9]'),
            CASE WHEN json_extract(g.value, '$[7]') = '' THEN django_jobs_delivery.last_error
                ELSE json_extract(g.value, '$[7]') END,
            CASE WHEN json_extract(g.value, '$[3]') = 'pending'
                THEN django_jobs_add(%(now)s, json_extract(g.value, '$[5]')) END,
            CASE WHEN json_extract(g.value, '$[3]') = 'dead_lettered' THEN %(now)s END, json_extract(g.value, '$[8]')
        FROM json_each(%(rows)s) g WHERE json_extract(g.value, '$[0]') = django_jobs_delivery.id),
    revision = revision + 1, attempt_id = NULL, lease_owner = NULL, lease_child = NULL, lease_expires_at = NULL
WHERE state = 'claimed' AND attempt_id = (
    SELECT json_extract(g.value, '$[1]') FROM json_each(%(rows)s) g
    WHERE json_extract(g.value, '$[0]') = django_jobs_delivery.id)
    AND id IN (SELECT json_extract(value, '$[0]') FROM json_each(%(rows)s))
RETURNING id
