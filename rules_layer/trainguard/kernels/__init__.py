"""Kernel profiles: a trace to columns, columns to metrics, metrics to findings."""
