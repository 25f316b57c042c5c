-- invariant: A3
-- meaning: a decision's row has the plan that was acknowledged, says who decided for whom and why, and was not changed since
-- about: row
SELECT a.id
FROM django_jobs_operatoraction a
WHERE a.actor = '' OR a.owner = '' OR a.reason = '' OR a.given_digest <> a.plan_digest
    OR a.plan_digest <> 'v1:' || SHA256_HEX(a.plan)
