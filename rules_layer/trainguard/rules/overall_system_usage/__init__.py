"""OverallSystemUsage: quantiles of each resource."""
