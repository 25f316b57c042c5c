-- invariant: O1
-- meaning: the numbers of an ordering key begin behind what was pruned, have no gap and end where its counter stands
-- about: event
SELECT e.id
FROM django_jobs_outboxevent e
LEFT JOIN django_jobs_outboxevent before ON before.ordering_key = e.ordering_key AND before.key_seq = e.key_seq - 1
    AND NOT (before.ordering_key = '')
LEFT JOIN django_jobs_prunedorder p ON p.ordering_key = e.ordering_key
WHERE NOT (e.ordering_key = '')
    AND (e.key_seq <= COALESCE(p.last_seq, 0) OR (before.id IS NULL AND e.key_seq <> COALESCE(p.last_seq, 0) + 1))
UNION
SELECT e.id
FROM (
    SELECT ordering_key, MAX(key_seq) AS highest FROM django_jobs_outboxevent
    WHERE NOT (ordering_key = '') GROUP BY ordering_key
) last
JOIN django_jobs_outboxevent e ON e.ordering_key = last.ordering_key AND e.key_seq = last.highest
LEFT JOIN django_jobs_orderingkey k ON k.ordering_key = last.ordering_key
WHERE k.last_seq IS NULL OR k.last_seq <> last.highest
