-- purpose: make deliveries due again whose dispatcher's lease is over, and close its attempts as lost
-- guard: state 'claimed' with a lease that is over; rows that others hold are skipped
-- index: django_jobs_delivery_held
WITH clock AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now),
over AS MATERIALIZED (
    SELECT d.id, d.attempt_id FROM django_jobs_delivery d, clock
    WHERE d.state IN ('claimed', 'dead_lettered') AND d.state = 'claimed' AND d.lease_expires_at <= clock.now
    LIMIT %(limit)s::bigint
    FOR NO KEY UPDATE OF d SKIP LOCKED
),
closed AS (
    UPDATE django_jobs_deliveryattempt a
    SET finished_at = clock.now, outcome = 'lost', detail = 'Never observed, and it may have arrived: the lease was over.'
    FROM over, clock WHERE a.id = over.attempt_id AND a.outcome IS NULL
)
UPDATE django_jobs_delivery d
SET state = 'pending', revision = d.revision + 1, attempt_id = NULL, lease_owner = NULL, lease_expires_at = NULL,
    available_at = clock.now
FROM over, clock WHERE d.id = over.id
RETURNING d.id, d.destination
