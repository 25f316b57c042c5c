"""Tests of one part at a time, most of them without a database."""
