"""Ordering, evaluation, fires: what turns a set of objects into verdicts."""
