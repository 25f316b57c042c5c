"""Batches and chains."""
