-- invariant: O6
-- meaning: nothing of an ordering key is due, claimed or published past an earlier unfinished delivery to the same destination
-- about: delivery
SELECT d.id
FROM django_jobs_delivery d
JOIN (
    SELECT destination, ordering_key, MIN(key_seq) AS first FROM django_jobs_delivery
    WHERE NOT (ordering_key = '') AND redispatch = 0 AND state IN ('waiting', 'pending', 'claimed', 'dead_lettered')
    GROUP BY destination, ordering_key
) head ON head.destination = d.destination AND head.ordering_key = d.ordering_key
WHERE d.redispatch = 0 AND d.state IN ('pending', 'claimed', 'published') AND d.key_seq > head.first
