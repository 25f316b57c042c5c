"""Speed as a ratio to a raw psycopg limit line, measured in one run on one server: ``python -m tests.benchmarks``."""
