-- invariant: N2
-- meaning: a consumer takes a message once, and the job that works on it exists and has the message as its key; a pruned one may be missing
-- about: row
SELECT i.id
FROM django_jobs_inboxmessage i
JOIN (
    SELECT consumer, source, message_id FROM django_jobs_inboxmessage
    GROUP BY consumer, source, message_id HAVING COUNT(*) > 1
) AS twice ON twice.consumer = i.consumer AND twice.source = i.source AND twice.message_id = i.message_id
UNION ALL
SELECT i.id
FROM django_jobs_inboxmessage i
LEFT JOIN django_jobs_job j ON j.id = i.job_id
WHERE i.job_id IS NOT NULL AND j.id IS NULL AND NOT EXISTS (
    SELECT 1 FROM django_jobs_prunedstretch t
    WHERE t.kind = 'jobs' AND t.last_job_id >= i.job_id AND t.first_job_id <= i.job_id)
UNION ALL
SELECT named.id
FROM (
    SELECT i.id, i.job_id,
        REPLACE(REPLACE(i.source, '%', '%25'), ':', '%3A') || ':' || i.message_id AS whole
    FROM django_jobs_inboxmessage i
) AS named
JOIN django_jobs_jobpayload p ON p.job_id = named.job_id
WHERE p.key <> CASE
    WHEN LENGTH(named.whole) <= 249 THEN 'inbox:' || named.whole
    ELSE 'inbox:' || SHA256_HEX(named.whole) END
