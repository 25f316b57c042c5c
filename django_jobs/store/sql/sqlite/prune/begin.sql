-- purpose: take the write lock before anything is read, so that what is read in this transaction stays true
-- guard: changes no row
-- index: none
UPDATE django_jobs_prunedstretch SET "rows" = "rows" WHERE 0
