-- invariant: J18
-- meaning: a ready job stands in the lane of its resource or waits for its turn, and one that waits for its time stands in the open lane or is set aside
-- about: job
SELECT j.id
FROM django_jobs_job j
WHERE (j.state = 'queued' AND j.lane <> j.resource AND NOT (j.serial_key <> '' AND j.lane IN ('~', '~~')))
    OR (j.state IN ('scheduled', 'failed') AND j.lane <> '' AND substr(j.lane, 1, 1) <> '!')
