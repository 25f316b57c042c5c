"""Tests that read the source code: what must hold of every file, whoever wrote it."""
