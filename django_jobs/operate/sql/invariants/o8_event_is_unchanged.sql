-- invariant: O8
-- meaning: the data of an event still has the digest that it was published with
-- about: event
-- Data beyond the limit stand elsewhere, under "dataref": here is their digest alone.
SELECT e.id
FROM django_jobs_outboxevent e
WHERE NOT (e.data = '' AND NOT (e.dataref = '')) AND e.data_digest <> 'v1:' || SHA256_HEX(e.data)
