"""A small shop that uses django_jobs as its users would: the demo, the tests and the documentation run it."""
