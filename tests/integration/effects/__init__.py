"""Tests of effects: recorded, sent, reconciled, on both databases."""
