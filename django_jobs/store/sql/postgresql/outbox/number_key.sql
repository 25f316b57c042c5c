-- purpose: give the next number of an ordering key, and hold the key until the transaction ends
-- guard: none; whoever else publishes under the key waits here
-- index: primary key of the ordering keys
INSERT INTO django_jobs_orderingkey AS k (ordering_key, last_seq)
VALUES (%(ordering_key)s::text, 1)
ON CONFLICT (ordering_key) DO UPDATE SET last_seq = k.last_seq + 1
RETURNING last_seq
