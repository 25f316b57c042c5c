-- purpose: make deliveries due again whose dispatcher's lease is over, and close its attempts as lost
-- guard: state 'claimed' with a lease that is over; rows that others hold are skipped
-- index: django_jobs_delivery_held
UPDATE django_jobs_deliveryattempt
SET finished_at = %(now)s, outcome = 'lost', detail = 'Never observed, and it may have arrived: the lease was over.'
WHERE outcome IS NULL AND id IN (
    SELECT d.attempt_id FROM django_jobs_delivery d
    WHERE d.state IN ('claimed', 'dead_lettered') AND d.state = 'claimed' AND d.lease_expires_at <= %(now)s
    ORDER BY d.id LIMIT %(limit)s)
-- then
UPDATE django_jobs_delivery
SET state = 'pending', revision = revision + 1, attempt_id = NULL, lease_owner = NULL, lease_expires_at = NULL,
    available_at = %(now)s
WHERE id IN (
    SELECT d.id FROM django_jobs_delivery d
    WHERE d.state IN ('claimed', 'dead_lettered') AND d.state = 'claimed' AND d.lease_expires_at <= %(now)s
    ORDER BY d.id LIMIT %(limit)s)
RETURNING id, destination
