"""One attempt at a time, run as a worker's thread runs it."""
