-- purpose: remember in the token bucket of a resource that jobs have started
-- guard: the caller holds the resource's lock and has read the bucket under it
-- index: the unique one of the names
INSERT INTO django_jobs_resource (id, name, max_rate, behind)
VALUES (%(id)s, %(name)s, '', %(behind)s)
ON CONFLICT (name) DO UPDATE SET behind = excluded.behind
