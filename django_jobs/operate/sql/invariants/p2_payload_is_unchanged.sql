-- invariant: P2
-- meaning: the stored payload still has the fingerprint that the job was enqueued with
-- about: job
SELECT j.id
FROM django_jobs_job j
JOIN django_jobs_jobpayload p ON p.job_id = j.id
WHERE j.payload_fingerprint <> 'v1:' || SHA256_HEX(p.arguments)
