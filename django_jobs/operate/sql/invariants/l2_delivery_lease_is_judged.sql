-- invariant: L2
-- meaning: no claimed delivery outlives its lease by more than the patience
-- about: delivery
SELECT d.id
FROM django_jobs_delivery d
WHERE d.state = 'claimed' AND SECONDS_UNTIL_NOW(d.lease_expires_at) > PATIENCE
