-- purpose: remember in the token bucket of a resource that jobs have started
-- guard: the caller holds the resource's lock and has read the bucket under it
-- index: primary key
INSERT INTO django_jobs_resource (name, max_rate, behind)
VALUES (%(name)s, '', %(behind)s)
ON CONFLICT (name) DO UPDATE SET behind = excluded.behind
