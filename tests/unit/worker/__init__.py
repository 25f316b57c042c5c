"""Rules of the worker that need no database."""
