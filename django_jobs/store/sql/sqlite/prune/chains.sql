-- purpose: delete chains that began long ago and of whose links no job is left, with what never followed
-- guard: no job of it is there, so none can succeed and be followed
-- index: primary key; django_jobs_link_once
DELETE FROM django_jobs_chainlink
WHERE chain_id IN (
    SELECT c.id FROM django_jobs_chain c
    WHERE c.id <= %(upto)s AND c.created_at < %(rows_before)s AND NOT EXISTS (
        SELECT 1 FROM django_jobs_chainlink l JOIN django_jobs_job j ON j.id = l.job_id WHERE l.chain_id = c.id)
    ORDER BY c.id LIMIT %(limit)s)
-- then
DELETE FROM django_jobs_chain
WHERE id <= %(upto)s AND created_at < %(rows_before)s
    AND NOT EXISTS (SELECT 1 FROM django_jobs_chainlink l WHERE l.chain_id = django_jobs_chain.id)
RETURNING id
