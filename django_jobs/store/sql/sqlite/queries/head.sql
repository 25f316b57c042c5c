-- purpose: see which kinds wait in queues that the asker cannot run, and whether something is useless there
-- guard: none; here a claim steps over any number of rows, so no places are told
-- index: django_jobs_job_ready, django_jobs_job_watched
SELECT NULL AS look, j.queue_name, '' AS lane, count(*) AS many, NULL AS first_mine,
    count(CASE WHEN j.useful_until <= %(now)s THEN 1 END) AS late,
    json_group_array(DISTINCT j.job_type || ' ' || j.payload_version) FILTER (
        WHERE j.job_type || ' ' || j.payload_version NOT IN (SELECT value FROM json_each(%(mine)s))) AS strange,
    NULL AS priority, NULL AS available_at, NULL AS id
FROM django_jobs_job j
WHERE j.state = 'queued' AND (j.isolation = '' OR NOT (j.isolation = '')) AND j.lane IN (SELECT value FROM json_each(%(after_lanes)s))
    AND j.queue_name IN (SELECT value FROM json_each(%(after_queues)s))
    AND (j.job_type || ' ' || j.payload_version NOT IN (SELECT value FROM json_each(%(mine)s)) OR j.useful_until <= %(now)s)
GROUP BY j.queue_name
