"""A job as the metrics of its nodes, by PromQL."""
