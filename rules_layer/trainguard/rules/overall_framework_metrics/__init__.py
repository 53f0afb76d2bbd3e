"""OverallFrameworkMetrics: what the time of the framework goes into."""
