-- purpose: delete chains that began long ago and of whose links no job is left, with what never followed
-- guard: no job of it is there, so none can succeed and be followed
-- index: primary key; django_jobs_link_once
WITH gone AS MATERIALIZED (
    SELECT c.id FROM django_jobs_chain c
    WHERE c.id <= %(upto)s::uuid AND c.created_at < %(rows_before)s::timestamptz AND NOT EXISTS (
        SELECT 1 FROM django_jobs_chainlink l JOIN django_jobs_job j ON j.id = l.job_id WHERE l.chain_id = c.id)
    ORDER BY c.id LIMIT %(limit)s::bigint
    FOR UPDATE SKIP LOCKED
),
links AS (DELETE FROM django_jobs_chainlink l USING gone WHERE l.chain_id = gone.id)
DELETE FROM django_jobs_chain c USING gone WHERE c.id = gone.id
RETURNING c.id
