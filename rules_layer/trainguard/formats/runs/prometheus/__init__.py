"""Metrics of a cluster, asked for by range queries of PromQL."""
